//! The oracle's book of activities.

use super::{Verdict, rule};
use crate::event::{ActivityScheduled, ActivityTimeout};
use crate::payload::Failure;
use crate::projection::TaskKey;
use harvest_ids::{ActivityId, Attempt, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Where one activity is.
enum Place {
    Waiting { since: Timestamp },
    Running { since: Timestamp, beat: Timestamp },
    BackOff { until: Timestamp },
    Ended,
}

struct Entry {
    spec: ActivityScheduled,
    scheduled: Timestamp,
    /// Attempts that are over.
    tried: u32,
    place: Place,
    /// Milliseconds of pauses since it was scheduled.
    stood_still: u64,
    cancel_requested: bool,
}

impl Entry {
    fn closes_at(&self) -> Option<Timestamp> {
        self.spec.schedule_to_close.map(|span| self.scheduled.plus(span).plus_millis(self.stood_still))
    }
}

fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX)
}

/// Activities by the event that scheduled them.
#[derive(Default)]
pub(super) struct Activities {
    all: BTreeMap<ActivityId, Entry>,
    /// Waiting ones that were asked to cancel: they end in the same decision.
    must_cancel: BTreeSet<ActivityId>,
}

impl Activities {
    fn get(&mut self, id: ActivityId) -> Result<&mut Entry, String> {
        self.all.get_mut(&id).ok_or_else(|| format!("event {id} scheduled no activity"))
    }

    /// The entry of an activity whose attempt `attempt` is running.
    fn running(&mut self, id: ActivityId, attempt: Attempt) -> Result<&mut Entry, String> {
        let entry = self.get(id)?;
        rule(matches!(entry.place, Place::Running { .. }), || format!("activity {id} is not running"))?;
        rule(attempt.0 == entry.tried + 1, || format!("attempt {attempt} of activity {id} is not current; {} is", entry.tried + 1))?;
        Ok(entry)
    }

    pub(super) fn decision_is_over(&self) -> Verdict {
        match self.must_cancel.first() {
            None => Ok(()),
            Some(id) => Err(format!("activity {id} was asked to cancel while it waited, and did not end in that decision")),
        }
    }

    pub(super) fn scheduled(&mut self, id: ActivityId, spec: &ActivityScheduled, at: Timestamp) -> Verdict {
        self.all
            .insert(id, Entry { spec: spec.clone(), scheduled: at, tried: 0, place: Place::Waiting { since: at }, stood_still: 0, cancel_requested: false });
        Ok(())
    }

    pub(super) fn cancel_requested(&mut self, id: ActivityId) -> Verdict {
        let entry = self.get(id)?;
        match entry.place {
            Place::Ended => return Ok(()),
            Place::Running { .. } => entry.cancel_requested = true,
            Place::Waiting { .. } | Place::BackOff { .. } => {
                entry.cancel_requested = true;
                self.must_cancel.insert(id);
            }
        }
        Ok(())
    }

    pub(super) fn started(&mut self, id: ActivityId, attempt: Attempt, at: Timestamp) -> Verdict {
        let entry = self.get(id)?;
        rule(matches!(entry.place, Place::Waiting { .. }), || format!("activity {id} was started though no attempt of it waited"))?;
        rule(attempt.0 == entry.tried + 1, || format!("attempt {attempt} of activity {id} was started after attempt {}", entry.tried))?;
        rule(attempt.0 <= entry.spec.retry.max_attempts, || format!("attempt {attempt} of activity {id} is beyond its policy"))?;
        entry.place = Place::Running { since: at, beat: at };
        Ok(())
    }

