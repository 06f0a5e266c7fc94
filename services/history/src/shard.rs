//! One owned shard: a task (an actor) that decides, commits and dispatches.
//!
//! The loop takes operations, loads the runs they are for, lets the pure core decide in memory and adds what it decided to the open
//! batch. While one batch is with the store the next fills, so one commit serves all decisions that arrived meanwhile, and a lone
//! decision waits for nobody. No answer leaves before the batch that it rides has committed; answers that changed nothing wait for a
//! look at the epoch instead. Read `actor` for the loop, `decide` for what an operation does, `commit` for what happens when a
//! batch comes back.

pub mod actor;
mod admission;
mod announce;
mod batch;
mod cache;
mod commit;
mod decide;
mod eager;
mod eager_start;
mod facts;
mod liveness;
mod loading;
pub mod memory;
pub mod neighbours;
pub mod operation;
mod outage;
mod outbox;
mod pace;
mod queries;
mod ready;
mod run;
mod tasks;
#[cfg(test)]
mod tests;
mod tuning;

use admission::{Gate, Group, Permit, operation_bytes};
pub(crate) use decide::refusal_of;
use harvest_ids::ShardId;
use operation::{Answer, Operation, Refusal, Responder};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// The way into a running shard.
#[derive(Debug, Clone)]
pub struct ShardHandle {
    /// Which shard.
    pub shard_id: ShardId,
    operations: mpsc::Sender<Envelope>,
    /// What has been let in and not answered.
    inbox: Arc<Gate>,
    /// True once the shard has stopped, whatever the reason.
    stopped: watch::Receiver<bool>,
}

/// An operation with the place for its answer.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) operation: Operation,
    pub(crate) responder: Responder,
    /// Its place among those that wait; none for what the shard tells itself.
    pub(crate) permit: Option<Permit>,
}

/// The name of the bound of operations that a shard has taken in and not answered.
pub(crate) const INBOX_OPERATIONS: &str = "shard.inbox_operations";

/// Counts what was refused because a bound was reached.
pub(crate) fn count_refused(refusal: &Refusal) {
    if let Refusal::Overloaded { limit } = refusal {
        harvest_runtime::metrics::OVERLOADED.add(1, [limit]);
    }
}

impl ShardHandle {
    /// Gives the shard an operation and waits for its answer, which is durable when it comes.
    ///
    /// # Errors
    /// [`Refusal`]: what the run or the shard says instead. [`Refusal::Overloaded`] at once when too much waits for the shard, or too much of one run.
    pub async fn call(&self, operation: Operation) -> Result<Answer, Refusal> {
        let answer = self.submit(operation)?;
        answer.await.unwrap_or(Err(Refusal::NotOwner))
    }

    /// Gives the shard an operation; the answer comes later.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when too much waits for the shard, or too much of one run; [`Refusal::NotOwner`] when the shard has stopped.
    pub fn submit(&self, operation: Operation) -> Result<oneshot::Receiver<Result<Answer, Refusal>>, Refusal> {
        let permit = Some(self.inbox.admit(Group::of(&operation), operation_bytes(&operation)).inspect_err(count_refused)?);
        let (responder, answer) = oneshot::channel();
        match self.operations.try_send(Envelope { operation, responder, permit }) {
            Ok(()) => Ok(answer),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Refusal::Overloaded { limit: INBOX_OPERATIONS }).inspect_err(count_refused),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Refusal::NotOwner),
        }
    }

    /// Waits until the shard has stopped.
    pub async fn stopped(&mut self) {
        if self.stopped.wait_for(|stopped| *stopped).await.is_err() {
            // The sender is gone without a word: the actor ended by a panic. Stopped all the same.
        }
    }

    /// Whether the shard has stopped.
    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow() || self.operations.is_closed()
    }
}
