//! The worker's side of a shard: tasks taken, attempts announced or lost, deadlines, offers, queries, reads.

use super::actor::{Actor, Happening, NEAR, PAGE};
use super::admission::{Group, operation_bytes};
use super::batch::respond;
use super::neighbours::{Offer, OfferKind};
use super::operation::{Answer, ClosedView, Operation, Refusal, TakenQuery, Target};
use super::queries::WaitingQuery;
use super::{Envelope, count_refused};
use harvest_ids::{ActivityId, Attempt, EventId, ExecutionId, WorkerId};
use harvest_persistence::batch::TaskId;
use harvest_persistence::error::StoreError;
use harvest_runtime::{Clock, metrics};
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::input::{Input, TaskToken};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::record::Dispatch;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two tries to read a page of pending work.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// A read whose failure is told only after a while: whoever asks again at once would ask a store that is down without end.
async fn patiently<T>(clock: &dyn Clock, read: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
    let answer = read.await;
    if answer.is_err() {
        clock.sleep(READ_AGAIN).await;
    }
    answer
}

impl Actor {
    pub(crate) fn new_dispatch(&mut self, worker_id: &WorkerId) -> Dispatch {
        self.dispatches += 1;
        Dispatch { epoch: self.epoch, sequence: self.dispatches, worker_id: worker_id.clone() }
    }

    /// Whoever took an offer, the offer is over.
    pub(crate) fn task_taken(&mut self, operation: &Operation) {
        if let Operation::TakeTask { execution_id, activity_id, .. } = operation {
            let key = activity_id.map_or(TaskKey::Workflow, TaskKey::Activity);
            self.ready.taken(TaskId { execution_id: *execution_id, key });
        }
    }

    pub(crate) fn take_task(&mut self, id: ExecutionId, envelope: Envelope) {
        self.task_taken(&envelope.operation);
        let Operation::TakeTask { activity_id, worker_id, .. } = &envelope.operation else { return };
        // Nothing is dispatched before its commit: a task whose run has news that are not durable yet rides that batch.
        let sticky = self.cache.peek(id).and_then(|run| run.sticky.clone());
        let answer = match *activity_id {
            None => self.take_workflow_task(id, &worker_id.clone(), sticky.as_ref()),
            Some(activity_id) => self.take_activity(id, activity_id, &worker_id.clone()),
        };
        self.note_volatile_deadline(id);
        self.ride(Some(id), envelope, Ok(answer.unwrap_or(Answer::Gone)));
    }

    pub(crate) fn take_workflow_task(&mut self, id: ExecutionId, worker_id: &WorkerId, sticky: Option<&WorkerId>) -> Result<Answer, Reject> {
        let dispatch = self.new_dispatch(worker_id);
        let reply = self.decide(id, &Input::StartWorkflowTask { dispatch: dispatch.clone() }, true)?;
        let Reply::WorkflowTask { attempt, last_event, previous_decision, timeout } = reply else { return Err(Reject::NotPending) };
        let run = self.cache.peek(id).ok_or(Reject::NotFound)?;
        let cached = sticky == Some(worker_id) && attempt == Attempt::FIRST;
        let first_event = if cached { previous_decision.next() } else { harvest_ids::EventId(1) };
        let token = TaskToken { execution_id: id, activity_id: None, attempt, dispatch };
        Ok(Answer::WorkflowTask(Box::new(run.taken_workflow_task(token, first_event, last_event, timeout))))
    }

    pub(crate) fn take_activity(&mut self, id: ExecutionId, activity_id: ActivityId, worker_id: &WorkerId) -> Result<Answer, Reject> {
        let dispatch = self.new_dispatch(worker_id);
        let once = self.cache.peek(id).and_then(|run| run.state.activity(activity_id)).is_some_and(|activity| activity.spec().retry.max_attempts == 1);
        // An activity that may run only once must be known to be started before anybody starts it.
        let reply = self.decide(id, &Input::StartActivity { activity_id, dispatch: dispatch.clone() }, !once)?;
        let Reply::ActivityTask { attempt, .. } = reply else { return Err(Reject::NotPending) };
        let now = self.deps.clock.monotonic();
        self.liveness.heard(id, activity_id, attempt, now);
        let run = self.cache.peek(id).ok_or(Reject::NotFound)?;
        let activity = run.state.activity(activity_id).ok_or(Reject::NotFound)?;
        let token = TaskToken { execution_id: id, activity_id: Some(activity_id), attempt, dispatch };
        Ok(Answer::ActivityTask(Box::new(run.taken_activity(token, activity))))
    }

