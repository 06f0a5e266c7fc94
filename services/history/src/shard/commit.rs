//! The way of a batch: sealed, with the store, committed, lost, poisoned or unknown; and what a commit sets off.

use super::actor::{Actor, Happening, NEAR, PAGE};
use super::batch::{InFlight, MAX_DECISIONS, OpenBatch, Riding, respond};
use super::operation::{Answer, Operation, Refusal};
use super::outage::pauses;
use super::run::Run;
use harvest_ids::{ActivityId, Epoch, ExecutionId, Timestamp};
use harvest_persistence::batch::{Batch, BatchId};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::store::{Fence, ShardWriter};
use harvest_runtime::{crash, metrics};
use harvest_workflow_core::input::Input;
use harvest_workflow_core::record::{Control, Dispatch, Record, WorkflowTaskFailure};
use std::collections::BTreeSet;

impl Actor {
    /// Seals and sends the open batch when none is with the store.
    pub(crate) fn send_batch(&mut self) {
        if self.lost || self.in_flight.is_some() || !self.open.has_writes() {
            return;
        }
        if self.lingers(self.deps.clock.monotonic()).is_some() {
            return;
        }
        let Some(writer) = self.writer.take() else { return };
        self.pace.sent(self.open.riding.len());
        let open = std::mem::take(&mut self.open);
        let id = BatchId { shard_id: self.shard_id, epoch: self.epoch, batch_seq: self.committed + 1 };
        let OpenBatch { touched, outbox, delivered, riding, .. } = open;
        let mut batch = Batch { outbox_new: outbox, outbox_gone: delivered, ..Batch::default() };
        let mut sealed = Vec::with_capacity(touched.len());
        for execution_id in touched {
            let next_task_sequence = &mut self.next_task_sequence;
            sealed.extend(self.cache.change(execution_id, |run| {
                run.last_batch = id.batch_seq;
                run.seal(&mut batch, next_task_sequence)
            }));
        }
        let sent = self.deps.clock.monotonic();
        self.in_flight = Some(InFlight { sent, id, batch, sealed, riding, late: Vec::new() });
        self.health.sent(sent);
        crash::point("history.before_send");
        self.commit(writer);
    }

    fn commit(&mut self, mut writer: Box<dyn ShardWriter>) {
        let Some(in_flight) = &self.in_flight else { return };
        let (id, batch) = (in_flight.id, in_flight.batch.clone());
        self.spawn(async move {
            let outcome = {
                let mut commit = writer.commit(id, &batch);
                // The first poll sends the statement: whoever dies here dies with it in flight.
                tokio::select! {
                    biased;
                    outcome = &mut commit => outcome,
                    () = tokio::task::yield_now() => {
                        crash::point("history.in_flight");
                        commit.await
                    }
                }
            };
            Happening::Committed(writer, outcome)
        });
    }

