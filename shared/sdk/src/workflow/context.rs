//! The context of a workflow function.

use crate::definition::{ActivityDefinition, WorkflowDefinition};
use crate::error::HarvestError;
use crate::options::ActivityOptions;
use crate::payload;
use crate::workflow::future::{ActivityFuture, Cancelled, ContinueAsNew, ItemFuture, TimerHandle};
use crate::workflow::shared::RunShared;
use harvest_ids::{ActivityType, DurationMs, TimerName, Timestamp, WorkflowType};
use harvest_sdk_replay::{Handle, LocalActivity, Recorded, Take};
use harvest_workflow_core::command::{Command, ScheduleActivity};
use harvest_workflow_core::event::{SideEffectKind, WorkflowStarted};
use harvest_workflow_core::payload::Payload;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What a workflow function does its durable work with. Cheap to clone.
///
/// Everything that it answers is the same on every replay. Code between two awaits must not depend on anything else that changes: take
/// the clock, randomness and other outside values from here, and do I/O in activities.
#[derive(Clone)]
pub struct WorkflowContext {
    pub(crate) shared: Arc<RunShared>,
    pub(crate) started: Arc<WorkflowStarted>,
    pub(crate) started_at: Timestamp,
}

/// What a run knows about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkflowInfo {
    /// The tenant.
    pub namespace: String,
    /// The function.
    pub workflow_type: String,
    /// The business key.
    pub workflow_id: String,
    /// This run.
    pub execution_id: String,
    /// The first run of the chain of continue-as-new.
    pub first_execution_id: String,
    /// The run that this one continues.
    pub continued_from: Option<String>,
    /// The parent run, for a child.
    pub parent_execution_id: Option<String>,
    /// Where its tasks wait.
    pub task_queue: String,
    /// When it was started.
    pub started_at: SystemTime,
    /// Its effective execution timeout.
    pub execution_timeout: Option<Duration>,
    /// How many events its history has, as of now in the code.
    pub history_event_count: u64,
}

/// The name under which [`WorkflowContext::should_continue_as_new`] records the clock: readings of authors have none, so that neither takes the
/// other's.
const CONTINUE_AS_NEW_READING: &str = "__harvest_continue_as_new";

/// What it found, with what it said then: a replay says the same, though a pause may have put the deadline off since.
#[derive(Serialize, Deserialize)]
struct Reading {
    at_ms: i64,
    answer: bool,
}

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_millis(at: SystemTime) -> i64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// An instant as the standard library has it.
pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    match u64::try_from(at.as_millis()) {
        Ok(millis) => SystemTime::UNIX_EPOCH + Duration::from_millis(millis),
        Err(_) => SystemTime::UNIX_EPOCH - Duration::from_millis(at.as_millis().unsigned_abs()),
    }
}

impl WorkflowContext {
    /// Schedules an activity: `ctx.execute_activity(&charge, order).await?`. It is asked for at once; the future waits for its result.
    ///
    /// # Errors
    /// The future's: [`HarvestError::ActivityFailed`], [`HarvestError::Timeout`], [`HarvestError::Cancelled`], or what is wrong with the call.
    pub fn execute_activity<A: ActivityDefinition>(&self, activity: &impl Fn() -> A, input: A::Input) -> ActivityFuture<A::Output> {
        self.execute_activity_with_opts(activity, input, ActivityOptions::default())
    }

    /// The same with options that win over the activity's attribute.
    pub fn execute_activity_with_opts<A: ActivityDefinition>(
        &self,
        _activity: &impl Fn() -> A,
        input: A::Input,
        options: ActivityOptions,
    ) -> ActivityFuture<A::Output> {
        let input = payload::to_payload("activity input", &input);
        if A::is_local() {
            return self.run_locally(A::NAME, input, &options, Some(&A::options()));
        }
        self.schedule(A::NAME, input, &options, Some(&A::options()))
    }

    /// Runs an activity on the spot, in this worker and within the running workflow task, also when its attribute does not say `local = true`. For
    /// what is quick: it saves the way over the queue, and its result is in the history all the same. Without a retry policy it is tried once.
    pub fn execute_local_activity<A: ActivityDefinition>(&self, activity: &impl Fn() -> A, input: A::Input) -> ActivityFuture<A::Output> {
        self.execute_local_activity_with_opts(activity, input, ActivityOptions::default())
    }

