//! A run in memory: its state, its newest events, and what of it is saved.

use super::eager::GivenBefore;
use super::facts::{self, Fact};
use super::operation::{ActivityView, BusinessKey, RunView, TakenActivityTask, TakenWorkflowTask};
use harvest_ids::{DurationMs, EventId, ExecutionId, Timestamp, WorkerId};
use harvest_persistence::batch::{Batch, DueRow, HistoryRow, RunMutable, RunRow, RunUpdate, TaskId, TaskRow};
use harvest_persistence::store::StoredRun;
use harvest_workflow_core::event::Event;
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::machine::activity::{Activity, ActivityPhase};
use harvest_workflow_core::machine::workflow_task::WorkflowTask;
use harvest_workflow_core::measure::{event_bytes, record_bytes};
use harvest_workflow_core::projection::{Projection, TaskKey};
use harvest_workflow_core::record::Record;
use harvest_workflow_core::state::State;
use std::collections::{BTreeMap, VecDeque};

/// Most bytes of newest events that a run keeps for dispatch; older ones are read from the store.
const TAIL_BYTES: u64 = 256 * 1024;
/// A run in memory besides what its state and its events weigh: itself, its key, its places in the maps.
const RUN_BYTES: u64 = 1_024;
/// A record in memory besides what it is measured with.
const RECORD_BYTES: u64 = 160;
/// A pending task in memory.
const TASK_BYTES: u64 = 64;

/// A run in memory.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) execution_id: ExecutionId,
    pub(crate) key: BusinessKey,
    pub(crate) state: State,
    /// Newest events, ending with the newest of `state`.
    tail: VecDeque<Event>,
    tail_bytes: u64,
    /// Records that are in no sealed batch yet.
    unsaved: Vec<Record>,
    unsaved_bytes: u64,
    unsaved_first: u64,
    unsaved_first_event: EventId,
    /// What the rows hold once all sealed batches have committed; `None` before the first.
    saved: Option<Saved>,
    /// The newest batch that holds something of this run.
    pub(crate) last_batch: u64,
    /// The worker session that made the last decision.
    pub(crate) sticky: Option<WorkerId>,
    /// What the newest answer to a worker gave it.
    pub(crate) given: Option<GivenBefore>,
    /// When it was last used, for eviction: a counter of the cache.
    pub(crate) used: u64,
    /// It was loaded for an operation that has not had it yet.
    pub(crate) awaited: bool,
}

#[derive(Debug, Clone)]
struct Saved {
    mutable: RunMutable,
    tasks: BTreeMap<TaskKey, i64>,
    due_at: Option<Timestamp>,
}

/// What a sealed batch makes visible of one run when it commits.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub(crate) execution_id: ExecutionId,
    pub(crate) due_at: Option<Timestamp>,
    /// Tasks that wait for a worker, with their sequence.
    pub(crate) ready: Vec<TaskRow>,
    pub(crate) closed: bool,
    pub(crate) facts: Vec<Fact>,
}

