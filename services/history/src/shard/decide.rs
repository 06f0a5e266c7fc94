//! What an operation does: find its run, let the core decide, put what it decided into the open batch, and choose what its answer
//! waits for.

use super::actor::{Actor, Happening};
use super::batch::{MAX_DECISIONS, Riding, respond};
use super::operation::{Answer, BusinessKey, Operation, Refusal, StartOperation, Target};
use super::run::Run;
use super::{Envelope, count_refused};
use harvest_ids::{ExecutionId, Slot, Timestamp};
use harvest_persistence::batch::OutboxRow;
use harvest_persistence::error::StoreError;
use harvest_runtime::metrics;
use harvest_workflow_core::decide::decide;
use harvest_workflow_core::decision::{Decision, Reject, Reply, Successor};
use harvest_workflow_core::defaults::Types;
use harvest_workflow_core::event::WorkflowStarted;
use harvest_workflow_core::input::{Carried, Env, Input};
use harvest_workflow_core::message::{Message, MessageBody};
use harvest_workflow_core::payload::Failure;
use harvest_workflow_core::record::WorkflowTaskFailure;
use harvest_workflow_core::state::Status;

impl Actor {
    /// Takes an operation: at once when its run is in memory, later when it must be loaded.
    pub(crate) fn take(&mut self, envelope: Envelope) {
        if self.health.is_away() && !matches!(envelope.operation, Operation::AnswerQuery { .. }) {
            respond(envelope.responder, Err(Refusal::StoreAway));
            return;
        }
        match &envelope.operation {
            Operation::Start(start) => {
                let key = start.key.clone();
                self.with_key(key, envelope);
            }
            Operation::Input { target, .. }
            | Operation::Describe(target)
            | Operation::Locate(target)
            | Operation::AwaitClose(target)
            | Operation::Query { target, .. } => match target.clone() {
                Target::Execution(id) | Target::ExecutionOf(_, id) => self.with_run(id, envelope),
                Target::Key(key) => self.with_key(key, envelope),
            },
            Operation::TakeTask { execution_id, .. } | Operation::TakeQuery { execution_id, .. } => {
                let id = *execution_id;
                self.with_run(id, envelope);
            }
            Operation::Eager(eager) => match eager.answers().map(|(token, _)| token.execution_id) {
                Some(id) => self.with_run(id, envelope),
                None => respond(envelope.responder, Err(Refusal::NotFound)),
            },
            Operation::Deliver { message, .. } => {
                let id = message.target;
                self.with_run(id, envelope);
            }
            Operation::AnswerQuery { .. } => self.answer_query(envelope),
            Operation::Announce { .. } => self.announce(envelope),
        }
    }

    /// Goes on with the run that answers for a key, or without one when there is none.
    fn with_key(&mut self, key: BusinessKey, envelope: Envelope) {
        if let Some(parked) = self.finding.get_mut(&key) {
            self.parked += 1;
            parked.push(envelope);
            return;
        }
        if let Some(id) = self.cache.key(&key) {
            self.with_run(id, envelope);
            return;
        }
        self.parked += 1;
        self.unfound.push(key.clone());
        self.finding.insert(key, vec![envelope]);
    }

    /// Looks keys up, one read at a time: those that come meanwhile share the next.
    pub(crate) fn find(&mut self) {
        if self.looking || self.unfound.is_empty() {
            return;
        }
        self.looking = true;
        let keys: Vec<BusinessKey> = self.unfound.drain(..self.unfound.len().min(MAX_DECISIONS)).collect();
        let (store, shard_id) = (self.deps.store.clone(), self.shard_id);
        self.spawn(async move {
            let found = store.find_runs(shard_id, &keys).await;
            Happening::Found(keys, found)
        });
    }

    pub(crate) fn found(&mut self, keys: Vec<BusinessKey>, found: Result<Vec<Option<(ExecutionId, Status)>>, StoreError>) {
        self.looking = false;
        match found {
            Ok(found) => keys.into_iter().zip(found).for_each(|(key, found)| self.key_found(&key, found.map(|(id, _)| id))),
            Err(error) => {
                for key in keys {
                    let parked = self.finding.remove(&key).unwrap_or_default();
                    self.parked -= parked.len();
                    parked.into_iter().for_each(|envelope| respond(envelope.responder, Err(refusal_of(&error))));
                }
            }
        }
    }

