//! The clock: everything that is due happens, in order of its deadline.

use super::Emitter;
use super::activity_attempt::attempt_failed;
use super::close::{close, note_breach};
use super::fail_workflow_task::failed;
use super::pause::go_on;
use crate::decision::Reply;
use crate::event::{ActivityTimeout, EventKind, WorkflowTimeout};
use crate::machine::activity::ActivityDeadline;
use crate::machine::workflow_task::WorkflowTask;
use crate::payload::Failure;
use crate::record::{Control, WorkflowTaskFailure};
use crate::state::Deadline;
use harvest_ids::{ActivityId, EventId, Timestamp};

/// An early or repeated wake finds nothing due and changes nothing.
pub(super) fn wake(emitter: &mut Emitter<'_>) -> Reply {
    if emitter.state.pause().is_some_and(|pause| pause.until <= emitter.at) {
        go_on(emitter);
        return Reply::Done;
    }
    look(emitter)
}

/// What happens at a deadline never sets another that is due already, but for the end of a pause; so one look at all of them is enough.
pub(super) fn look(emitter: &mut Emitter<'_>) -> Reply {
    let mut due: Vec<(Timestamp, Deadline)> = emitter.state.deadlines().filter(|(at, _)| *at <= emitter.at).collect();
    if due.is_empty() {
        return Reply::Duplicate;
    }
    due.sort_unstable_by_key(|(at, what)| (*at, what.rank()));
    for (_, what) in due {
        if !emitter.state.is_open() {
            break;
        }
        match what {
            Deadline::WorkflowTask => workflow_task_due(emitter),
            Deadline::Activity(id, what) => activity_due(emitter, id, what),
            Deadline::Timer(started) => timer_due(emitter, started),
            Deadline::Sla => note_breach(emitter),
            Deadline::Resume => {} // not before it: see above
            Deadline::Execution => close(emitter, EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Execution }),
            Deadline::Chain => close(emitter, EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Chain }),
        }
    }
    Reply::Done
}

fn workflow_task_due(emitter: &mut Emitter<'_>) {
    match *emitter.state.workflow_task() {
        WorkflowTask::Started { attempt, .. } => failed(emitter, attempt, WorkflowTaskFailure::TimedOut),
        WorkflowTask::Backoff { attempt, .. } => emitter.control(Control::WorkflowTaskRetryDue { at: emitter.at, attempt }),
        WorkflowTask::None | WorkflowTask::Ready { .. } => {}
    }
}

fn activity_due(emitter: &mut Emitter<'_>, activity_id: ActivityId, what: ActivityDeadline) {
    let Some(activity) = emitter.state.activity(activity_id) else { return };
    let attempt = activity.attempt();
    // A late look finds both due: then the activity is over, and what its attempt would do does not matter.
    let over = emitter.state.pause().is_none() && activity.closes_at().is_some_and(|at| at <= emitter.at);
    let what = if over { ActivityDeadline::ScheduleToClose } else { what };
    let timeout = match what {
        ActivityDeadline::RetryDue => return emitter.control(Control::ActivityRetryDue { at: emitter.at, activity_id, attempt }),
        ActivityDeadline::ScheduleToClose => ActivityTimeout::ScheduleToClose,
        ActivityDeadline::ScheduleToStart => ActivityTimeout::ScheduleToStart,
        ActivityDeadline::StartToClose => ActivityTimeout::StartToClose,
        ActivityDeadline::Heartbeat => ActivityTimeout::Heartbeat,
    };
    let failure = match timeout {
        ActivityTimeout::ScheduleToStart => Failure::engine("ScheduleToStart", "no worker took the activity in time"),
        ActivityTimeout::ScheduleToClose => Failure::engine("ScheduleToClose", "all attempts together took too long"),
        ActivityTimeout::StartToClose => Failure::engine("StartToClose", "the attempt took too long"),
        ActivityTimeout::Heartbeat => Failure::engine("Heartbeat", "the attempt sent no heartbeat in time"),
    };
    attempt_failed(emitter, activity_id, failure, Some(timeout), None);
}

fn timer_due(emitter: &mut Emitter<'_>, started: EventId) {
    if let Some(timer) = emitter.state.timers.get(&started) {
        let timer_id = timer.name.clone();
        emitter.event(EventKind::TimerFired { timer_id, started });
    }
}