    pub(super) fn attempt_failed(
        &mut self,
        id: ActivityId,
        attempt: Attempt,
        failure: &Failure,
        at: Timestamp,
        retry_at: Timestamp,
        paused: Option<Timestamp>,
    ) -> Verdict {
        let entry = self.running(id, attempt)?;
        // Its budget stands still while the run does.
        let still = paused.map_or(0, |since| millis_between(since.max(entry.scheduled), at));
        let closes_at = entry.closes_at().map(|close| close.plus_millis(still));
        let policy = &entry.spec.retry;
        rule(attempt.0 < policy.max_attempts, || format!("attempt {attempt} of activity {id} was its last and will be retried"))?;
        rule(!entry.cancel_requested, || format!("activity {id} is retried though it was asked to cancel"))?;
        let listed = failure.error_type != "Error" && policy.non_retryable_errors.contains(&failure.error_type);
        rule(!failure.non_retryable && !listed, || format!("activity {id} is retried after {}, which is final", failure.error_type))?;
        rule(retry_at >= at, || "a retry is due before its failure".to_owned())?;
        rule(closes_at.is_none_or(|close| retry_at < close), || format!("activity {id} is retried when its time is up"))?;
        entry.tried += 1;
        entry.place = if retry_at > at { Place::BackOff { until: retry_at } } else { Place::Waiting { since: at } };
        Ok(())
    }

    pub(super) fn released(&mut self, id: ActivityId, attempt: Attempt, at: Timestamp) -> Verdict {
        let entry = self.running(id, attempt)?;
        rule(!entry.cancel_requested, || format!("activity {id} waits again though it was asked to cancel"))?;
        entry.place = Place::Waiting { since: at };
        Ok(())
    }

    pub(super) fn retry_due(&mut self, id: ActivityId, attempt: Attempt, at: Timestamp) -> Verdict {
        let entry = self.get(id)?;
        let Place::BackOff { until } = entry.place else { return Err(format!("activity {id} has no back-off to end")) };
        rule(at >= until, || format!("the back-off of activity {id} ended at {at}, not at {until}"))?;
        rule(attempt.0 == entry.tried + 1, || format!("attempt {attempt} of activity {id} became ready after attempt {}", entry.tried))?;
        entry.place = Place::Waiting { since: at };
        Ok(())
    }

    pub(super) fn heartbeat(&mut self, id: ActivityId, attempt: Attempt, at: Timestamp) -> Verdict {
        let entry = self.running(id, attempt)?;
        if let Place::Running { beat, .. } = &mut entry.place {
            *beat = at;
        }
        Ok(())
    }

    pub(super) fn completed(&mut self, id: ActivityId) -> Verdict {
        let entry = self.get(id)?;
        rule(matches!(entry.place, Place::Running { .. }), || format!("activity {id} has a result though it was not running"))?;
        entry.place = Place::Ended;
        Ok(())
    }

    pub(super) fn failed(&mut self, id: ActivityId, attempt: Attempt, failure: &Failure) -> Verdict {
        let entry = self.running(id, attempt)?;
        let policy = &entry.spec.retry;
        let listed = failure.error_type != "Error" && policy.non_retryable_errors.contains(&failure.error_type);
        let last = attempt.0 >= policy.max_attempts || failure.non_retryable || listed;
        rule(last, || format!("activity {id} failed for good though attempt {attempt} was not its last"))?;
        rule(!entry.cancel_requested, || format!("activity {id} failed though it was asked to cancel: it is cancelled then"))?;
        entry.place = Place::Ended;
        Ok(())
    }