    fn key_found(&mut self, key: &BusinessKey, found: Option<ExecutionId>) {
        let parked = self.finding.remove(key).unwrap_or_default();
        self.parked -= parked.len();
        if let Some(id) = found {
            // Only while nothing newer is known: a start may have been decided meanwhile.
            if self.cache.key(key).is_none() {
                self.cache.point(key.clone(), id);
            }
        }
        for envelope in parked {
            match self.cache.key(key) {
                Some(id) => self.resumed.push_back((id, envelope)),
                None => self.without_run(envelope),
            }
        }
    }

    /// Goes on with a run, loading it first when it is not in memory (once, however many wait for it).
    pub(crate) fn with_run(&mut self, id: ExecutionId, envelope: Envelope) {
        if self.cache.contains(id) {
            metrics::WORKFLOW_CACHE_HIT.add(1, []);
        } else {
            metrics::WORKFLOW_CACHE_MISS.add(1, []);
        }
        self.go_on_with_run(id, envelope);
    }

    pub(crate) fn go_on_with_run(&mut self, id: ExecutionId, envelope: Envelope) {
        if self.cache.contains(id) && !self.loading.contains_key(&id) {
            self.on_run(id, envelope);
        } else {
            self.parked += 1;
            self.load(id).push(envelope);
        }
    }

    pub(crate) fn without_run(&mut self, envelope: Envelope) {
        match envelope.operation {
            Operation::Start(ref start) => {
                let start = start.clone();
                self.start(&start, envelope);
            }
            Operation::Deliver { ref message, key_looked_up } => {
                let message = message.clone();
                self.deliver_to_new_run(&message, key_looked_up, envelope);
            }
            Operation::TakeTask { .. } | Operation::TakeQuery { .. } => {
                self.task_taken(&envelope.operation);
                self.clean.push(Riding { envelope, answer: Ok(Answer::Gone) });
            }
            Operation::Input { .. }
            | Operation::Eager(_)
            | Operation::Describe(_)
            | Operation::Locate(_)
            | Operation::AwaitClose(_)
            | Operation::Query { .. }
            | Operation::AnswerQuery { .. }
            | Operation::Announce { .. } => self.clean.push(Riding { envelope, answer: Err(Refusal::NotFound) }),
        }
    }

    fn on_run(&mut self, id: ExecutionId, envelope: Envelope) {
        if !self.cache.touch(id) {
            // Forgotten between its loading and this: by a poisoned neighbour. Loaded again.
            self.go_on_with_run(id, envelope);
            return;
        }
        if self.is_of_another_namespace(id, &envelope.operation) {
            self.ride(Some(id), envelope, Err(Refusal::NotFound));
            return;
        }
        match &envelope.operation {
            Operation::Start(_) => self.start_existing(id, envelope),
            Operation::Input { .. } => self.input(id, envelope),
            Operation::Eager(_) => self.eager(id, envelope),
            Operation::TakeTask { .. } => self.take_task(id, envelope),
            Operation::TakeQuery { .. } => self.take_query(id, envelope),
            Operation::Describe(_) => self.describe(id, envelope),
            Operation::Locate(_) => self.locate(id, envelope),
            Operation::AwaitClose(_) => self.await_close(id, envelope),
            Operation::Query { .. } => self.query(id, envelope),
            Operation::Deliver { message, .. } => {
                let message = message.clone();
                self.deliver_to_run(id, &message, envelope);
            }
            Operation::AnswerQuery { .. } | Operation::Announce { .. } => self.take(envelope),
        }
    }

    fn is_of_another_namespace(&self, id: ExecutionId, operation: &Operation) -> bool {
        let (Operation::Input { target, .. }
        | Operation::Describe(target)
        | Operation::Locate(target)
        | Operation::AwaitClose(target)
        | Operation::Query { target, .. }) = operation
        else {
            return false;
        };
        match target {
            Target::ExecutionOf(namespace, _) => self.cache.peek(id).is_some_and(|run| run.key.namespace != *namespace),
            Target::Execution(_) | Target::Key(_) => false,
        }
    }

