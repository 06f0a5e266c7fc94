//! The oracle's book of the workflow task.

use super::{Verdict, rule};
use crate::record::{Dispatch, WorkflowTaskFailure};
use harvest_ids::{Attempt, DurationMs, EventId, Timestamp, WorkerId};

/// The task that a worker has.
struct Running {
    worker: WorkerId,
    seen: EventId,
    since: Timestamp,
}

/// What the log says about workflow tasks.
#[derive(Default)]
pub(super) struct WorkflowTasks {
    running: Option<Running>,
    /// The attempt that comes next, less one.
    tried: u32,
    back_off: Option<Timestamp>,
    last_news: EventId,
    decided_to: EventId,
    sent_back: u32,
    sent_back_before_decision: u32,
}

impl WorkflowTasks {
    pub(super) fn news(&mut self, event: EventId) {
        self.last_news = event;
    }

    pub(super) fn started(&mut self, at: Timestamp, attempt: Attempt, dispatch: &Dispatch, last_event: EventId) -> Verdict {
        rule(self.running.is_none(), || "a workflow task was started while another was with a worker".to_owned())?;
        rule(self.back_off.is_none(), || "a workflow task was started during its back-off".to_owned())?;
        rule(self.last_news > self.decided_to, || "a workflow task was started without news".to_owned())?;
        rule(attempt.0 == self.tried + 1, || format!("attempt {attempt} of the workflow task follows attempt {}", self.tried))?;
        self.running = Some(Running { worker: dispatch.worker_id.clone(), seen: last_event, since: at });
        Ok(())
    }

    pub(super) fn failed(&mut self, at: Timestamp, attempt: Attempt, cause: &WorkflowTaskFailure, retry_at: Timestamp) -> Verdict {
        rule(self.running.take().is_some(), || "a workflow task failed that no worker had".to_owned())?;
        rule(attempt.0 == self.tried + 1, || format!("attempt {attempt} failed, but {} is current", self.tried + 1))?;
        rule(retry_at >= at, || "a retry is due before its failure".to_owned())?;
        self.tried += 1;
        self.back_off = (retry_at > at).then_some(retry_at);
        match cause {
            WorkflowTaskFailure::UnseenNews => self.sent_back += 1,
            WorkflowTaskFailure::TimedOut
            | WorkflowTaskFailure::NonDeterminism { .. }
            | WorkflowTaskFailure::Panicked { .. }
            | WorkflowTaskFailure::WorkerError { .. } => {}
        }
        Ok(())
    }

    pub(super) fn extended(&mut self, at: Timestamp) -> Verdict {
        self.running.as_mut().ok_or("a workflow task was extended that no worker had")?.since = at;
        Ok(())
    }

    pub(super) fn retry_due(&mut self, at: Timestamp, attempt: Attempt) -> Verdict {
        let until = self.back_off.take().ok_or("a back-off ended that never began")?;
        rule(at >= until, || format!("the back-off of the workflow task ended at {at}, not at {until}"))?;
        rule(attempt.0 == self.tried + 1, || format!("attempt {attempt} became ready after attempt {}", self.tried))
    }

    pub(super) fn completed(&mut self, worker: &WorkerId, seen: EventId) -> Verdict {
        let running = self.running.take().ok_or("a decision answers a workflow task that no worker had")?;
        rule(running.worker == *worker, || format!("worker {worker} decided, but {} had the task", running.worker))?;
        rule(running.seen == seen, || format!("the decision says it had seen {seen}; the task was given {}", running.seen))?;
        self.sent_back_before_decision = std::mem::take(&mut self.sent_back);
        self.tried = 0;
        self.decided_to = seen;
        Ok(())
    }

    pub(super) fn decided_to(&self) -> EventId {
        self.decided_to
    }

    /// How often the decision that is being read was sent back for unseen news.
    pub(super) fn sent_back_before_decision(&self) -> u32 {
        self.sent_back_before_decision
    }

    /// Whether a task must be ready (`Some(false)`) or is with a worker (`Some(true)`).
    pub(super) fn pending(&self) -> Option<bool> {
        if self.running.is_some() {
            return Some(true);
        }
        (self.back_off.is_none() && self.last_news > self.decided_to).then_some(false)
    }

    pub(super) fn due(&self, timeout: DurationMs) -> Option<Timestamp> {
        self.running.as_ref().map(|running| running.since.plus(timeout)).or(self.back_off)
    }
}