    /// The same with options that win over the activity's attribute: `retry` and `start_to_close`.
    pub fn execute_local_activity_with_opts<A: ActivityDefinition>(
        &self,
        _activity: &impl Fn() -> A,
        input: A::Input,
        options: ActivityOptions,
    ) -> ActivityFuture<A::Output> {
        self.run_locally(A::NAME, payload::to_payload("activity input", &input), &options, Some(&A::options()))
    }

    /// The same by name, with any JSON. The worker must have its code.
    pub fn execute_local_activity_raw<T: DeserializeOwned>(&self, name: &str, input: impl Serialize) -> ActivityFuture<T> {
        let registry = self.shared.registry.clone();
        let attribute = registry.activities.get(name).map(|known| &known.options);
        self.run_locally(name, payload::to_payload("activity input", &input), &ActivityOptions::default(), attribute)
    }

    fn run_locally<T: DeserializeOwned>(
        &self,
        name: &str,
        input: Result<Payload, HarvestError>,
        options: &ActivityOptions,
        attribute: Option<&ActivityOptions>,
    ) -> ActivityFuture<T> {
        let ask = || {
            let activity = LocalActivity {
                activity_type: ActivityType::new(name).map_err(|error| HarvestError::invalid("activity_type", error))?,
                input: input?,
                options: ActivityOptions::of_local(options, attribute, &self.shared.registry.activity_floor)?,
            };
            Ok(self.shared.lock().machine.run_local_activity(activity))
        };
        ActivityFuture::new(ItemFuture::new(&self.shared, ask()), name)
    }

    /// Schedules an activity by name, with any JSON, in a queue (empty = its attribute's or the run's own).
    pub fn execute_activity_raw<T: DeserializeOwned>(&self, name: &str, input: impl Serialize, queue: &str) -> ActivityFuture<T> {
        let queue = (!queue.is_empty()).then(|| queue.to_owned());
        self.execute_activity_raw_with_opts(name, input, ActivityOptions { queue, ..ActivityOptions::default() })
    }

    /// Schedules an activity by name with options. The activity's attribute fills what is unset, also when only another worker has its code.
    pub fn execute_activity_raw_with_opts<T: DeserializeOwned>(&self, name: &str, input: impl Serialize, options: ActivityOptions) -> ActivityFuture<T> {
        let input = payload::to_payload("activity input", &input);
        let registry = self.shared.registry.clone();
        self.schedule(name, input, &options, registry.activities.get(name).map(|known| &known.options))
    }

    fn schedule<T: DeserializeOwned>(
        &self,
        name: &str,
        input: Result<Payload, HarvestError>,
        options: &ActivityOptions,
        attribute: Option<&ActivityOptions>,
    ) -> ActivityFuture<T> {
        ActivityFuture::new(ItemFuture::new(&self.shared, self.ask_activity(name, input, options, attribute)), name)
    }

    /// The server fills what the call leaves open: it knows the attributes of all workers' activities.
    fn ask_activity(
        &self,
        name: &str,
        input: Result<Payload, HarvestError>,
        options: &ActivityOptions,
        attribute: Option<&ActivityOptions>,
    ) -> Result<Handle, HarvestError> {
        let schedule = ScheduleActivity {
            activity_type: ActivityType::new(name).map_err(|error| HarvestError::invalid("activity_type", error))?,
            input: input?,
            options: options.to_core()?,
            attribute: attribute.map(ActivityOptions::to_core).transpose()?.unwrap_or_default(),
            floor: self.shared.registry.activity_floor.to_core()?,
        };
        Ok(self.shared.lock().machine.schedule_activity(schedule))
    }

    /// Waits durably: `ctx.timer("cooling-off", Duration::from_secs(3600)).await?`. `id` is unique among the run's open timers; a fraction
    /// of a millisecond is rounded up; zero is over at once and leaves no trace.
    ///
    /// # Errors
    /// The future's: [`HarvestError::InvalidArgument`] for a bad or used id or a span beyond 10 years, [`HarvestError::Cancelled`].
    pub fn timer(&self, id: &str, duration: Duration) -> TimerHandle {
        self.start_timer(id, duration)
    }