    /// Lets the core decide about an input of a run in memory. What it decided is in the open batch afterwards, except that starts of
    /// tasks stay in memory (`ride_along`) until something else of the run is written.
    pub(crate) fn decide(&mut self, id: ExecutionId, input: &Input, ride_along: bool) -> Result<Reply, Reject> {
        self.decide_at(id, input, ride_along, None)
    }

    /// The same, as of a time that may be a little ago.
    pub(crate) fn decide_at(&mut self, id: ExecutionId, input: &Input, ride_along: bool, at: Option<Timestamp>) -> Result<Reply, Reject> {
        let (now, random, config) = (at.unwrap_or_else(|| self.now()), self.deps.ids.random_u64(), self.config.clone());
        let none = Types::default();
        let types = self.cache.peek(id).and_then(|run| config.types.get(&run.key.namespace)).unwrap_or(&none);
        let env = Env { now, random, limits: &config.limits, config_version: config.version, types };
        self.cache.touch(id);
        let decided = self.cache.change(id, |run| {
            let Decision { records, messages, successor, reply } = decide(&mut run.state, input, &env)?;
            let wrote = (!records.is_empty()).then(|| run.record(records));
            Ok((wrote, messages, successor, reply))
        });
        let (wrote, messages, successor, reply) = decided.unwrap_or(Err(Reject::NotFound))?;
        let Some(run) = self.cache.peek(id) else { return Err(Reject::NotFound) };
        self.open.bytes += wrote.unwrap_or_default();
        // A decision may be a message alone; its answer waits for the commit all the same.
        if (wrote.is_some() && !ride_along) || !messages.is_empty() {
            self.open.touch(id, run.bytes());
        }
        if wrote.is_some() && !run.state.is_open() {
            self.liveness.run_ended(id);
        }
        for message in messages {
            self.post(&message);
        }
        if let Some(successor) = successor {
            self.succeed(&successor);
        }
        Ok(reply)
    }

    /// Puts a message into the outbox of the open batch.
    fn post(&mut self, message: &Message) {
        let sequence = self.next_outbox_sequence;
        self.next_outbox_sequence += 1;
        let bytes = harvest_wire::message::encode(message);
        self.open.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.open.outbox.push(OutboxRow { sequence, target: message.target, message: bytes });
    }

    fn succeed(&mut self, successor: &Successor) {
        let started = successor.started.clone();
        let key = BusinessKey { namespace: started.namespace.clone(), workflow_type: started.workflow_type.clone(), workflow_id: started.workflow_id.clone() };
        let id = started.execution_id;
        let input = Input::Start { started: Box::new(started), carried: successor.carried.clone() };
        if let Err(reject) = self.create(id, key, &input) {
            // The core made this start itself; a refusal would leave a chain without its end.
            tracing::error!(shard = self.shard_id.0, run = %id, %reject, "a successor was refused: this is a bug");
        }
    }

    /// Creates a run in memory and in the open batch.
    fn create(&mut self, id: ExecutionId, key: BusinessKey, start: &Input) -> Result<Reply, Reject> {
        self.cache.insert(Run::new(id, key.clone()));
        let reply = self.decide(id, start, false);
        match &reply {
            Ok(_) => self.cache.point(key, id),
            Err(_) => self.cache.forget(id),
        }
        reply
    }

    fn start(&mut self, start: &StartOperation, envelope: Envelope) {
        if !self.ready.has_room_for(&start.key.namespace, &start.task_queue) {
            let refusal = Refusal::Overloaded { limit: "shard.task_queues" };
            count_refused(&refusal);
            respond(envelope.responder, Err(refusal));
            return;
        }
        let slot = Slot::of(&start.key.namespace, &start.key.workflow_id);
        let id = ExecutionId::new(slot, self.now(), self.deps.ids.random_u64());
        let started = WorkflowStarted {
            namespace: start.key.namespace.clone(),
            workflow_type: start.key.workflow_type.clone(),
            workflow_id: start.key.workflow_id.clone(),
            execution_id: id,
            first_execution_id: id,
            continued_from: None,
            parent: None,
            task_queue: start.task_queue.clone(),
            input: start.input.clone(),
            request_id: start.request_id.clone(),
            execution_timeout: start.execution_timeout,
            workflow_task_timeout: start.workflow_task_timeout,
            chain_execution_timeout: start.chain_execution_timeout,
            chain_deadline: None,
            sla: start.sla,
            config_version: self.config.version,
        };
        let input = Input::Start { started: Box::new(started), carried: Carried::default() };
        let answer = self.create(id, start.key.clone(), &input).map_err(Refusal::Reject);
        let answer = answer.map(|_| Answer::Started { execution_id: id, status: Status::Running, fresh: true, task: None });
        self.ride(Some(id), envelope, answer);
    }

