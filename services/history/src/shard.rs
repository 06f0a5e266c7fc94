//! One owned shard: a task (an actor) that decides, commits and dispatches.
//!
//! The loop takes operations, loads the runs they are for, lets the pure core decide in memory and adds what it decided to the open
//! batch. While one batch is with the store the next fills, so one commit serves all decisions that arrived meanwhile, and a lone
//! decision waits for nobody. No answer leaves before the batch that it rides has committed; answers that changed nothing wait for a
//! look at the epoch instead. Read `actor` for the loop, `decide` for what an operation does, `commit` for what happens when a
//! batch comes back.

pub mod actor;
mod announce;
mod batch;
mod cache;
mod commit;
mod decide;
mod facts;
mod liveness;
pub mod neighbours;
pub mod operation;
mod outage;
mod outbox;
mod queries;
mod ready;
mod run;
mod tasks;
#[cfg(test)]
mod tests;

pub(crate) use decide::refusal_of;
use harvest_ids::ShardId;
use operation::{Answer, Operation, Refusal, Responder};
use tokio::sync::{mpsc, oneshot, watch};

/// The way into a running shard.
#[derive(Debug, Clone)]
pub struct ShardHandle {
    /// Which shard.
    pub shard_id: ShardId,
    operations: mpsc::Sender<Envelope>,
    /// True once the shard has stopped, whatever the reason.
    stopped: watch::Receiver<bool>,
}

/// An operation with the place for its answer.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) operation: Operation,
    pub(crate) responder: Responder,
}

impl ShardHandle {
    /// Gives the shard an operation and waits for its answer, which is durable when it comes.
    ///
    /// # Errors
    /// [`Refusal`]: what the run or the shard says instead. [`Refusal::Overloaded`] at once when the shard's inbox is full.
    pub async fn call(&self, operation: Operation) -> Result<Answer, Refusal> {
        let answer = self.submit(operation)?;
        answer.await.unwrap_or(Err(Refusal::NotOwner))
    }

    /// Gives the shard an operation; the answer comes later.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when the shard's inbox is full, [`Refusal::NotOwner`] when the shard has stopped.
    pub fn submit(&self, operation: Operation) -> Result<oneshot::Receiver<Result<Answer, Refusal>>, Refusal> {
        let (responder, answer) = oneshot::channel();
        match self.operations.try_send(Envelope { operation, responder }) {
            Ok(()) => Ok(answer),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Refusal::Overloaded { limit: "shard_inbox_operations" }),
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
