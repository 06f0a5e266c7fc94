//! Workloads whose unit is not a run: signals to one run, and nothing at all.

use super::code::{self, LAST, SIGNAL};
use super::load::{Clients, Load, expect, within};
use super::probe::{Probe, Rates};
use super::progress::Progress;
use super::report::Figures;
use harvest_runtime::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// W5: one run takes `count` signals from `senders`; again until the time is over. The unit is a signal, the run's end included.
///
/// # Errors
/// When a call fails or the run has missed or doubled a signal.
pub async fn one_run(load: &Load, senders: u32, count: u64, span: Duration, probe: &mut Probe, idle: &Rates, progress: &Progress) -> anyhow::Result<Figures> {
    let clock = probe.clock();
    let from = probe.moment().await?;
    let mut times = Vec::new();
    while times.is_empty() || clock.monotonic().saturating_sub(from.at()) < span {
        let value = load.number();
        let handle = load.client().start(&code::signals, Load::options(format!("W5-{value}")), count).await?;
        let left = Arc::new(AtomicU64::new(count));
        let (signalled, sent) = (handle.clone(), left.clone());
        let clients = Clients::start(clock.clone(), senders, move || {
            let (handle, left) = (signalled.clone(), left.clone());
            async move {
                if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
                    return Ok(false);
                }
                handle.signal(SIGNAL, 1).await?;
                Ok(true)
            }
        });
        let sending = clients.ended();
        tokio::pin!(sending);
        let samples = loop {
            tokio::select! {
                ended = &mut sending => break ended?,
                () = clock.sleep(Duration::from_millis(250)) => {
                    let elapsed = clock.monotonic().saturating_sub(from.at());
                    progress.running(&format!("W5 at {senders}"), elapsed, span, count - sent.load(Ordering::Relaxed));
                }
            }
        };
        expect(&handle, count).await?;
        times.extend(samples.iter().map(|sample| sample.took_ms));
    }
    let until = probe.moment().await?;
    let usage = probe.usage(&from, &until).await?;
    Ok(Figures::of("W5", senders, u64::try_from(times.len())?, times, &usage, idle))
}

/// One run takes signals from `senders` all the time, continuing as new when its history grows long. The unit is a signal.
///
/// # Errors
/// When a call fails or the run has missed or doubled a signal.
pub async fn sustained(load: &Load, senders: u32, span: Duration, probe: &mut Probe, idle: &Rates, progress: &Progress) -> anyhow::Result<Figures> {
    let workflow_id = format!("signals-{}", load.number());
    load.client().start(&code::sustained, Load::options(&workflow_id), 0).await?;
    let handle = load.client().handle(&code::sustained, &workflow_id);
    let signalled = handle.clone();
    let mut clients = Clients::start(probe.clock(), senders, move || {
        let handle = signalled.clone();
        async move { Ok(handle.signal(SIGNAL, 1).await.map(|()| true)?) }
    });
    clients.work("signals16", Duration::from_secs(2).min(span), progress).await?;
    let from = probe.moment().await?;
    clients.work("signals16", span, progress).await?;
    let until = probe.moment().await?;
    let samples = clients.stop().await?;
    let usage = probe.usage(&from, &until).await?;
    handle.signal(SIGNAL, LAST).await?;
    expect(&handle, u64::try_from(samples.len())?).await?;
    let times = within(&samples, from.at(), until.at());
    Ok(Figures::of("signals16", senders, u64::try_from(times.len())?, times, &usage, idle))
}

/// Nothing. The unit is a second.
///
/// # Errors
/// When something cannot be measured.
pub async fn idle(span: Duration, probe: &mut Probe, progress: &Progress) -> anyhow::Result<Figures> {
    progress.step("idle");
    let from = probe.moment().await?;
    probe.clock().sleep(span).await;
    let until = probe.moment().await?;
    let usage = probe.usage(&from, &until).await?;
    Ok(Figures { runs_per_s: None, ..Figures::of("idle", 0, span.as_secs(), Vec::new(), &usage, &Rates::default()) })
}
