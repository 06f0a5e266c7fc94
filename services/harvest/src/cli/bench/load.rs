//! The load: clients that each do one thing after the other, as fast as the answers come (a closed loop).

use super::code::{self, QUEUE, SIGNAL};
use super::probe::{Probe, Rates, milliseconds};
use super::progress::Progress;
use super::report::Figures;
use super::{Workload, probe};
use anyhow::{Context as _, bail};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::{Client, StartOptions, WorkflowHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long clients run before a measurement begins: connections, caches and plans are made in that time.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long the worker may take to be known to the fleet.
const WORKER_PATIENCE: Duration = Duration::from_secs(60);
/// What the signal of a W4 run carries.
const GREETING: u64 = 7;

/// One unit of work, as its client saw it.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When it was done, on the monotonic clock.
    pub at: Duration,
    /// How long it took, milliseconds.
    pub took_ms: f64,
}

/// Makes runs. Cheap to clone.
#[derive(Clone)]
pub struct Load {
    client: Client,
    numbers: Arc<AtomicU64>,
}

impl Load {
    /// A client of this frontend.
    ///
    /// # Errors
    /// When it is no address.
    pub fn new(address: &str) -> anyhow::Result<Self> {
        Ok(Self { client: Client::connect([address])?, numbers: Arc::new(AtomicU64::new(0)) })
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A number that no run had before.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Options of a start under this business key, on the benchmark's queue.
    pub fn options(workflow_id: impl Into<String>) -> StartOptions {
        StartOptions::new(workflow_id).task_queue(QUEUE)
    }

    /// Runs one run of each kind, as soon as the fleet knows the worker's types.
    ///
    /// # Errors
    /// When it does not get to know them, or a run fails.
    pub async fn warm_up(&self) -> anyhow::Result<()> {
        let first = || async { self.client.start(&code::no_step, Self::options("first"), 1).await.is_ok() };
        probe::wait_until(&SystemClock::new(), "the fleet to know the worker's workflow types", WORKER_PATIENCE, first).await?;
        for workload in [Workload::A1, Workload::W1, Workload::W2, Workload::W4] {
            let done = tokio::time::timeout(WORKER_PATIENCE, self.one(workload)).await;
            done.with_context(|| format!("the first run of {} does not end", workload.name()))??;
        }
        Ok(())
    }

    /// One unit of a workload, with its result checked.
    ///
    /// # Errors
    /// When a call fails or the result is not what it must be.
    pub async fn one(&self, workload: Workload) -> anyhow::Result<()> {
        let number = self.number();
        let options = Self::options(format!("{}-{number}", workload.name()));
        match workload {
            Workload::A1 => expect(&self.client.start(&code::one_activity, options, number).await?, number + 1).await,
            Workload::W1 => expect(&self.client.start(&code::no_step, options, number).await?, number).await,
            Workload::W2 => expect(&self.client.start(&code::three_activities, options, number).await?, number + 3).await,
            Workload::W4 => {
                let handle = self.client.start(&code::signals, options, 1).await?;
                handle.signal(SIGNAL, GREETING).await?;
                expect(&handle, GREETING).await
            }
            Workload::W3 | Workload::W5 | Workload::Signals16 | Workload::Idle | Workload::Takeover => bail!("{} is not one run", workload.name()),
            Workload::Handover | Workload::Backlog | Workload::Asleep | Workload::Storm | Workload::Soak => bail!("{} is not one run", workload.name()),
        }
    }
}

/// Waits for a run's result.
///
/// # Errors
/// When it fails or has another result.
pub async fn expect(handle: &WorkflowHandle<u64>, wanted: u64) -> anyhow::Result<()> {
    let result = handle.result().await.with_context(|| format!("run {}", handle.workflow_id()))?;
    if result != wanted {
        bail!("run {} returned {result} instead of {wanted}", handle.workflow_id());
    }
    Ok(())
}

/// Clients at work.
pub struct Clients {
    clock: Arc<SystemClock>,
    tasks: JoinSet<anyhow::Result<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Clients {
    /// Starts `count` clients. Each repeats what `work` makes until they are stopped or it answers false.
    pub fn start<F>(clock: Arc<SystemClock>, count: u32, work: impl Fn() -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<bool>> + Send + 'static,
    {
        let mut clients = Self { clock, tasks: JoinSet::new(), stop: Arc::default(), done: Arc::default() };
        for _ in 0..count {
            let (clock, work, stop, done) = (clients.clock.clone(), work.clone(), clients.stop.clone(), clients.done.clone());
            clients.tasks.spawn(async move {
                let mut samples = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let begun = clock.monotonic();
                    if !work().await? {
                        break;
                    }
                    let at = clock.monotonic();
                    samples.push(Sample { at, took_ms: milliseconds(begun, at)? });
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(samples)
            });
        }
        clients
    }

    /// Lets them work for so long.
    ///
    /// # Errors
    /// When a client fails.
    pub async fn work(&mut self, label: &str, span: Duration, progress: &Progress) -> anyhow::Result<()> {
        let begun = self.clock.monotonic();
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(begun);
            progress.running(label, elapsed, span, self.done.load(Ordering::Relaxed));
            let Some(left) = span.checked_sub(elapsed).filter(|left| !left.is_zero()) else { return Ok(()) };
            tokio::select! {
                () = self.clock.sleep(left.min(Duration::from_millis(250))) => {}
                Some(ended) = self.tasks.join_next() => {
                    ended??;
                    bail!("a client ended by itself");
                }
            }
        }
    }

    /// Asks them to stop and returns what they did.
    ///
    /// # Errors
    /// When a client fails.
    pub async fn stop(self) -> anyhow::Result<Vec<Sample>> {
        self.stop.store(true, Ordering::Relaxed);
        self.ended().await
    }

    /// Waits until all have ended and returns what they did.
    ///
    /// # Errors
    /// When a client fails.
    pub async fn ended(mut self) -> anyhow::Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            samples.extend(ended??);
        }
        Ok(samples)
    }
}

/// Measures a workload whose unit is one run.
///
/// # Errors
/// When a run fails or something cannot be measured.
pub async fn closed_loop(
    load: &Load,
    workload: Workload,
    concurrency: u32,
    span: Duration,
    probe: &mut Probe,
    idle: &Rates,
    progress: &Progress,
) -> anyhow::Result<Figures> {
    let label = format!("{} at {concurrency}", workload.name());
    let work = {
        let load = load.clone();
        move || {
            let load = load.clone();
            async move { load.one(workload).await.map(|()| true) }
        }
    };
    let mut clients = Clients::start(probe.clock(), concurrency, work);
    clients.work(&label, WARM_UP.min(span), progress).await?;
    let from = probe.moment().await?;
    clients.work(&label, span, progress).await?;
    let until = probe.moment().await?;
    let samples = clients.stop().await?;
    let times = within(&samples, from.at(), until.at());
    let usage = probe.usage(&from, &until).await?;
    Ok(Figures::of(workload.name(), concurrency, u64::try_from(times.len())?, times, &usage, idle))
}

/// The times of the samples that were done between two moments.
pub fn within(samples: &[Sample], from: Duration, until: Duration) -> Vec<f64> {
    samples.iter().filter(|sample| (from..until).contains(&sample.at)).map(|sample| sample.took_ms).collect()
}
