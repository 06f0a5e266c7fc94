//! A decision ahead: what workflow code makes of an activity's result, worked out before the server has the result, and sent with it.
//!
//! It saves the workflow task. The server takes it when nothing else has happened to the run. Otherwise the run in memory has seen an event that
//! was never written, and is dropped; the workflow task that comes then replays.

use crate::SDK_VERSION;
use crate::worker::cache::{Lending, Loan};
use crate::worker::eager::{self, Asked};
use crate::worker::{WorkerShared, runs};
use crate::workflow::run::{Run, RunError, ServerClock};
use harvest_ids::{EventId, Timestamp};
use harvest_proto::v1::{self, ActivityTask, CompleteWorkflowTaskResponse};
use harvest_sdk_replay::Completion;
use harvest_wire::{command, payload};
use harvest_workflow_core::event::{Event, EventKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the result of an activity waits, at the longest, for what workflow code makes of it. It is short unless that code blocks.
const LONGEST: Duration = Duration::from_secs(2);

/// A decision that is sent with a result.
pub(crate) struct Ahead {
    worker: Arc<WorkerShared>,
    worker_id: String,
    run: Run,
    loan: Loan,
    asked: Asked,
}

/// Works out what follows from a result. `started` is when the attempt was recorded as started, which its result must not precede. `None` when
/// this worker does not have the run up to date, or cannot tell: the result goes alone then.
pub(crate) async fn decide(
    worker: &Arc<WorkerShared>,
    worker_id: &str,
    task: &ActivityTask,
    started: ServerClock,
    output: &v1::Payload,
) -> Option<(Ahead, v1::DecisionAhead)> {
    let workflow = task.workflow.as_ref().filter(|_| worker.config.eager_activities)?;
    let limit = Instant::now() + LONGEST;
    let (run, at, loan) = loop {
        match worker.cache.lend(&workflow.execution_id) {
            Lending::Lent { run, next_event_at, loan } => break (run, next_event_at.max(started.at_least(Instant::now())), loan),
            Lending::Awaited(line) if line.wait(limit).await => {}
            Lending::Awaited(_) | Lending::Unfit => return None,
        }
    };
    let last = run.last_event();
    let (run, completion) = match decided(run, task, output, at, limit).await {
        Ok(decided) => decided,
        Err(error) => {
            tracing::debug!(workflow.execution_id, %error, "a decision ahead was not worked out");
            return None;
        }
    };
    let asked = if run.is_closed() { Asked::default() } else { eager::ask(worker, &completion.commands, &workflow.task_queue) };
    let decision = v1::DecisionAhead {
        last_event_id: last.0,
        completed_at_ms: at.as_millis(),
        commands: completion.commands.iter().map(command::to_proto).collect(),
        consumed_signal_event_ids: completion.consumed_signals.iter().map(|event| event.0).collect(),
        build_id: worker.config.build_id.clone(),
        sdk: SDK_VERSION.to_owned(),
        eager_commands: asked.commands.clone(),
    };
    let ahead = Ahead { worker: worker.clone(), worker_id: worker_id.to_owned(), run, loan, asked };
    ahead.loan.sent().then_some((ahead, decision))
}

/// Shows the run the event that the server is going to write.
async fn decided(mut run: Run, task: &ActivityTask, output: &v1::Payload, at: Timestamp, limit: Instant) -> Result<(Run, Completion), RunError> {
    let id = run.next_event();
    let output = payload::from_proto(output.clone())?;
    run.feed([Event { id, at, kind: EventKind::ActivityCompleted { activity_id: EventId(task.activity_id), output } }])?;
    runs::decide(run, id, limit).await
}

impl Ahead {
    /// The result was taken; `decided` says whether the decision was. If so the run goes back into memory and the activities that came are run.
    pub(crate) fn answered(mut self, decided: Option<CompleteWorkflowTaskResponse>, heard: Instant) {
        let Some(mut decided) = decided.filter(|decided| !decided.try_again) else { return };
        if !self.run.is_closed() {
            let fed = match eager::news(&mut decided, heard) {
                Some((events, clock)) => {
                    self.run.set_clock(clock);
                    self.run.feed(events)
                }
                None => Ok(()),
            };
            match fed {
                Ok(()) => self.loan.give_back(self.run),
                Err(error) => tracing::debug!(%error, "the events of a decision ahead do not fit its run"),
            }
        }
        eager::start(&self.worker, &self.worker_id, self.asked, decided.eager_activities);
    }
}
