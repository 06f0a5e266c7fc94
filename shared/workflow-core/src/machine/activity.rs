//! Open activities. One that has ended is no longer here: the run remembers only that it existed.

use crate::event::ActivityScheduled;
use crate::machine::pause::Pause;
use crate::payload::{Failure, Payload};
use crate::record::Dispatch;
use harvest_ids::{Attempt, Epoch, Timestamp};

/// An activity that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    pub(crate) spec: Box<ActivityScheduled>,
    pub(crate) scheduled_at: Timestamp,
    pub(crate) heartbeat_details: Option<Payload>,
    pub(crate) last_failure: Option<Failure>,
    /// The delay before the current attempt, in milliseconds.
    pub(crate) last_delay: Option<u64>,
    /// For how many milliseconds it has stood still in pauses that are over.
    pub(crate) stood_still: u64,
    pub(crate) phase: ActivityPhase,
}

/// Where the current attempt of an activity is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivityPhase {
    /// It waits for a worker.
    Ready {
        /// Since when.
        since: Timestamp,
        /// Which attempt it is.
        attempt: Attempt,
        /// The dispatch that a worker gave back: it and older ones cannot run this attempt any more.
        given_back: Option<(Epoch, u64)>,
    },
    /// A worker has it.
    Running {
        /// When it became ready.
        since: Timestamp,
        /// Which attempt it is.
        attempt: Attempt,
        /// Who has it.
        dispatch: Dispatch,
        /// Since when.
        started_at: Timestamp,
        /// Its last sign of life that counts for the heartbeat timeout.
        heartbeat_at: Timestamp,
        /// Workflow code wants it to stop.
        cancel_requested: bool,
    },
    /// An attempt failed and the next is not due yet.
    Backoff {
        /// When the next attempt is due.
        until: Timestamp,
        /// Which attempt it will be.
        attempt: Attempt,
    },
}

/// What happens at an activity's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityDeadline {
    /// Nobody took its first attempt in time.
    ScheduleToStart,
    /// The running attempt took too long.
    StartToClose,
    /// The running attempt was silent for too long.
    Heartbeat,
    /// All attempts together took too long.
    ScheduleToClose,
    /// The back-off is over.
    RetryDue,
}

impl Activity {
    pub(crate) fn new(spec: &ActivityScheduled, at: Timestamp) -> Self {
        Self {
            spec: Box::new(spec.clone()),
            scheduled_at: at,
            heartbeat_details: None,
            last_failure: None,
            last_delay: None,
            stood_still: 0,
            phase: ActivityPhase::Ready { since: at, attempt: Attempt::FIRST, given_back: None },
        }
    }

    /// What it was scheduled with, its input included.
    pub fn spec(&self) -> &ActivityScheduled {
        &self.spec
    }

    /// When it was scheduled.
    pub fn scheduled_at(&self) -> Timestamp {
        self.scheduled_at
    }

    /// Where its current attempt is.
    pub fn phase(&self) -> &ActivityPhase {
        &self.phase
    }

    /// The attempt that is waiting, running or next.
    pub fn attempt(&self) -> Attempt {
        match self.phase {
            ActivityPhase::Ready { attempt, .. } | ActivityPhase::Running { attempt, .. } | ActivityPhase::Backoff { attempt, .. } => attempt,
        }
    }

    /// Whether workflow code wants the running attempt to stop.
    pub fn is_cancel_requested(&self) -> bool {
        match self.phase {
            ActivityPhase::Running { cancel_requested, .. } => cancel_requested,
            ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => false,
        }
    }

    /// The last details that an attempt reported; they survive a retry.
    pub fn heartbeat_details(&self) -> Option<&Payload> {
        self.heartbeat_details.as_ref()
    }

    /// How the previous attempt failed.
    pub fn last_failure(&self) -> Option<&Failure> {
        self.last_failure.as_ref()
    }

    /// When its time is up, whatever its attempts do; put off by the pauses that are over.
    pub fn closes_at(&self) -> Option<Timestamp> {
        self.spec.schedule_to_close.map(|span| self.scheduled_at.plus(span).plus_millis(self.stood_still))
    }

    /// Whether its current attempt waits for a worker or is with one.
    pub fn has_task(&self) -> bool {
        match self.phase {
            ActivityPhase::Ready { .. } | ActivityPhase::Running { .. } => true,
            ActivityPhase::Backoff { .. } => false,
        }
    }