    /// Starts a timer to be awaited, or cancelled, later.
    pub fn start_timer(&self, id: &str, duration: Duration) -> TimerHandle {
        if duration.is_zero() {
            return TimerHandle::new(None, id);
        }
        TimerHandle::new(Some(ItemFuture::new(&self.shared, self.ask_timer(id, duration))), id)
    }

    fn ask_timer(&self, id: &str, duration: Duration) -> Result<Handle, HarvestError> {
        let duration = DurationMs::from_duration("duration", duration).map_err(|error| HarvestError::invalid("duration", error))?;
        let name = TimerName::new(id).map_err(|error| HarvestError::invalid("timer_id", error))?;
        let handle = self.shared.lock().machine.start_timer(name, duration);
        handle.ok_or_else(|| HarvestError::invalid("timer_id", format!("{id:?} is the id of an open timer of this run")))
    }

    /// Waits durably until an instant; one that has passed is over at once.
    pub fn sleep_until(&self, id: &str, instant: SystemTime) -> TimerHandle {
        self.start_timer(id, instant.duration_since(self.now()).unwrap_or(Duration::ZERO))
    }

    /// Ends this run and starts its successor with `input`, same type and business key. Signals not taken travel along.
    /// Never returns `Ok`: write `ctx.continue_as_new(&state).await?;`.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`] when the input is not JSON.
    pub fn continue_as_new<I: Serialize>(&self, input: I) -> ContinueAsNew {
        let asked = payload::to_payload("continue_as_new input", &input).map(|input| self.end_with_successor(input, None));
        ContinueAsNew::new(asked)
    }

    /// The same with a successor of another type.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`] when the input is not JSON.
    pub fn continue_as_new_as<W: WorkflowDefinition>(&self, _workflow: &impl Fn() -> W, input: W::Input) -> ContinueAsNew {
        let asked = payload::to_payload("continue_as_new input", &input)
            .and_then(|input| Ok((input, WorkflowType::new(W::NAME).map_err(|error| HarvestError::invalid("workflow_type", error))?)))
            .map(|(input, workflow_type)| self.end_with_successor(input, Some(workflow_type)));
        ContinueAsNew::new(asked)
    }

    fn end_with_successor(&self, input: Payload, workflow_type: Option<WorkflowType>) {
        self.shared.lock().machine.finish(Command::ContinueAsNew { input, workflow_type, task_queue: None });
    }

    /// Whether it is time to continue as new: the history has more than 10 000 events, or 0.8 of the execution timeout is used (both can be set
    /// on the builder; pauses do not count). When it says so, continue as new.
    ///
    /// With an execution timeout each call looks at the clock and records what it found: ask once per turn of a loop, not everywhere in it.
    /// In the part of a history that was recorded before there were such readings only the number of events counts.
    pub fn should_continue_as_new(&self) -> bool {
        let advice = self.shared.registry.continue_as_new;
        let is_long = self.history_event_count() > advice.events;
        let Some(timeout) = self.started.execution_timeout else { return is_long };
        let mut state = self.shared.lock();
        match state.machine.reading(CONTINUE_AS_NEW_READING) {
            None | Some(Recorded::Diverged) => is_long,
            Some(Recorded::Value(recorded)) => payload::from_payload::<Reading>("reading", &recorded).map_or(is_long, |reading| reading.answer),
            Some(Recorded::Fresh) => {
                // The server's clock, which also ends the run: the worker's may differ.
                let now = state.machine.newest_at().max(state.told.at.unwrap_or_default());
                let ends_at = state.told.deadline.unwrap_or_else(|| self.started_at.plus(timeout));
                let spare = timeout.as_duration().mul_f64(1.0 - advice.deadline_fraction);
                let reading = Reading { at_ms: now.as_millis(), answer: is_long || system_time(now) + spare >= system_time(ends_at) };
                let value = payload::to_payload("reading", &reading).unwrap_or_else(|_| Payload::null());
                state.machine.record_side_effect(SideEffectKind::Now, Some(CONTINUE_AS_NEW_READING), value);
                reading.answer
            }
        }
    }

    /// How many events the history has, as of now in the code.
    pub fn history_event_count(&self) -> u64 {
        self.shared.lock().machine.seen().0
    }