    /// A start that is only in memory has no due row yet, so its timeout is watched here.
    pub(crate) fn note_volatile_deadline(&mut self, id: ExecutionId) {
        let Some(run) = self.cache.peek(id).filter(|run| run.has_unsaved()) else { return };
        if let Some((at, _)) = run.state.deadlines().min_by_key(|(at, _)| *at) {
            self.volatile.insert((at, id));
        }
    }

    pub(crate) fn wake_volatile(&mut self) {
        if self.health.is_away() {
            return; // nothing can be decided; they are woken when the store is back
        }
        let now = self.deps.clock.now();
        while let Some(&(at, id)) = self.volatile.first() {
            if at > now {
                return;
            }
            self.volatile.pop_first();
            // Most were answered in time. Waking those runs would change nothing and cost a look at the epoch each.
            let answered = self.cache.peek(id).is_some_and(|run| run.state.deadlines().all(|(due, _)| due > now));
            if !answered {
                self.tell(id, Input::Wake);
            }
        }
    }

    /// Gives a run an input that nobody waits for an answer to.
    pub(crate) fn tell(&mut self, id: ExecutionId, input: Input) {
        let (responder, _) = oneshot::channel();
        self.take(Envelope { operation: Operation::Input { target: Target::Execution(id), follow_chain: false, input }, responder, permit: None });
    }

    /// Attempts that a run has with workers are expected to be announced from now on.
    pub(crate) fn watch_attempts(&mut self, id: ExecutionId) {
        let Some(run) = self.cache.peek(id) else { return };
        let now = self.deps.clock.monotonic();
        for (activity_id, attempt, _) in run.state.running_activities() {
            self.liveness.watch(id, activity_id, attempt, now);
        }
    }

    /// What an input that was accepted says about the worker of an attempt.
    pub(crate) fn note_sign_of_life(&mut self, id: ExecutionId, input: &Input) {
        match input {
            Input::CloseActivity { token: TaskToken { activity_id: Some(activity_id), .. }, .. } | Input::ActivityLost { activity_id, .. } => {
                self.liveness.ended(id, *activity_id);
                // It may have been another attempt.
                self.watch_attempts(id);
            }
            Input::Heartbeat { token: TaskToken { activity_id: Some(activity_id), attempt, .. }, .. }
            | Input::AnnounceActivity { token: TaskToken { activity_id: Some(activity_id), attempt, .. }, .. } => {
                let now = self.deps.clock.monotonic();
                self.liveness.heard(id, *activity_id, *attempt, now);
            }
            _ => {}
        }
    }

    /// A wake that came early (by clock skew) is kept armed here when its time is near.
    pub(crate) fn keep_armed(&mut self, id: ExecutionId) {
        let Some(run) = self.cache.peek(id) else { return };
        let now = self.deps.clock.now();
        if let Some((at, _)) = run.state.deadlines().min_by_key(|(at, _)| *at)
            && at.since(now) < NEAR
        {
            self.volatile.insert((at, id));
        }
    }

    pub(crate) fn sweep(&mut self, now: Duration) {
        let could_hear = self.deps.neighbours.frontends_alive() && !self.health.is_away();
        for (id, activity_id, attempt) in self.liveness.sweep(now, could_hear) {
            tracing::info!(run = %id, activity = activity_id.0, attempt = attempt.0, "the worker of an attempt is silent; the attempt is lost");
            self.tell(id, Input::ActivityLost { activity_id, attempt });
        }
        if !self.health.is_away() {
            self.load_undone();
        }
        #[cfg(test)]
        self.cache.check();
        self.queries.sweep(now);
        metrics::WORKFLOW_CACHE_BYTES.set_count(self.deps.memory.used(), []);
        self.ready.sweep(now);
        self.waiters.retain(|_, waiting| {
            waiting.retain(|envelope| !envelope.responder.is_closed());
            !waiting.is_empty()
        });
        // Once a start is saved its deadline has a due row, which the scanner watches.
        let (cache, wall) = (&self.cache, self.deps.clock.now());
        self.volatile.retain(|(at, id)| at.since(wall) < NEAR || cache.peek(*id).is_some_and(|run| run.has_unsaved()));
    }