    /// Its next deadline and what happens then. At the same instant the end of the activity comes before anything of its attempt.
    pub fn deadline(&self) -> Option<(Timestamp, ActivityDeadline)> {
        let of_attempt = self.attempt_deadline();
        match self.closes_at() {
            Some(at) if of_attempt.is_none_or(|(attempt_at, _)| at <= attempt_at) => Some((at, ActivityDeadline::ScheduleToClose)),
            _ => of_attempt,
        }
    }

    /// Whether a worker has its attempt.
    pub(crate) fn is_running(&self) -> bool {
        match self.phase {
            ActivityPhase::Running { .. } => true,
            ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => false,
        }
    }

    pub(crate) fn attempt_deadline(&self) -> Option<(Timestamp, ActivityDeadline)> {
        match &self.phase {
            ActivityPhase::Ready { since, attempt, .. } => {
                let span = self.spec.schedule_to_start.filter(|_| *attempt == Attempt::FIRST)?;
                Some((since.plus(span), ActivityDeadline::ScheduleToStart))
            }
            ActivityPhase::Running { started_at, heartbeat_at, .. } => {
                let close = self.spec.start_to_close.map(|span| (started_at.plus(span), ActivityDeadline::StartToClose));
                let beat = self.spec.heartbeat_timeout.map(|span| (heartbeat_at.plus(span), ActivityDeadline::Heartbeat));
                match (close, beat) {
                    (Some(close), Some(beat)) => Some(if beat.0 < close.0 { beat } else { close }),
                    (close, beat) => close.or(beat),
                }
            }
            ActivityPhase::Backoff { until, .. } => Some((*until, ActivityDeadline::RetryDue)),
        }
    }

    /// A pause is over: what counted its budget or its wait stood still meanwhile.
    pub(crate) fn put_off(&mut self, pause: &Pause, now: Timestamp) {
        self.stood_still = self.stood_still.saturating_add(pause.stood_still(self.scheduled_at, now));
        if let ActivityPhase::Ready { since, .. } = &mut self.phase {
            *since = since.plus_millis(pause.stood_still(*since, now));
        }
    }

    pub(crate) fn attempt_started(&mut self, at: Timestamp, attempt: Attempt, dispatch: &Dispatch) {
        let since = match self.phase {
            ActivityPhase::Ready { since, .. } | ActivityPhase::Running { since, .. } => since,
            ActivityPhase::Backoff { until, .. } => until,
        };
        self.phase = ActivityPhase::Running { since, attempt, dispatch: dispatch.clone(), started_at: at, heartbeat_at: at, cancel_requested: false };
    }

    pub(crate) fn attempt_failed(&mut self, at: Timestamp, attempt: Attempt, failure: &Failure, retry_at: Timestamp) {
        self.last_failure = Some(failure.clone());
        self.last_delay = u64::try_from(retry_at.as_millis().saturating_sub(at.as_millis())).ok();
        let attempt = attempt.next();
        self.phase =
            if retry_at <= at { ActivityPhase::Ready { since: at, attempt, given_back: None } } else { ActivityPhase::Backoff { until: retry_at, attempt } };
    }

    pub(crate) fn attempt_released(&mut self, at: Timestamp, attempt: Attempt) {
        let given_back = match &self.phase {
            ActivityPhase::Running { dispatch, .. } => Some((dispatch.epoch, dispatch.sequence)),
            ActivityPhase::Ready { given_back, .. } => *given_back,
            ActivityPhase::Backoff { .. } => None,
        };
        self.phase = ActivityPhase::Ready { since: at, attempt, given_back };
    }

    pub(crate) fn retry_due(&mut self, at: Timestamp, attempt: Attempt) {
        self.phase = ActivityPhase::Ready { since: at, attempt, given_back: None };
    }

    pub(crate) fn heartbeat(&mut self, at: Timestamp, details: Option<&Payload>) {
        if let Some(details) = details {
            self.heartbeat_details = Some(details.clone());
        }
        match &mut self.phase {
            ActivityPhase::Running { heartbeat_at, .. } => *heartbeat_at = at,
            ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => {}
        }
    }

    /// Only a running attempt can be asked to stop; a waiting one is cancelled by its own event in the same decision.
    pub(crate) fn request_cancel(&mut self) {
        match &mut self.phase {
            ActivityPhase::Running { cancel_requested, .. } => *cancel_requested = true,
            ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => {}
        }
    }
}