    fn start_existing(&mut self, id: ExecutionId, envelope: Envelope) {
        let Operation::Start(start) = &envelope.operation else { return };
        let Some(run) = self.cache.peek(id) else { return };
        let status = run.state.status();
        let repeated = start.request_id.as_ref().is_some_and(|request| run.state.started_by(request));
        let answer = if start.fail_on_conflict && !repeated {
            Err(Refusal::AlreadyExists { execution_id: id, status })
        } else {
            // Whoever repeats a start is told of the run that it made, though that one may have a successor by now.
            let made = run.state.started().filter(|_| repeated).map_or(id, |started| started.first_execution_id);
            Ok(Answer::Started { execution_id: made, status, fresh: repeated, task: None })
        };
        self.ride(Some(id), envelope, answer);
    }

    fn input(&mut self, mut id: ExecutionId, envelope: Envelope) {
        let Operation::Input { input, follow_chain, .. } = &envelope.operation else { return };
        let mut reply = self.decide(id, input, false);
        while let Err(Reject::Closed { continued_as: Some(next), .. }) = reply
            && *follow_chain
        {
            if !self.cache.contains(next) {
                self.with_run(next, envelope);
                return;
            }
            id = next;
            reply = self.decide(id, input, false);
        }
        if reply.is_ok() {
            self.note_sign_of_life(id, input);
        }
        if *input == Input::Wake {
            self.keep_armed(id);
        }
        let answer = match reply {
            Ok(reply) => Ok(decided(id, &reply)),
            Err(reject) => {
                self.refused(id, input, &reject);
                Err(Refusal::Reject(reject))
            }
        };
        self.ride(Some(id), envelope, answer);
    }

    /// A malformed decision fails its workflow task, so that it is tried again later instead of waiting for its timeout.
    pub(crate) fn refused(&mut self, id: ExecutionId, input: &Input, reject: &Reject) {
        let Input::CompleteWorkflowTask(complete) = input else { return };
        let malformed = match reject {
            Reject::BadCommand { .. } | Reject::BadDecision { .. } | Reject::Limit { .. } => true,
            Reject::Closed { .. } | Reject::StaleTask { .. } | Reject::NotPending | Reject::NotFound | Reject::AlreadyStarted => false,
        };
        if malformed {
            let cause = WorkflowTaskFailure::WorkerError { message: reject.to_string() };
            let failure = Input::FailWorkflowTask { token: complete.token.clone(), worker_id: complete.worker_id.clone(), cause };
            if let Err(reject) = self.decide(id, &failure, false) {
                tracing::warn!(run = %id, %reject, "the workflow task of a malformed decision could not be failed");
            }
        }
    }

    /// A message for a run that does not exist: a child's start, or one that nothing will ever come of.
    fn deliver_to_new_run(&mut self, message: &Message, key_looked_up: bool, mut envelope: Envelope) {
        let MessageBody::StartChild { namespace, child, .. } = &message.body else {
            self.deliver_behind_start(message, envelope);
            return;
        };
        let key = BusinessKey { namespace: namespace.clone(), workflow_type: child.workflow_type.clone(), workflow_id: child.workflow_id.clone() };
        if key_looked_up {
            self.start_child(message, key, envelope);
        } else {
            envelope.operation = Operation::Deliver { message: Box::new(message.clone()), key_looked_up: true };
            self.with_key(key, envelope);
        }
    }

    /// A message other than a start, for a run that is not stored. Its start may be waiting here for a look-up: then this waits behind it.
    fn deliver_behind_start(&mut self, message: &Message, envelope: Envelope) {
        let target = message.target;
        if self.cache.contains(target) {
            self.resumed.push_back((target, envelope));
            return;
        }
        if self.resumed.iter().any(|(_, waiting)| starts(waiting, target)) {
            self.resumed.push_back((target, envelope));
            return;
        }
        let behind = self.finding.values_mut().chain(self.loading.values_mut()).find(|parked| parked.iter().any(|waiting| starts(waiting, target)));
        match behind {
            Some(parked) => {
                parked.push(envelope);
                self.parked += 1;
            }
            None => self.clean.push(Riding { envelope, answer: Ok(Answer::Gone) }),
        }
    }