    pub(crate) fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Committed(writer, outcome) => self.commit_returned(writer, outcome),
            Happening::Settled(fence) => self.settled(fence),
            Happening::Reopened(epoch, writer) => self.reopened(epoch, writer),
            Happening::Backlog(found) => self.backlog_read(found),
            Happening::Loaded(id, stored) => {
                self.note_read(&stored);
                self.loaded(id, stored);
            }
            Happening::Found(keys, found) => {
                self.note_read(&found);
                self.found(keys, found);
            }
            Happening::Checked(riding, epoch) => self.checked(riding, epoch),
            Happening::Delivered(target, success) => {
                let done = self.outbox.delivered(target, success, self.deps.clock.monotonic());
                if success {
                    crash::point("history.delivered");
                }
                self.open.delivered.extend(done);
            }
            Happening::TaskPage(key, rows) => {
                let rows = self.page_or_warn(rows);
                // Rows stay until tasks have ended: what a worker has, and what was announced after a takeover, is not offered again.
                let taken = rows.iter().flatten().map(|row| row.task).filter(|task| self.is_with_a_worker(*task)).collect();
                self.ready.page(&key, rows, PAGE as usize, &taken);
            }
            Happening::Announced(riding) => self.clean.push(*riding),
            Happening::OutboxPage(rows) => {
                let rows = self.page_or_warn(rows).map(|rows| rows.into_iter().map(|row| (self.deps.neighbours.shard_of(row.target), row)).collect());
                self.outbox.page(rows, PAGE as usize);
            }
            Happening::HoldOver => {
                for queue in std::mem::take(&mut self.held) {
                    self.ready.add_backlog(&queue);
                }
            }
        }
    }

    fn page_or_warn<T>(&mut self, page: Result<Vec<T>, StoreError>) -> Option<Vec<T>> {
        self.note_read(&page);
        let news = self.health.page_read(page.is_err());
        if let Err(error) = &page
            && news
        {
            tracing::warn!(shard = self.shard_id.0, %error, "a page of pending work cannot be read; it is tried again");
        }
        page.ok()
    }

    fn commit_returned(&mut self, writer: Box<dyn ShardWriter>, outcome: Result<(), CommitError>) {
        match outcome {
            Ok(()) => {
                self.writer = Some(writer);
                crash::point("history.committed");
                self.release_batch();
                self.answered();
            }
            Err(CommitError::ShardLost) => self.lose(),
            Err(CommitError::Poisoned(message)) => {
                self.writer = Some(writer);
                if !self.health.is_away() {
                    self.poisoned(&message);
                }
                self.answered();
            }
            Err(CommitError::Unavailable(error)) => self.batch_failed(&error, false),
            Err(CommitError::Unknown(error)) => self.batch_failed(&error, true),
        }
    }

    /// The store has answered a commit. If its callers have been refused meanwhile, what they asked for is not in memory any more.
    fn answered(&mut self) {
        if self.health.is_away() {
            self.forget_undurable();
            self.returned();
        }
        self.store_answered();
    }

    /// Finds out whether the batch in flight has landed, by raising the epoch: that waits for the old statement.
    pub(crate) fn settle(&mut self) {
        self.settling = true;
        let (store, clock) = (self.deps.store.clone(), self.deps.clock.clone());
        let id = BatchId { shard_id: self.shard_id, epoch: self.epoch, batch_seq: self.sealed_batch() };
        self.spawn(async move {
            let mut pauses = pauses();
            loop {
                match store.settle(id).await {
                    Ok(fence) => return Happening::Settled(fence),
                    Err(error) => {
                        tracing::debug!(shard = id.shard_id.0, %error, "settling is tried again");
                        clock.sleep(pauses.next().unwrap_or_default()).await;
                    }
                }
            }
        });
    }

    fn settled(&mut self, fence: Option<Fence>) {
        let Some(fence) = fence else {
            self.lose();
            return;
        };
        self.settling = false;
        self.epoch = fence.epoch;
        let landed = self.in_flight.as_mut().map(|in_flight| {
            in_flight.id.epoch = fence.epoch;
            fence.batch_seq == in_flight.id.batch_seq
        });
        tracing::info!(shard = self.shard_id.0, epoch = fence.epoch.0, landed, "the outcome of the commit is settled");
        self.owed_acknowledgement = Some((self.owed_acknowledgement.map_or(0, |(after, _)| after), self.config.version));
        if landed == Some(true) {
            self.release_batch();
        }
        if self.health.is_away() {
            self.forget_undurable();
        } else if landed == Some(true) {
            self.store_answered();
        }
        self.reopen();
    }

    /// Opens a new writer; a batch that is still in flight is then sent (again).
    pub(crate) fn reopen(&mut self) {
        let (store, clock, shard_id, epoch) = (self.deps.store.clone(), self.deps.clock.clone(), self.shard_id, self.epoch);
        self.spawn(async move {
            let mut pauses = pauses();
            loop {
                clock.sleep(pauses.next().unwrap_or_default()).await;
                match store.open_writer(shard_id, epoch).await {
                    Ok(writer) => return Happening::Reopened(epoch, writer),
                    Err(error) => tracing::debug!(shard = shard_id.0, %error, "opening a writer is tried again"),
                }
            }
        });
    }

    fn reopened(&mut self, epoch: Epoch, writer: Box<dyn ShardWriter>) {
        if self.settling || epoch != self.epoch {
            return; // the epoch is being raised, or has been: another writer follows
        }
        match (self.health.is_away(), self.in_flight.is_some()) {
            (false, true) => self.commit(writer),
            (false, false) => self.writer = Some(writer),
            // Callers have been refused while it was being opened: the batch is not for them any more.
            (true, true) => self.settle(),
            (true, false) => {
                self.writer = Some(writer);
                self.returned();
            }
        }
    }

    /// The batch in flight is durable: answers leave, and what follows from it is set off.
    fn release_batch(&mut self) {
        let Some(in_flight) = self.in_flight.take() else { return };
        self.committed = in_flight.id.batch_seq;
        self.pace.returned(self.deps.clock.monotonic());
        metrics::ENGINE_COMMIT_DURATION.record_duration(self.deps.clock.monotonic().saturating_sub(in_flight.sent), []);
        metrics::ENGINE_COMMIT_DECISIONS.record(f64::from(u32::try_from(in_flight.riding.len()).unwrap_or(u32::MAX)), []);
        for riding in in_flight.riding {
            self.release(riding);
        }
        for riding in in_flight.late {
            self.ride_proof(riding);
        }
        let horizon = Timestamp::from_millis(self.deps.clock.now().as_millis().saturating_add(i64::try_from(NEAR.as_millis()).unwrap_or(i64::MAX)));
        let mut near = Vec::new();
        metrics::ENGINE_COMMITS.add(1, ["committed"]);
        let now = self.deps.clock.now();
        for sealed in &in_flight.sealed {
            if let Some(run) = self.cache.peek(sealed.execution_id) {
                run.count(&sealed.facts, now);
            }
            for row in &sealed.ready {
                // A task that was ready before, too, may have been taken while the batch was away.
                let run = self.cache.peek(sealed.execution_id);
                if run.and_then(|run| run.state.task(row.task.key)).is_some_and(|task| task.started.is_none()) {
                    self.ready.add(row);
                }
            }
            if let Some(due_at) = sealed.due_at
                && due_at <= horizon
            {
                near.push((sealed.execution_id, due_at));
            }
            if sealed.closed {
                self.answer_waiters(sealed.execution_id);
                self.cache.change(sealed.execution_id, Run::forget_events);
            }
            self.release_queries(sealed.execution_id);
        }
        if !near.is_empty() {
            self.deps.neighbours.arm(self.shard_id, near);
        }
        for row in in_flight.batch.outbox_new {
            self.outbox.add(self.deps.neighbours.shard_of(row.target), row);
        }
    }

    /// Drops runs from memory when they are too many or too large. What is only there is written first, oldest first.
    pub(crate) fn make_room(&mut self) {
        if !self.cache.is_over_capacity() && !self.cache.has_stray_keys() {
            return;
        }
        let (committed, open, resuming) = (self.committed, &self.open.touched, !self.resumed.is_empty());
        self.cache.evict(|run| {
            let awaited = run.awaited && resuming;
            awaited || run.last_batch > committed || run.has_unsaved() || open.contains(&run.execution_id)
        });
        if self.cache.is_over_capacity() {
            self.save_unsaved(MAX_DECISIONS);
        }
    }

    /// Some value was refused and nobody knows whose: all decisions since the last commit are undone in memory and decided again, one
    /// by one, so that the offender alone gets the error.
    fn poisoned(&mut self, message: &str) {
        let Some(mut in_flight) = self.in_flight.take() else { return };
        in_flight.riding = in_flight.take_riding();
        let open = std::mem::take(&mut self.open);
        // A start whose answer rides was told nobody: the task is taken again when the taking is decided again.
        let untold = in_flight.riding.iter().chain(&open.riding).flat_map(dispatches_of).collect();
        self.undo(BTreeSet::new(), Some(&in_flight), &open, &untold);
        self.open.delivered = open.delivered;
        let mut again = in_flight.riding;
        if again.len() > 1 {
            tracing::warn!(shard = self.shard_id.0, message, "a batch is poisoned; its decisions are made again one by one");
            self.open.delivered.extend(in_flight.batch.outbox_gone);
        } else {
            let run = in_flight.sealed.first().map(|sealed| sealed.execution_id);
            tracing::error!(shard = self.shard_id.0, ?run, message, "a decision is poisoned");
            if run.is_some() {
                self.open.delivered.extend(in_flight.batch.outbox_gone); // otherwise they were all that the batch held
            }
            again.drain(..).for_each(|offender| self.refuse_poisoned(offender, message));
        }
        again.extend(open.riding);
        // Those that were undone come before those that were still waiting for their turn, and these before those not yet decided.
        for riding in again.into_iter().rev() {
            self.solo.push_front(riding.envelope);
        }
        let undecided = std::mem::take(&mut self.resumed);
        self.solo.extend(undecided.into_iter().map(|(_, envelope)| envelope));
    }

    /// Runs of two batches, and these, are read again; which of their tasks workers have is not forgotten. `untold` are dispatches that no
    /// worker has heard of.
    pub(crate) fn undo(&mut self, mut runs: BTreeSet<ExecutionId>, in_flight: Option<&InFlight>, open: &OpenBatch, untold: &BTreeSet<(Epoch, u64)>) {
        let mut starts: Vec<(ExecutionId, LostStart)> = Vec::new();
        for row in in_flight.iter().flat_map(|in_flight| &in_flight.batch.history) {
            let records = harvest_wire::records::decode(&row.records).expect("what was encoded here decodes");
            starts.extend(records.iter().filter_map(start_of).map(|start| (row.execution_id, start)));
        }
        runs.extend(in_flight.iter().flat_map(|in_flight| &in_flight.sealed).map(|sealed| sealed.execution_id));
        runs.extend(&open.touched);
        for id in runs {
            let unsaved = self.cache.peek(id).map(|run| run.unsaved()).unwrap_or_default();
            starts.extend(unsaved.iter().filter_map(start_of).map(|start| (id, start)));
            self.cache.forget(id);
            self.undone.entry(id).or_default();
        }
        for (id, start) in starts {
            if !untold.contains(&(start.dispatch.epoch, start.dispatch.sequence)) {
                self.undone.entry(id).or_default().push(start);
            }
        }
        self.load_undone();
    }

    /// Runs that were undone are loaded also when nobody asks for them: their attempts have to be watched.
    pub(crate) fn load_undone(&mut self) {
        let ids: Vec<ExecutionId> = self.undone.keys().copied().collect();
        for id in ids {
            self.load(id);
        }
    }

    /// The workflow task of a decision that cannot be stored fails, visibly, and is tried again with growing delays.
    fn refuse_poisoned(&mut self, mut offender: Riding, message: &str) {
        if let Operation::Eager(eager) = &mut offender.envelope.operation
            && eager.ahead.take().is_some()
        {
            // What the worker decided ahead is out; its result may be good.
            self.solo.push_front(offender.envelope);
            return;
        }
        let input = match &offender.envelope.operation {
            Operation::Input { input, .. } => Some(input),
            Operation::Eager(eager) => Some(&eager.input),
            _ => None,
        };
        if let Some(Input::CompleteWorkflowTask(complete)) = input {
            let (token, worker_id) = (complete.token.clone(), complete.worker_id.clone());
            let cause = WorkflowTaskFailure::WorkerError { message: format!("the store refuses the decision's data: {message}") };
            self.tell(token.execution_id, Input::FailWorkflowTask { token, worker_id, cause });
        }
        respond(offender.envelope.responder, Err(Refusal::Poisoned(message.to_owned())));
    }

    /// A run that was undone is loaded: starts that workers know of are done again, in memory as before.
    pub(crate) fn restart_tasks(&mut self, id: ExecutionId) {
        let Some(starts) = self.undone.remove(&id) else { return };
        for LostStart { activity_id, dispatch } in starts {
            let input = match activity_id {
                None => Input::StartWorkflowTask { dispatch },
                Some(activity_id) => Input::StartActivity { activity_id, dispatch },
            };
            if let Err(reject) = self.decide(id, &input, true) {
                tracing::debug!(run = %id, %reject, "a start that was undone is not needed again");
            }
        }
        // Others were taken by what is undone: nobody has them, and their offers are over.
        for row in self.cache.peek(id).map(Run::waiting_tasks).unwrap_or_default() {
            self.ready.add(&row);
        }
        self.note_volatile_deadline(id);
    }

    /// Decides the next operation of a poisoned batch once the one before it is through.
    pub(crate) fn next_solo(&mut self) {
        let busy = self.in_flight.is_some() || self.open.has_writes() || self.parked > 0 || !self.loading.is_empty() || !self.resumed.is_empty();
        if !busy && let Some(envelope) = self.solo.pop_front() {
            self.take(envelope);
        }
    }

    /// Writes starts of tasks that are only in memory, of so many runs.
    pub(crate) fn save_unsaved(&mut self, most: usize) {
        let unsaved = self.cache.runs().take(most.saturating_mul(2)).filter(|run| run.has_unsaved()).take(most);
        unsaved.for_each(|run| self.open.touch(run.execution_id, run.bytes()));
    }
}

