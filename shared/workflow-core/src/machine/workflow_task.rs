//! The workflow task: a run has at most one, and it is pending whenever there is news that no decision has seen.

use crate::projection::Block;
use crate::record::{Dispatch, WorkflowTaskFailure};
use harvest_ids::{Attempt, DurationMs, EventId, Timestamp};

/// Where the workflow task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowTask {
    /// Nothing to decide.
    None,
    /// It waits for a worker.
    Ready {
        /// Since when.
        since: Timestamp,
        /// Which try it will be.
        attempt: Attempt,
    },
    /// A worker has it.
    Started {
        /// When it became ready.
        since: Timestamp,
        /// Which try it is.
        attempt: Attempt,
        /// Who has it.
        dispatch: Dispatch,
        /// Since when, or since it was last heard of.
        at: Timestamp,
        /// The last event that the worker was given.
        seen: EventId,
    },
    /// A try failed and the next is not due yet.
    Backoff {
        /// When the next try is due.
        until: Timestamp,
        /// Which try it will be.
        attempt: Attempt,
    },
}

impl WorkflowTask {
    /// When the task needs attention by itself: the timeout of a started one, the end of a back-off.
    pub fn deadline(&self, timeout: DurationMs) -> Option<Timestamp> {
        match self {
            Self::None | Self::Ready { .. } => None,
            Self::Started { at, .. } => Some(at.plus(timeout)),
            Self::Backoff { until, .. } => Some(*until),
        }
    }
}

/// The workflow task with what is remembered between decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deciding {
    /// The task itself.
    pub(crate) task: WorkflowTask,
    /// The last event that workflow code has to be woken for.
    pub(crate) last_news: EventId,
    /// What the last decision had seen; 0 before the first.
    pub(crate) decided_to: EventId,
    /// Failed tries since the last decision, those for unseen news not counted.
    pub(crate) failures: u32,
    /// Panics in a row.
    pub(crate) panics: u32,
    /// Closing decisions in a row that were sent back for unseen news.
    pub(crate) unseen_news: u32,
    /// Why the run is blocked, if it is.
    pub(crate) block: Option<Block>,
    /// A pause has put the run's deadlines off since the last decision.
    pub(crate) put_off: bool,
}

impl Default for Deciding {
    fn default() -> Self {
        Self { task: WorkflowTask::None, last_news: EventId(0), decided_to: EventId(0), failures: 0, panics: 0, unseen_news: 0, block: None, put_off: false }
    }
}

impl Deciding {
    pub(crate) fn news(&mut self, event: EventId, at: Timestamp) {
        self.last_news = self.last_news.max(event);
        match self.task {
            WorkflowTask::None => self.task = WorkflowTask::Ready { since: at, attempt: Attempt::FIRST },
            WorkflowTask::Ready { .. } | WorkflowTask::Started { .. } | WorkflowTask::Backoff { .. } => {}
        }
    }

    pub(crate) fn started(&mut self, at: Timestamp, attempt: Attempt, dispatch: &Dispatch, seen: EventId) {
        let since = match self.task {
            WorkflowTask::Ready { since, .. } => since,
            WorkflowTask::None | WorkflowTask::Started { .. } | WorkflowTask::Backoff { .. } => at,
        };
        self.task = WorkflowTask::Started { since, attempt, dispatch: dispatch.clone(), at, seen };
    }

    pub(crate) fn extended(&mut self, now: Timestamp) {
        if let WorkflowTask::Started { at, .. } = &mut self.task {
            *at = now;
        }
    }

    pub(crate) fn completed(&mut self, seen: EventId, at: Timestamp) {
        let last_news = self.last_news;
        *self = Self { last_news, decided_to: seen, ..Self::default() };
        if last_news > seen {
            self.task = WorkflowTask::Ready { since: at, attempt: Attempt::FIRST };
        }
    }

    pub(crate) fn failed(&mut self, at: Timestamp, attempt: Attempt, cause: &WorkflowTaskFailure, retry_at: Timestamp) {
        let attempt = attempt.next();
        self.task = if retry_at <= at { WorkflowTask::Ready { since: at, attempt } } else { WorkflowTask::Backoff { until: retry_at, attempt } };
        match cause {
            WorkflowTaskFailure::UnseenNews => {
                self.unseen_news = self.unseen_news.saturating_add(1);
                return;
            }
            WorkflowTaskFailure::Panicked { .. } => self.panics = self.panics.saturating_add(1),
            WorkflowTaskFailure::TimedOut | WorkflowTaskFailure::WorkerError { .. } => self.panics = 0,
            WorkflowTaskFailure::NonDeterminism { message, expected, actual, event_id } => {
                self.panics = 0;
                let (since, count) = self.block.as_ref().map_or((at, 0), |block| (block.since, block.count));
                self.block = Some(Block {
                    since,
                    count: count.saturating_add(1),
                    expected: expected.clone(),
                    actual: actual.clone(),
                    message: message.clone(),
                    event_id: *event_id,
                });
            }
        }
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn retry_due(&mut self, at: Timestamp, attempt: Attempt) {
        self.task = WorkflowTask::Ready { since: at, attempt };
    }
}
