//! Queries that wait for a worker's answer. They leave no trace.

use super::admission::{Gate, Group, operation_bytes};
use super::batch::respond;
use super::operation::{Answer, Refusal};
use super::{Envelope, count_refused};
use harvest_ids::{ExecutionId, QueryName, WorkerId};
use harvest_workflow_core::payload::Payload;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One query.
#[derive(Debug)]
pub(crate) struct WaitingQuery {
    pub(crate) execution_id: ExecutionId,
    pub(crate) name: QueryName,
    pub(crate) args: Payload,
    pub(crate) deadline: Duration,
    /// The session that has it.
    pub(crate) taken_by: Option<WorkerId>,
    pub(crate) envelope: Envelope,
}

/// Waiting queries of a shard by number.
#[derive(Debug)]
pub(crate) struct Queries {
    gate: Arc<Gate>,
    waiting: BTreeMap<u64, WaitingQuery>,
    /// Queries of runs whose code has not run yet: nobody could answer them.
    held: BTreeMap<ExecutionId, Vec<u64>>,
}

impl Queries {
    /// None wait; `gate` says how many may.
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate, waiting: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// Adds a query, or refuses it when too many wait.
    pub(crate) fn add(&mut self, number: u64, mut query: WaitingQuery) -> bool {
        match self.gate.admit(Group::Callers(query.execution_id), operation_bytes(&query.envelope.operation)).inspect_err(count_refused) {
            Ok(permit) => {
                query.envelope.permit = Some(permit);
                self.waiting.insert(number, query);
                true
            }
            Err(refusal) => {
                respond(query.envelope.responder, Err(refusal));
                false
            }
        }
    }

    /// Holds a query back until the first decision of its run.
    pub(crate) fn hold(&mut self, number: u64, execution_id: ExecutionId) {
        self.held.entry(execution_id).or_default().push(number);
    }

    /// The run has decided: its queries that were held back and still wait.
    pub(crate) fn release(&mut self, execution_id: ExecutionId) -> Vec<u64> {
        let held = self.held.remove(&execution_id).unwrap_or_default();
        held.into_iter().filter(|number| self.waiting.contains_key(number)).collect()
    }

    /// A worker takes a query that nobody has.
    pub(crate) fn take(&mut self, number: u64, execution_id: ExecutionId, worker: &WorkerId) -> Option<&WaitingQuery> {
        let query = self.waiting.get_mut(&number).filter(|query| query.execution_id == execution_id && query.taken_by.is_none())?;
        query.taken_by = Some(worker.clone());
        Some(query)
    }

    /// A worker's answer; false when the query does not wait for this worker (any more).
    pub(crate) fn answer(&mut self, number: u64, worker: &WorkerId, answer: Answer) -> bool {
        match self.waiting.get(&number) {
            Some(query) if query.taken_by.as_ref() == Some(worker) => {}
            Some(_) | None => return false,
        }
        if let Some(query) = self.waiting.remove(&number) {
            respond(query.envelope.responder, Ok(answer));
        }
        true
    }

    /// Ends queries whose time is over or whose caller has gone.
    pub(crate) fn sweep(&mut self, now: Duration) {
        let over: Vec<u64> =
            self.waiting.iter().filter(|(_, query)| query.deadline <= now || query.envelope.responder.is_closed()).map(|(number, _)| *number).collect();
        for number in over {
            if let Some(query) = self.waiting.remove(&number) {
                respond(query.envelope.responder, Err(Refusal::QueryTimeout));
            }
        }
        let waiting = &self.waiting;
        self.held.retain(|_, held| {
            held.retain(|number| waiting.contains_key(number));
            !held.is_empty()
        });
    }

    /// Ends all.
    pub(crate) fn drain(&mut self) {
        self.held.clear();
        for query in std::mem::take(&mut self.waiting).into_values() {
            respond(query.envelope.responder, Err(Refusal::NotOwner));
        }
    }
}