    pub(super) fn timed_out(&mut self, id: ActivityId, attempt: Attempt, timeout: ActivityTimeout, at: Timestamp, paused: bool) -> Verdict {
        let entry = self.get(id)?;
        rule(attempt.0 == entry.tried + 1, || format!("attempt {attempt} of activity {id} is not current"))?;
        let spec = &entry.spec;
        // A running attempt's failure ends the activity early when its next attempt would begin too late.
        let skips_retry = timeout == ActivityTimeout::ScheduleToClose && matches!(entry.place, Place::Running { .. }) && attempt.0 < spec.retry.max_attempts;
        let deadline = match (&entry.place, timeout) {
            (Place::Running { .. }, ActivityTimeout::ScheduleToClose) if skips_retry => entry.closes_at().map(|_| at),
            (_, ActivityTimeout::ScheduleToClose | ActivityTimeout::ScheduleToStart) if paused => None,
            (Place::Waiting { .. } | Place::Running { .. } | Place::BackOff { .. }, ActivityTimeout::ScheduleToClose) => entry.closes_at(),
            (Place::Waiting { since }, ActivityTimeout::ScheduleToStart) if attempt == Attempt::FIRST => spec.schedule_to_start.map(|span| since.plus(span)),
            (Place::Running { since, .. }, ActivityTimeout::StartToClose) => spec.start_to_close.map(|span| since.plus(span)),
            (Place::Running { beat, .. }, ActivityTimeout::Heartbeat) => spec.heartbeat_timeout.map(|span| beat.plus(span)),
            _ => None,
        };
        rule(deadline.is_some_and(|deadline| at >= deadline), || format!("activity {id} timed out ({timeout:?}) before or without that limit"))?;
        let last = matches!(timeout, ActivityTimeout::ScheduleToStart | ActivityTimeout::ScheduleToClose)
            || attempt.0 >= spec.retry.max_attempts
            || spec.retry.non_retryable_errors.contains(&format!("{timeout:?}"));
        rule(last, || format!("activity {id} timed out for good though attempt {attempt} was not its last"))?;
        entry.place = Place::Ended;
        Ok(())
    }

    pub(super) fn cancelled(&mut self, id: ActivityId) -> Verdict {
        self.must_cancel.remove(&id);
        let entry = self.get(id)?;
        rule(!matches!(entry.place, Place::Ended), || format!("activity {id} was cancelled after its end"))?;
        rule(entry.cancel_requested, || format!("activity {id} was cancelled though nobody had asked for it"))?;
        entry.place = Place::Ended;
        Ok(())
    }

    pub(super) fn tasks(&self) -> BTreeMap<TaskKey, bool> {
        let task = |(id, entry): (&ActivityId, &Entry)| match entry.place {
            Place::Waiting { .. } => Some((TaskKey::Activity(*id), false)),
            Place::Running { .. } => Some((TaskKey::Activity(*id), true)),
            Place::BackOff { .. } | Place::Ended => None,
        };
        self.all.iter().filter_map(task).collect()
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        let due = |entry: &Entry| match entry.place {
            Place::Waiting { since } => entry.spec.schedule_to_start.filter(|_| entry.tried == 0).map(|span| since.plus(span)),
            Place::Running { since, beat } => {
                let close = entry.spec.start_to_close.map(|span| since.plus(span));
                let silent = entry.spec.heartbeat_timeout.map(|span| beat.plus(span));
                close.into_iter().chain(silent).min()
            }
            Place::BackOff { until } => Some(until),
            Place::Ended => None,
        };
        let open = |entry: &&Entry| !matches!(entry.place, Place::Ended);
        let closes = self.all.values().filter(open).filter_map(Entry::closes_at);
        self.all.values().filter_map(due).chain(closes).min()
    }

    /// The earliest deadline of attempts that workers have.
    pub(super) fn due_with_workers(&self) -> Option<Timestamp> {
        let due = |entry: &Entry| match entry.place {
            Place::Running { since, beat } => {
                let close = entry.spec.start_to_close.map(|span| since.plus(span));
                close.into_iter().chain(entry.spec.heartbeat_timeout.map(|span| beat.plus(span))).min()
            }
            Place::Waiting { .. } | Place::BackOff { .. } | Place::Ended => None,
        };
        self.all.values().filter_map(due).min()
    }

    /// A pause is over: waits and budgets are put off by what they have stood still.
    pub(super) fn resumed(&mut self, paused: Timestamp, at: Timestamp) {
        for entry in self.all.values_mut() {
            entry.stood_still += millis_between(paused.max(entry.scheduled), at);
            if let Place::Waiting { since } = &mut entry.place {
                *since = since.plus_millis(millis_between(paused.max(*since), at));
            }
        }
    }

    pub(super) fn open(&self) -> usize {
        self.all.values().filter(|entry| !matches!(entry.place, Place::Ended)).count()
    }
}