    fn start_child(&mut self, message: &Message, key: BusinessKey, envelope: Envelope) {
        let id = message.target;
        let answer = match self.create(id, key, &Input::Message(Box::new(message.clone()))) {
            Ok(_) => Ok(Answer::Gone),
            Err(reject) => Err(Refusal::Reject(reject)),
        };
        self.ride(Some(id), envelope, answer);
    }

    /// A message for a run in memory; or the start of a child whose business key that run holds.
    fn deliver_to_run(&mut self, id: ExecutionId, message: &Message, envelope: Envelope) {
        if id == message.target {
            if let Err(reject) = self.decide(id, &Input::Message(Box::new(message.clone())), false) {
                // A refusal is an outcome, not an error: it must not block the messages behind it.
                tracing::debug!(run = %id, %reject, "a message came too late");
            }
            self.ride(Some(id), envelope, Ok(Answer::Gone));
            return;
        }
        let MessageBody::StartChild { parent, .. } = &message.body else {
            // It waited behind the start of its target, which is decided about by now.
            self.with_run(message.target, envelope);
            return;
        };
        let Some(holder) = self.cache.peek(id) else { return };
        if self.cache.contains(message.target) {
            // Another delivery of the same message has just started it.
            self.with_run(message.target, envelope);
            return;
        }
        if !holder.state.is_open() {
            let key = holder.key.clone();
            self.start_child(message, key, envelope);
            return;
        }
        let failure = Failure::engine(
            "ChildAlreadyRunning",
            format!("workflow {} of type {} is open already (run {id})", holder.key.workflow_id, holder.key.workflow_type),
        );
        let refused = MessageBody::ChildStartRefused { initiated: parent.initiated, failure };
        self.post(&Message { source: message.target, target: message.source, body: refused });
        self.open.riding.push(Riding { envelope, answer: Ok(Answer::Gone) });
    }

    /// Lets an answer go when what it tells is durable, and when this was still the owner after the call had come: with the batch that is being
    /// filled, which will be fenced after this, or after a look at the epoch.
    pub(crate) fn ride(&mut self, id: Option<ExecutionId>, envelope: Envelope, answer: Result<Answer, Refusal>) {
        let riding = Riding { envelope, answer };
        let Some(id) = id else {
            self.clean.push(riding);
            return;
        };
        if self.open.touched.contains(&id) {
            self.open.riding.push(riding);
            return;
        }
        let uncommitted = self.cache.peek(id).is_some_and(|run| run.last_batch > self.committed);
        match &mut self.in_flight {
            Some(in_flight) if uncommitted && !self.open.has_writes() => in_flight.late.push(riding),
            Some(_) | None => self.ride_proof(riding),
        }
    }

    /// Lets an answer go that shows nothing but what is durable, or will be before the batch that is being filled.
    pub(crate) fn ride_proof(&mut self, riding: Riding) {
        if self.open.has_writes() { self.open.riding.push(riding) } else { self.clean.push(riding) }
    }
}

/// Whether an operation is the start of a child that will be this run.
fn starts(envelope: &Envelope, target: ExecutionId) -> bool {
    matches!(&envelope.operation, Operation::Deliver { message, .. } if message.target == target && matches!(message.body, MessageBody::StartChild { .. }))
}

fn decided(execution_id: ExecutionId, reply: &Reply) -> Answer {
    let (fresh, try_again, cancel_requested) = match reply {
        Reply::Duplicate => (false, false, false),
        Reply::TryAgain => (true, true, false),
        Reply::Progress { cancel_requested } => (true, false, *cancel_requested),
        Reply::Done | Reply::WorkflowTask { .. } | Reply::ActivityTask { .. } => (true, false, false),
    };
    Answer::Decided { execution_id, fresh, try_again, cancel_requested }
}

pub(crate) fn refusal_of(error: &StoreError) -> Refusal {
    match error {
        StoreError::Unavailable(message) => Refusal::Unavailable(message.clone()),
        StoreError::Corrupt(message) | StoreError::Refused(message) => Refusal::Corrupt(message.clone()),
    }
}