    /// Whether a worker has a task, as far as memory says.
    pub(crate) fn is_with_a_worker(&self, task: TaskId) -> bool {
        self.cache.peek(task.execution_id).and_then(|run| run.state.task(task.key)).is_some_and(|task| task.started.is_some())
    }

    /// Tells matching of ready tasks, and reads more of them where memory has room.
    pub(crate) fn offer(&mut self) {
        let (window, generation) = (self.deps.neighbours.offer_window(), self.deps.neighbours.offer_generation());
        let now = self.deps.clock.monotonic();
        for (key, sequence, task) in self.ready.take_offers(window, generation, now) {
            let activity_id = match task.key {
                TaskKey::Workflow => None,
                TaskKey::Activity(activity_id) => Some(activity_id),
            };
            let sticky = if activity_id.is_none() { self.cache.peek(task.execution_id).and_then(|run| run.sticky.clone()) } else { None };
            let offer = Offer {
                shard_id: self.shard_id,
                epoch: self.epoch,
                namespace: key.namespace.clone(),
                queue: key.queue.clone(),
                kind: key.kind,
                execution_id: task.execution_id,
                activity_id,
                query: None,
                sticky,
                sequence,
            };
            if self.ready.is_refused(&key, now) || !self.deps.neighbours.offer(offer) {
                self.ready.not_offered(&key, sequence, task, now);
                continue;
            }
            harvest_runtime::crash::point("history.offered");
        }
        for (key, after) in self.ready.wants_pages() {
            let (store, clock, shard_id, backlog) = (self.deps.store.clone(), self.deps.clock.clone(), self.shard_id, key.backlog());
            self.spawn(async move { Happening::TaskPage(key, patiently(&*clock, store.backlog(shard_id, &backlog, after, PAGE)).await) });
        }
    }

    /// Sends messages on their way.
    pub(crate) fn deliver(&mut self) {
        for (target, rows) in self.outbox.deliveries(self.deps.clock.monotonic()) {
            let neighbours = self.deps.neighbours.clone();
            self.spawn(async move { Happening::Delivered(target, neighbours.deliver(target, rows).await) });
        }
        if let Some(after) = self.outbox.wants_page() {
            let (store, clock, shard_id) = (self.deps.store.clone(), self.deps.clock.clone(), self.shard_id);
            self.spawn(async move { Happening::OutboxPage(patiently(&*clock, store.outbox(shard_id, after, PAGE)).await) });
        }
    }

    pub(crate) fn describe(&mut self, id: ExecutionId, envelope: Envelope) {
        let Some(run) = self.cache.peek(id) else { return };
        let answer = Answer::Described(Box::new(run.view(true)));
        if run.has_unsaved() {
            // It shows attempts whose start is only in memory: what a reader sees must last.
            self.open.touch(id, run.bytes());
        }
        self.ride(Some(id), envelope, Ok(answer));
    }

    pub(crate) fn locate(&mut self, id: ExecutionId, envelope: Envelope) {
        let Some(run) = self.cache.peek(id) else { return };
        let answer = Answer::Located { execution_id: id, status: run.state.status(), last_event: run.state.last_event_id() };
        self.ride(Some(id), envelope, Ok(answer));
    }

    pub(crate) fn await_close(&mut self, id: ExecutionId, envelope: Envelope) {
        match self.closed_answer(id) {
            Some(answer) => self.ride(Some(id), envelope, Ok(answer)),
            None => match self.waiting_results.admit(Group::Callers(id), operation_bytes(&envelope.operation)).inspect_err(count_refused) {
                // It may wait for long: not in the place of one that is answered soon.
                Ok(permit) => self.waiters.entry(id).or_default().push(Envelope { permit: Some(permit), ..envelope }),
                Err(refusal) => respond(envelope.responder, Err(refusal)),
            },
        }
    }