    /// When the run's execution timeout ends it, if it has one and is never paused: the same on every replay.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.started.execution_timeout.map(|timeout| system_time(self.started_at.plus(timeout)))
    }

    /// How long until [`WorkflowContext::deadline`], by [`WorkflowContext::now`].
    pub fn time_until_deadline(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.duration_since(self.now()).unwrap_or(Duration::ZERO))
    }

    /// The time of the newest event that the code has seen. Costs nothing; stands still between events. See [`WorkflowContext::system_now`].
    pub fn now(&self) -> SystemTime {
        system_time(self.shared.lock().machine.now())
    }

    /// Whether somebody asked the run to cancel itself.
    pub fn is_cancelled(&self) -> bool {
        self.shared.lock().machine.cancel_requested(Take::All).is_some()
    }

    /// Waits until somebody asks the run to cancel itself, and gives the reason. Cancelling is cooperative: code that never looks
    /// at it runs on. Use it in `select!`, or [`WorkflowContext::check_cancelled`], or [`WorkflowContext::or_cancelled`].
    pub fn cancelled(&self) -> Cancelled {
        Cancelled::new(&self.shared)
    }

    /// An error when somebody asked the run to cancel itself: `ctx.check_cancelled()?`.
    ///
    /// # Errors
    /// [`HarvestError::Cancelled`]: a workflow that returns it ends as CANCELLED.
    pub fn check_cancelled(&self) -> Result<(), HarvestError> {
        match self.shared.lock().machine.cancel_requested(Take::All) {
            Some(reason) => Err(HarvestError::Cancelled { reason: reason.to_owned() }),
            None => Ok(()),
        }
    }

    /// Waits for `future` or a request to cancel, whichever is recorded first: `ctx.or_cancelled(ctx.receive_signal("paid")).await?`.
    ///
    /// # Errors
    /// The future's, or [`HarvestError::Cancelled`].
    pub async fn or_cancelled<T>(&self, future: impl Future<Output = Result<T, HarvestError>>) -> Result<T, HarvestError> {
        let cancelled = self.cancelled();
        futures::pin_mut!(future);
        match futures::future::select(future, cancelled).await {
            futures::future::Either::Left((done, _)) => done,
            futures::future::Either::Right((reason, _)) => Err(HarvestError::Cancelled { reason }),
        }
    }

    /// Whether the code is being run against a recorded decision. For logging; never branch on it.
    pub fn is_replaying(&self) -> bool {
        self.shared.lock().machine.is_replaying()
    }

    /// What the run knows about itself.
    pub fn info(&self) -> WorkflowInfo {
        let started = &self.started;
        WorkflowInfo {
            namespace: started.namespace.to_string(),
            workflow_type: started.workflow_type.to_string(),
            workflow_id: started.workflow_id.to_string(),
            execution_id: started.execution_id.to_string(),
            first_execution_id: started.first_execution_id.to_string(),
            continued_from: started.continued_from.map(|id| id.to_string()),
            parent_execution_id: started.parent.as_ref().map(|parent| parent.execution_id.to_string()),
            task_queue: started.task_queue.to_string(),
            started_at: system_time(self.started_at),
            execution_timeout: started.execution_timeout.map(DurationMs::as_duration),
            history_event_count: self.history_event_count(),
        }
    }

    /// Answers queries of a name from the code's state: `ctx.register_query("status", move || status.lock().unwrap().clone())`.
    /// The closure must not change anything: queries leave no trace in the history. A later registration of the name replaces it.
    pub fn register_query<T: Serialize>(&self, name: &str, answer: impl Fn() -> T + Send + Sync + 'static) {
        let handler = move |_args: &Payload| payload::to_payload("query result", &answer());
        self.shared.lock().queries.insert(name.to_owned(), Arc::new(handler));
    }

    /// The same for a query with an argument.
    pub fn register_query_with_args<A: DeserializeOwned, T: Serialize>(&self, name: &str, answer: impl Fn(A) -> T + Send + Sync + 'static) {
        let handler = move |args: &Payload| payload::to_payload("query result", &answer(payload::from_payload("query argument", args)?));
        self.shared.lock().queries.insert(name.to_owned(), Arc::new(handler));
    }
}
