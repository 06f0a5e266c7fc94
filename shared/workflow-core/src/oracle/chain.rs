//! What must hold between a run and its successor.

use super::{Verdict, Violation, check, review, rule};
use crate::event::{EventKind, WorkflowStarted};
use crate::payload::Payload;
use crate::record::{Control, Record};
use harvest_ids::{EventId, RequestId, SignalName, Timestamp};
use std::collections::BTreeSet;

/// Checks the logs of a chain, oldest run first: each by itself, that each follows from the one before, and that nothing accepted was lost
/// at a boundary. The index of a violation between two runs is 0.
///
/// # Errors
/// The number of the run, from 0, and its first [`Violation`].
pub fn check_chain(runs: &[&[Record]]) -> Result<(), (usize, Violation)> {
    for (number, run) in runs.iter().enumerate() {
        check(run).map_err(|violation| (number, violation))?;
        if let Some(previous) = number.checked_sub(1).and_then(|before| runs.get(before)) {
            check_link(previous, run).map_err(|rule| (number, Violation { index: 0, rule }))?;
        }
    }
    Ok(())
}

fn events(run: &[Record]) -> impl Iterator<Item = &EventKind> {
    run.iter().filter_map(|record| match record {
        Record::Event(event) => Some(&event.kind),
        Record::Control(_) => None,
    })
}

fn started(run: &[Record]) -> Result<&WorkflowStarted, String> {
    match events(run).next() {
        Some(EventKind::WorkflowStarted(started)) => Ok(started),
        _ => Err("a run begins with its start".to_owned()),
    }
}

fn check_link(previous: &[Record], next: &[Record]) -> Verdict {
    let (before, after) = (started(previous)?, started(next)?);
    match events(previous).last() {
        Some(EventKind::WorkflowContinuedAsNew { new_execution_id, new_workflow_type, input }) => {
            rule(*new_execution_id == after.execution_id, || format!("the predecessor named {new_execution_id} as its successor"))?;
            rule(*input == after.input, || "the successor has another input than its predecessor gave it".to_owned())?;
            let workflow_type = new_workflow_type.as_ref().unwrap_or(&before.workflow_type);
            rule(*workflow_type == after.workflow_type, || format!("the successor should be a {workflow_type}"))?;
        }
        _ => return Err("the predecessor did not continue as new".to_owned()),
    }
    rule(after.continued_from == Some(before.execution_id), || "the successor names another predecessor".to_owned())?;
    let kept = (before.chain_execution_timeout, before.chain_deadline) == (after.chain_execution_timeout, after.chain_deadline);
    rule(kept, || "a chain keeps its deadline".to_owned())?;
    let limits_kept = before.workflow_type != after.workflow_type || before.sla == after.sla;
    rule(limits_kept, || "a chain keeps its SLA while it keeps its type".to_owned())?;
    let (pause_before, pause_after) = (pause(previous), next.iter().find_map(paused_until));
    rule(pause_before.is_none() || pause_before == pause_after, || "a pause was lost".to_owned())?;
    let same = (&before.namespace, &before.workflow_id, before.first_execution_id, &before.parent)
        == (&after.namespace, &after.workflow_id, after.first_execution_id, &after.parent);
    rule(same, || "a chain keeps its namespace, workflow id, first run and parent".to_owned())?;
    check_handover(previous, next)
}

/// When the pause that a run ends in would have been over.
fn pause(run: &[Record]) -> Option<Timestamp> {
    run.iter().rev().find_map(|record| match record {
        Record::Control(Control::Resumed { .. }) => Some(None),
        record => paused_until(record).map(Some),
    })?
}

fn paused_until(record: &Record) -> Option<Timestamp> {
    match record {
        Record::Control(Control::Paused { until, .. }) => Some(*until),
        Record::Event(_) | Record::Control(_) => None,
    }
}

type Signal = (SignalName, Payload, Option<RequestId>);

/// Unread signals come first in the successor, in their order; remembered request ids and an unseen cancel request come along.
fn check_handover(previous: &[Record], next: &[Record]) -> Verdict {
    // The review of an open run lists its unread signals: look at the predecessor just before its last event.
    let unread = review(&previous[..previous.len().saturating_sub(1)]).map_err(|violation| violation.rule)?.unread_signals;
    let signal = |record: &Record| -> Option<(EventId, Signal)> {
        match record {
            Record::Event(event) => match &event.kind {
                EventKind::SignalReceived { name, payload, request_id } => Some((event.id, (name.clone(), payload.clone(), request_id.clone()))),
                _ => None,
            },
            Record::Control(_) => None,
        }
    };
    let handed: Vec<Signal> = previous.iter().filter_map(signal).filter(|(id, _)| unread.contains(id)).map(|(_, signal)| signal).collect();
    let arrived: Vec<Signal> = next.iter().filter_map(signal).map(|(_, signal)| signal).take(handed.len()).collect();
    rule(handed == arrived, || format!("{} unread signals were to be handed over in order; the successor begins with others", handed.len()))?;

    let (seen_before, seen_after) = (remembered(previous), remembered(next));
    rule(seen_before.is_subset(&seen_after) || has_forgotten(next), || "a remembered request id was lost".to_owned())?;

    let cancel = previous.iter().find_map(|record| match record {
        Record::Event(event) => matches!(event.kind, EventKind::WorkflowCancelRequested { .. }).then_some(event.id),
        Record::Control(_) => None,
    });
    let decided = events(previous).filter_map(|kind| match kind {
        EventKind::WorkflowTaskCompleted(task) => Some(task.seen),
        _ => None,
    });
    let unseen = cancel.is_some_and(|cancel| decided.last().is_some_and(|seen| cancel > seen));
    rule(!unseen || events(next).any(|kind| matches!(kind, EventKind::WorkflowCancelRequested { .. })), || "an unseen cancel request was lost".to_owned())
}

/// The request ids that a run remembers at its end.
fn remembered(run: &[Record]) -> BTreeSet<RequestId> {
    let mut order: Vec<RequestId> = Vec::new();
    let remember = |id: &RequestId, order: &mut Vec<RequestId>| {
        if !order.contains(id) {
            order.push(id.clone());
        }
    };
    for record in run {
        match record {
            Record::Event(event) => {
                if let EventKind::SignalReceived { request_id: Some(id), .. } = &event.kind {
                    remember(id, &mut order);
                }
            }
            Record::Control(Control::RequestSeen { request_id, .. }) => remember(request_id, &mut order),
            Record::Control(Control::RequestsForgotten { count, .. }) => {
                order.drain(..usize::try_from(*count).unwrap_or(usize::MAX).min(order.len()));
            }
            Record::Control(_) => {}
        }
    }
    order.into_iter().collect()
}

fn has_forgotten(run: &[Record]) -> bool {
    run.iter().any(|record| matches!(record, Record::Control(Control::RequestsForgotten { .. })))
}
