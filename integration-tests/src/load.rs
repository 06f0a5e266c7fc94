//! A load of purchases and the check that each came out right.

use crate::eventually::eventually;
use crate::observer::Call;
use crate::samples::{self, APPROVE, Purchase, receipt};
use crate::world::{World, last_events};
use anyhow::Context as _;
use futures::stream::{self, StreamExt, TryStreamExt};
use harvest_sdk::StartOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A number of purchases under one prefix.
#[derive(Debug, Clone)]
pub struct Load {
    /// First part of the business keys.
    pub prefix: String,
    /// How many.
    pub count: usize,
    /// How many at once.
    pub at_once: usize,
    /// The durable timer in each, in ms.
    pub pause_ms: u64,
    /// The longest that one may take, faults included.
    pub longest: Duration,
    /// How many have ended so far.
    pub ended: Arc<AtomicUsize>,
}

/// What a load came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Runs that ended as they must.
    pub correct: usize,
    /// Steps that the observer saw more than once: allowed, an activity runs at least once.
    pub repeated: usize,
}

impl Load {
    /// This many purchases, 16 at once, each with a timer of 50 ms.
    pub fn new(prefix: &str, count: usize) -> Self {
        Self { prefix: prefix.to_owned(), count, at_once: 16, pause_ms: 50, longest: Duration::from_secs(90), ended: Arc::default() }
    }

    fn item(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    /// Carries all of them out and checks results and side effects.
    ///
    /// # Errors
    /// The first purchase that does not end as it must, or a step that was done under two keys, or never.
    pub async fn run(&self, world: &Arc<World>) -> anyhow::Result<Outcome> {
        let each = stream::iter(0..self.count).map(|number| {
            let (item, world) = (self.item(number), world.clone());
            async move {
                let carried = tokio::time::timeout(self.longest, self.carry_out(&world, &item)).await;
                match carried {
                    Ok(result) => result.with_context(|| format!("purchase {item}")),
                    Err(_) => Err(anyhow::anyhow!(
                        "purchase {item} has not ended within {:?}: {}",
                        self.longest,
                        last_events(&world.client().handle::<samples::purchase>(&samples::purchase, &item)).await
                    )),
                }
            }
        });
        each.buffer_unordered(self.at_once).try_collect::<Vec<()>>().await?;
        let calls = world.observer().calls(world.namespace());
        let mut repeated = 0;
        for number in 0..self.count {
            repeated += check_steps(&calls, &self.item(number))?;
        }
        Ok(Outcome { correct: self.count, repeated })
    }

    async fn carry_out(&self, world: &World, item: &str) -> anyhow::Result<()> {
        let input = Purchase { item: item.to_owned(), pause_ms: self.pause_ms };
        let options = StartOptions::new(item).request_id(format!("start-{item}"));
        // An outage may be as long as a client's patience: both calls count once, however often they are made.
        let handle = eventually("the start is taken", self.longest, || async {
            let started = world.start_within(self.longest, &samples::purchase, options.clone(), input.clone()).await;
            Ok(Some(started.context("start")?))
        });
        let handle = handle.await?;
        let signalled = eventually("the signal is taken", self.longest, || async {
            handle.signal_once(APPROVE, format!("approved {item}"), &format!("approve-{item}")).await.context("signal")?;
            Ok(Some(()))
        });
        signalled.await?;
        let result = handle.result().await.context("result")?;
        anyhow::ensure!(result == receipt(item), "the result is {result:?}");
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Every step was seen, all its tries under one key; says how many tries were repetitions.
fn check_steps(calls: &[Call], item: &str) -> anyhow::Result<usize> {
    let mut seen: BTreeMap<String, Vec<&str>> = ["reserve", "pack", "ship"].map(|step| (format!("{step} {item}"), Vec::new())).into();
    for call in calls {
        if let Some(keys) = call.payload.as_str().and_then(|payload| seen.get_mut(payload)) {
            keys.push(&call.idempotency_key);
        }
    }
    let mut repeated = 0;
    for (step, keys) in &seen {
        let distinct: BTreeSet<_> = keys.iter().collect();
        anyhow::ensure!(distinct.len() == 1, "{step} was done under {} keys: {keys:?}", distinct.len());
        repeated += keys.len() - 1;
    }
    Ok(repeated)
}