impl Run {
    /// A run that does not exist yet.
    pub(crate) fn new(execution_id: ExecutionId, key: BusinessKey) -> Self {
        Self {
            execution_id,
            key,
            state: State::empty(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            unsaved: Vec::new(),
            unsaved_bytes: 0,
            unsaved_first: 1,
            unsaved_first_event: EventId(1),
            saved: None,
            last_batch: 0,
            sticky: None,
            given: None,
            used: 0,
            awaited: false,
        }
    }

    /// A run from the store.
    pub(crate) fn load(stored: StoredRun) -> Result<Self, harvest_wire::WireError> {
        let row = stored.row;
        let key = BusinessKey { namespace: row.namespace, workflow_type: row.workflow_type, workflow_id: row.workflow_id };
        let mut run = Self::new(row.execution_id, key);
        for bytes in &stored.records {
            for record in harvest_wire::records::decode(bytes)? {
                run.state.apply(&record);
                run.note(record);
            }
        }
        run.clear_unsaved();
        let tasks = stored.tasks.into_iter().map(|task| (task.task.key, task.sequence)).collect();
        run.saved = Some(Saved { mutable: row.mutable, tasks, due_at: stored.due_at });
        Ok(run)
    }

    /// Takes what the core decided (and has already applied to the state). Returns what the records weigh.
    pub(crate) fn record(&mut self, records: Vec<Record>) -> u64 {
        let before = self.unsaved_bytes;
        for record in records {
            self.note(record.clone());
            self.unsaved_bytes += record_bytes(&record) + RECORD_BYTES;
            self.unsaved.push(record);
        }
        self.unsaved_bytes - before
    }

    /// Bytes of memory that the run takes, by estimate. Costs nothing to ask. Payloads that the state and the newest events share count twice.
    pub(crate) fn bytes(&self) -> u64 {
        let lengths = RECORD_BYTES * wide(self.tail.len()) + TASK_BYTES * wide(self.saved.as_ref().map_or(0, |saved| saved.tasks.len()));
        RUN_BYTES + self.state.memory_bytes() + self.tail_bytes + self.unsaved_bytes + lengths
    }

    /// The same, counted anew: what a test compares [`Run::bytes`] with.
    #[cfg(test)]
    pub(crate) fn recounted_bytes(&self) -> u64 {
        let tail: u64 = self.tail.iter().map(|event| event_bytes(&event.kind) + RECORD_BYTES).sum();
        let unsaved: u64 = self.unsaved.iter().map(|record| record_bytes(record) + RECORD_BYTES).sum();
        let tasks = TASK_BYTES * wide(self.saved.as_ref().map_or(0, |saved| saved.tasks.len()));
        RUN_BYTES + self.state.recounted_memory_bytes() + tail + unsaved + tasks
    }

    fn note(&mut self, record: Record) {
        let Record::Event(event) = record else { return };
        if let harvest_workflow_core::event::EventKind::WorkflowTaskCompleted(completed) = &event.kind {
            self.sticky = Some(completed.worker_id.clone());
        }
        self.tail_bytes += event_bytes(&event.kind);
        self.tail.push_back(event);
        while self.tail_bytes > TAIL_BYTES && self.tail.len() > 1 {
            if let Some(oldest) = self.tail.pop_front() {
                self.tail_bytes -= event_bytes(&oldest.kind);
            }
        }
    }

    /// Events from `first` to `last`, when all are in memory.
    pub(crate) fn events(&self, first: EventId, last: EventId) -> Option<Vec<Event>> {
        let oldest = self.tail.front()?.id;
        (oldest <= first).then(|| self.tail.iter().filter(|event| event.id >= first && event.id <= last).cloned().collect())
    }

    /// The newest event, when it is in memory.
    pub(crate) fn newest_event(&self) -> Option<&Event> {
        self.tail.back()
    }

    /// The workflow task for the worker that has taken it.
    pub(crate) fn taken_workflow_task(&self, token: TaskToken, first_event: EventId, last_event: EventId, timeout: DurationMs) -> TakenWorkflowTask {
        let events = self.events(first_event, last_event);
        let started_at = match self.state.workflow_task() {
            WorkflowTask::Started { at, .. } => *at,
            WorkflowTask::None | WorkflowTask::Ready { .. } | WorkflowTask::Backoff { .. } => self.state.last_record_at(),
        };
        TakenWorkflowTask { token, run: self.view(false), first_event, events, last_event, timeout, started_at }
    }

    /// An activity's task for the worker that has taken it.
    pub(crate) fn taken_activity(&self, token: TaskToken, activity: &Activity) -> TakenActivityTask {
        let started_at = match activity.phase() {
            ActivityPhase::Running { started_at, .. } => *started_at,
            ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => self.state.last_record_at(),
        };
        TakenActivityTask {
            started_at,
            closes_at: activity.closes_at(),
            token,
            run: self.view(false),
            spec: activity.spec().clone(),
            heartbeat_details: activity.heartbeat_details().cloned(),
            previous_failure: activity.last_failure().cloned(),
        }
    }

    /// Records that are in no sealed batch.
    pub(crate) fn unsaved(&self) -> &[Record] {
        &self.unsaved
    }

    /// Forgets the newest events: the run has ended, and who wants them reads the store.
    pub(crate) fn forget_events(&mut self) {
        self.tail = VecDeque::new();
        self.tail_bytes = 0;
    }

    /// Whether there are records in no sealed batch.
    pub(crate) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    fn clear_unsaved(&mut self) {
        // A large decision must not leave its room behind in every run.
        self.unsaved = Vec::new();
        self.unsaved_bytes = 0;
        self.unsaved_first = self.state.record_count() + 1;
        self.unsaved_first_event = self.state.last_event_id().next();
    }

    /// Adds the difference between what is saved and the state to a batch.
    pub(crate) fn seal(&mut self, batch: &mut Batch, next_task_sequence: &mut i64) -> Sealed {
        let projection = self.state.projection();
        let mutable = self.mutable(&projection);
        if !self.unsaved.is_empty() {
            batch.history.push(self.history_row());
        }
        let facts = facts::of_records(&self.unsaved, projection.status);
        let saved = match self.saved.take() {
            Some(saved) => {
                if saved.mutable != mutable {
                    batch.runs_changed.push(RunUpdate { execution_id: self.execution_id, mutable: mutable.clone() });
                }
                saved
            }
            None => {
                batch.runs_new.push(self.row(mutable.clone()));
                Saved { mutable: mutable.clone(), tasks: BTreeMap::new(), due_at: None }
            }
        };
        let tasks = self.seal_tasks(batch, &saved, &projection, next_task_sequence);
        match (saved.due_at, projection.due_at) {
            (None, Some(due_at)) => batch.due_new.push(DueRow { execution_id: self.execution_id, due_at }),
            (Some(old), Some(due_at)) if old != due_at => batch.due_changed.push(DueRow { execution_id: self.execution_id, due_at }),
            (Some(_), None) => batch.due_gone.push(self.execution_id),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let ready = self.ready(&projection, &tasks);
        self.saved = Some(Saved { mutable, tasks, due_at: projection.due_at });
        self.clear_unsaved();
        Sealed { execution_id: self.execution_id, due_at: projection.due_at, ready, closed: projection.closed_at.is_some(), facts }
    }

    fn seal_tasks(&self, batch: &mut Batch, saved: &Saved, projection: &Projection, next: &mut i64) -> BTreeMap<TaskKey, i64> {
        let mut tasks = BTreeMap::new();
        for (key, task) in &projection.tasks {
            let sequence = saved.tasks.get(key).copied().unwrap_or_else(|| {
                let sequence = *next;
                *next += 1;
                batch.tasks_new.push(TaskRow { task: self.task_id(*key), sequence, namespace: self.key.namespace.clone(), queue: task.queue.clone() });
                sequence
            });
            tasks.insert(*key, sequence);
        }
        batch.tasks_gone.extend(saved.tasks.keys().filter(|key| !tasks.contains_key(key)).map(|key| self.task_id(*key)));
        tasks
    }

    /// Tasks that have a row and wait for a worker.
    pub(crate) fn waiting_tasks(&self) -> Vec<TaskRow> {
        self.saved.as_ref().map(|saved| self.ready(&self.state.projection(), &saved.tasks)).unwrap_or_default()
    }

    fn ready(&self, projection: &Projection, tasks: &BTreeMap<TaskKey, i64>) -> Vec<TaskRow> {
        let waiting = projection.tasks.iter().filter(|(_, task)| task.started.is_none());
        waiting
            .filter_map(|(key, task)| {
                let sequence = *tasks.get(key)?;
                Some(TaskRow { task: self.task_id(*key), sequence, namespace: self.key.namespace.clone(), queue: task.queue.clone() })
            })
            .collect()
    }

    fn task_id(&self, key: TaskKey) -> TaskId {
        TaskId { execution_id: self.execution_id, key }
    }

    fn history_row(&self) -> HistoryRow {
        let events = self.state.last_event_id().0 + 1 - self.unsaved_first_event.0;
        HistoryRow {
            execution_id: self.execution_id,
            first_record: self.unsaved_first,
            record_count: u32::try_from(self.unsaved.len()).expect("a batch holds far fewer records than 2^32"),
            first_event: self.unsaved_first_event,
            event_count: u32::try_from(events).expect("a batch holds far fewer events than 2^32"),
            records: harvest_wire::records::encode(&self.unsaved),
        }
    }

    fn mutable(&self, projection: &Projection) -> RunMutable {
        RunMutable {
            status: projection.status,
            closed_at: projection.closed_at,
            last_event: projection.last_event,
            continued_as: self.state.continued_as(),
            blocked_at: projection.blocked.as_ref().map(|block| block.since),
            // NUL cannot be stored as text; the message comes from a worker.
            blocked_reason: projection.blocked.as_ref().map(|block| block.message.replace('\0', "\u{fffd}").chars().take(1024).collect()),
            paused_at: projection.paused_at,
            sla_deadline_at: projection.sla_deadline,
            sla_breached_at: projection.sla_breached_at,
        }
    }

    fn row(&self, mutable: RunMutable) -> RunRow {
        let started = self.state.started().expect("a run is sealed only after its start was decided");
        RunRow {
            execution_id: self.execution_id,
            namespace: self.key.namespace.clone(),
            workflow_type: self.key.workflow_type.clone(),
            workflow_id: self.key.workflow_id.clone(),
            first_execution_id: started.first_execution_id,
            parent_execution_id: started.parent.as_ref().map(|parent| parent.execution_id),
            task_queue: started.task_queue.clone(),
            started_at: self.state.started_at().unwrap_or_default(),
            execution_timeout_ms: started.execution_timeout.map(|span| span.as_millis()),
            sla_ms: started.sla.map(|span| span.as_millis()),
            mutable,
        }
    }

    /// Counts facts that have committed.
    pub(crate) fn count(&self, facts: &[Fact], now: Timestamp) {
        let (Some(started), Some(at)) = (self.state.started(), self.state.started_at()) else { return };
        facts.iter().for_each(|fact| facts::count(*fact, &self.key, started.task_queue.as_str(), at, now));
    }

    /// What is known of the run without its history.
    pub(crate) fn view(&self, with_activities: bool) -> RunView {
        let started = self.state.started().expect("only existing runs are viewed");
        RunView {
            execution_id: self.execution_id,
            key: self.key.clone(),
            first_execution_id: started.first_execution_id,
            parent_execution_id: started.parent.as_ref().map(|parent| parent.execution_id),
            task_queue: started.task_queue.clone(),
            status: self.state.status(),
            started_at: self.state.started_at().unwrap_or_default(),
            closed_at: self.state.closed_at(),
            last_event: self.state.last_event_id(),
            continued_as: self.state.continued_as(),
            execution_timeout: started.execution_timeout,
            execution_deadline: self.state.execution_deadline(),
            sla: started.sla,
            sla_deadline: self.state.sla_deadline(),
            sla_breached_at: self.state.sla_breached_at(),
            pause: self.state.pause().cloned(),
            blocked: self.state.blocked().cloned(),
            activities: if with_activities { self.state.activities().map(|(id, activity)| activity_view(id, activity)).collect() } else { Vec::new() },
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn activity_view(activity_id: EventId, activity: &Activity) -> ActivityView {
    let (attempt, state, worker_id, retry_at) = match activity.phase() {
        ActivityPhase::Ready { attempt, .. } => (*attempt, "SCHEDULED", None, None),
        ActivityPhase::Running { attempt, dispatch, .. } => (*attempt, "STARTED", Some(dispatch.worker_id.clone()), None),
        ActivityPhase::Backoff { until, attempt } => (*attempt, "BACKING_OFF", None, Some(*until)),
    };
    let last_failure = activity.last_failure().cloned();
    ActivityView { activity_id, activity_type: activity.spec().activity_type.to_string(), attempt, state, worker_id, retry_at, last_failure }
}