/// A start that a worker was told of and that no commit holds yet.
#[derive(Debug)]
pub(crate) struct LostStart {
    activity_id: Option<ActivityId>,
    dispatch: Dispatch,
}

fn start_of(record: &Record) -> Option<LostStart> {
    match record {
        Record::Control(Control::WorkflowTaskStarted { dispatch, .. }) => Some(LostStart { activity_id: None, dispatch: dispatch.clone() }),
        Record::Control(Control::ActivityAttemptStarted { activity_id, dispatch, .. }) => {
            Some(LostStart { activity_id: Some(*activity_id), dispatch: dispatch.clone() })
        }
        Record::Control(_) | Record::Event(_) => None,
    }
}

/// Dispatches that only this answer tells of.
pub(crate) fn dispatches_of(riding: &Riding) -> Vec<(Epoch, u64)> {
    let of = |dispatch: &Dispatch| (dispatch.epoch, dispatch.sequence);
    match &riding.answer {
        Ok(Answer::WorkflowTask(task)) => vec![of(&task.token.dispatch)],
        Ok(Answer::ActivityTask(task)) => vec![of(&task.token.dispatch)],
        Ok(Answer::Given(given)) => given.activities.iter().map(|task| &task.token.dispatch).chain(&given.own_dispatch).map(of).collect(),
        Ok(_) | Err(_) => Vec::new(),
    }
}