    fn closed_answer(&self, id: ExecutionId) -> Option<Answer> {
        let run = self.cache.peek(id)?;
        let (outcome, closed_at) = (run.state.outcome()?.clone(), run.state.closed_at()?);
        Some(Answer::Closed(Box::new(ClosedView { execution_id: id, outcome, closed_at })))
    }

    /// The close of a run has committed.
    pub(crate) fn answer_waiters(&mut self, id: ExecutionId) {
        let Some(waiting) = self.waiters.remove(&id) else { return };
        let Some(answer) = self.closed_answer(id) else { return };
        for envelope in waiting {
            respond(envelope.responder, Ok(answer.clone()));
        }
    }

    pub(crate) fn query(&mut self, id: ExecutionId, envelope: Envelope) {
        let Operation::Query { name, args, timeout, .. } = &envelope.operation else { return };
        let Some(run) = self.cache.peek(id) else { return };
        let undecided = run.state.is_open() && run.state.decided_to() == EventId(0);
        let deadline = self.deps.clock.monotonic() + timeout.as_duration();
        let (name, args) = (name.clone(), args.clone());
        self.dispatches += 1;
        let number = self.dispatches;
        if !self.queries.add(number, WaitingQuery { execution_id: id, name, args, deadline, taken_by: None, envelope }) {
            return;
        }
        if undecided {
            // Workflow code has not run yet, so that no query is registered: asking now would be answered that there is none.
            self.queries.hold(number, id);
        } else {
            self.offer_query(id, number);
        }
    }

    /// A decision of the run has committed: what waited for its first one can be asked now.
    pub(crate) fn release_queries(&mut self, id: ExecutionId) {
        let decided = self.cache.peek(id).is_some_and(|run| !run.state.is_open() || run.state.decided_to() > EventId(0));
        if decided {
            for number in self.queries.release(id) {
                self.offer_query(id, number);
            }
        }
    }

    fn offer_query(&self, id: ExecutionId, number: u64) {
        let Some(run) = self.cache.peek(id) else { return };
        let offer = Offer {
            shard_id: self.shard_id,
            epoch: self.epoch,
            namespace: run.key.namespace.clone(),
            queue: run.state.started().map(|started| started.task_queue.clone()).unwrap_or_default(),
            kind: OfferKind::Query,
            execution_id: id,
            activity_id: None,
            query: Some(number),
            sticky: run.sticky.clone(),
            sequence: 0,
        };
        if !self.deps.neighbours.offer(offer) {
            tracing::debug!(run = %id, "no matching process can be told of a query; it ends by its timeout");
        }
    }

    pub(crate) fn take_query(&mut self, id: ExecutionId, envelope: Envelope) {
        let Operation::TakeQuery { sequence, worker_id, .. } = &envelope.operation else { return };
        let (number, worker_id) = (*sequence, worker_id.clone());
        let Some(run) = self.cache.peek(id) else { return };
        let (view, last_event) = (run.view(false), run.state.last_event_id());
        let token = TaskToken {
            execution_id: id,
            activity_id: None,
            attempt: Attempt(0),
            dispatch: Dispatch { epoch: self.epoch, sequence: number, worker_id: worker_id.clone() },
        };
        let answer = match self.queries.take(number, id, &worker_id) {
            Some(query) => Answer::QueryTask(Box::new(TakenQuery { token, run: view, name: query.name.clone(), args: query.args.clone(), last_event })),
            None => Answer::Gone,
        };
        self.ride(Some(id), envelope, Ok(answer));
    }

    pub(crate) fn answer_query(&mut self, envelope: Envelope) {
        let Operation::AnswerQuery { token, worker_id, outcome } = &envelope.operation else { return };
        let answer = Answer::QueryAnswered(outcome.clone());
        let known = token.dispatch.worker_id == *worker_id && self.queries.answer(token.dispatch.sequence, worker_id, answer);
        let answer = if known {
            Ok(Answer::Gone)
        } else {
            Err(Refusal::Reject(Reject::StaleTask { reason: "the query has been answered, has timed out, or was given to another worker" }))
        };
        respond(envelope.responder, answer);
    }
}
