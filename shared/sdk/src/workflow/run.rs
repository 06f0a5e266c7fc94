//! The executor: one run's code, polled on the spot whenever its history says something new.

use crate::definition::BoxFuture;
use crate::error::{HarvestError, WorkflowFailure};
use crate::registry::Registry;
use crate::workflow::context::WorkflowContext;
use crate::workflow::shared::{RunShared, Told};
use harvest_ids::{EventId, Timestamp};
use harvest_sdk_replay::{Completion, FeedError, Handle, LocalActivity, LocalEnd, Mismatch, ReplayError, Step, Take};
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::{Event, WorkflowStarted};
use harvest_workflow_core::payload::Payload;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Most polls in a row without coming to rest: beyond it the code wakes itself for ever.
const MAX_POLLS: usize = 100_000;

/// Why a decision could not be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// The code does not match the history.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The code panicked.
    #[error("the workflow code panicked: {0}")]
    Panicked(String),
    /// The worker cannot run it.
    #[error("{0}")]
    Worker(String),
    /// The run in memory does not fit the events: start again from the full history.
    #[error("the cached run does not fit the history: {0}")]
    OutOfStep(String),
}

impl From<ReplayError> for RunError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Mismatch(mismatch) => Self::Mismatch(mismatch),
            ReplayError::TooManyCommands { .. } => Self::Worker(error.to_string()),
            ReplayError::Malformed { .. } | ReplayError::NotOurs { .. } => Self::OutOfStep(error.to_string()),
        }
    }
}

impl From<FeedError> for RunError {
    fn from(error: FeedError) -> Self {
        Self::OutOfStep(error.to_string())
    }
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// The code registered no such query.
    #[error("the workflow answers no query {name:?}; it answers {known:?}")]
    Unknown { name: String, known: Vec<String> },
    /// The handler or its values failed.
    #[error("{0}")]
    Failed(String),
    /// The handler panicked.
    #[error("the query handler panicked: {0}")]
    Panicked(String),
}

/// Set when a durable future has news for the code.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

type Code = BoxFuture<Result<Payload, WorkflowFailure>>;

/// What is known of the clock of the run's server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerClock {
    /// What it showed when something was recorded.
    pub(crate) showed: Timestamp,
    /// When that was heard here.
    pub(crate) heard: Instant,
}

impl ServerClock {
    /// A time that the server's clock has reached for certain: what it showed, and the time since that was heard, less 500 ppm because no two
    /// clocks go at the same rate (it is the most that a clock which is being set right runs off).
    pub(crate) fn at_least(&self, now: Instant) -> Timestamp {
        let passed = now.saturating_duration_since(self.heard);
        let passed = passed.saturating_sub(passed / 2_000);
        Timestamp::from_millis(self.showed.as_millis().saturating_add(whole_millis(passed)))
    }
}

fn whole_millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// One run in memory.
pub(crate) struct Run {
    shared: Arc<RunShared>,
    code: Option<Code>,
    flag: Arc<WakeFlag>,
    clock: Option<ServerClock>,
}

impl Run {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { shared: Arc::new(RunShared::new(registry)), code: None, flag: Arc::new(WakeFlag::default()), clock: None }
    }

    /// Notes what the server's clock shows.
    pub(crate) fn set_clock(&mut self, clock: ServerClock) {
        self.clock = Some(clock);
    }

    /// Notes what the server told with a workflow task.
    pub(crate) fn set_told(&mut self, told: Told) {
        self.shared.lock().told = told;
    }

    /// The earliest time that the server can give to the next event of the run, when it can be told: the run is up to date then, and nothing
    /// but that event can lead to a decision.
    pub(crate) fn next_event_at(&self, now: Instant) -> Option<Timestamp> {
        let clock = self.clock?;
        let state = self.shared.lock();
        state.machine.is_caught_up().then(|| clock.at_least(now).max(state.machine.newest_at()))
    }

    /// The event that it needs next.
    pub(crate) fn next_event(&self) -> EventId {
        self.shared.lock().machine.next_event()
    }

    /// The last event that it was given.
    pub(crate) fn last_event(&self) -> EventId {
        EventId(self.next_event().0.saturating_sub(1))
    }

    /// Whether the code has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.lock().machine.is_closed()
    }

    /// Takes events.
    pub(crate) fn feed(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), RunError> {
        Ok(self.shared.lock().machine.feed(events)?)
    }

    /// Works out the decision of a workflow task that has seen `seen`, if its code needs no local activities for it.
    pub(crate) fn decide(&mut self, seen: EventId) -> Result<Completion, RunError> {
        self.begin(seen)?;
        if !self.locals().is_empty() {
            return Err(RunError::Worker("the workflow code wants local activities, which need its workflow task".to_owned()));
        }
        self.completion()
    }

    /// Begins that decision: runs the code until it is at rest.
    pub(crate) fn begin(&mut self, seen: EventId) -> Result<(), RunError> {
        self.shared.lock().machine.begin_task(seen)?;
        self.drive()
    }

    /// Local activities that the code waits for in the decision that was begun.
    pub(crate) fn locals(&self) -> Vec<(Handle, LocalActivity)> {
        self.shared.lock().machine.locals().map(|(handle, activity)| (handle, activity.clone())).collect()
    }

    /// Shows the code how a local activity ended, and runs it until it is at rest.
    pub(crate) fn end_local(&mut self, handle: Handle, end: LocalEnd) -> Result<(), RunError> {
        let key = self.shared.lock().machine.end_local(handle, end);
        if let Some(key) = key
            && self.shared.wake(&key)
            && self.flag.0.load(Ordering::Acquire)
        {
            self.poll()?;
        }
        self.drive()
    }

    /// The decision that was begun, when the code wants nothing more on the spot.
    pub(crate) fn completion(&mut self) -> Result<Completion, RunError> {
        let completion = self.shared.lock().machine.take_completion();
        completion.ok_or_else(|| RunError::OutOfStep("the task left nothing to decide".to_owned()))
    }

    /// Brings the code up to the last recorded decision.
    pub(crate) fn replay(&mut self) -> Result<(), RunError> {
        self.shared.lock().machine.begin_query()?;
        self.drive()
    }

    /// Asks the code's query handlers.
    pub(crate) fn query(&self, name: &str, args: &Payload) -> Result<Payload, QueryError> {
        let handler = {
            let state = self.shared.lock();
            let Some(handler) = state.queries.get(name) else {
                return Err(QueryError::Unknown { name: name.to_owned(), known: state.queries.keys().cloned().collect() });
            };
            handler.clone()
        };
        match catch_unwind(AssertUnwindSafe(|| handler(args))) {
            Ok(answer) => answer.map_err(|error| QueryError::Failed(error.to_string())),
            Err(panic) => Err(QueryError::Panicked(panic_message(panic.as_ref()))),
        }
    }

    fn drive(&mut self) -> Result<(), RunError> {
        loop {
            let step = self.shared.lock().machine.advance()?;
            match step {
                Step::Start(started) => {
                    self.start(&started)?;
                    self.poll()?;
                }
                Step::Wake(key) => {
                    if self.shared.wake(&key) && self.flag.0.load(Ordering::Acquire) {
                        self.poll()?;
                    }
                }
                Step::AtRest => return Ok(()),
            }
        }
    }

    fn start(&mut self, started: &Arc<WorkflowStarted>) -> Result<(), RunError> {
        let registry = self.shared.registry.clone();
        let Some(registration) = registry.workflows.get(started.workflow_type.as_str()) else {
            return Err(RunError::Worker(format!("workflow type {:?} is not registered in this worker", started.workflow_type.as_str())));
        };
        let started_at = self.shared.lock().machine.started_at();
        let context = WorkflowContext { shared: self.shared.clone(), started: started.clone(), started_at };
        let made = catch_unwind(AssertUnwindSafe(|| (registration.start)(context, &started.input)));
        match made {
            // Without it a budget of the surrounding runtime could make a future of its own pending at any poll.
            Ok(Ok(code)) => self.code = Some(Box::pin(tokio::task::coop::unconstrained(code))),
            Ok(Err(error)) => self.end(Err(invalid_input(&error))),
            Err(panic) => return Err(RunError::Panicked(panic_message(panic.as_ref()))),
        }
        Ok(())
    }

    /// Polls the code until nothing that it waits for is there.
    fn poll(&mut self) -> Result<(), RunError> {
        let waker = Waker::from(self.flag.clone());
        let mut context = Context::from_waker(&waker);
        for _ in 0..MAX_POLLS {
            self.flag.0.store(false, Ordering::Release);
            let Some(code) = &mut self.code else { return Ok(()) };
            let polled = catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(&mut context)));
            if self.shared.lock().machine.is_failed() {
                return Ok(()); // the next advance says how
            }
            match polled {
                Err(panic) => return Err(RunError::Panicked(panic_message(panic.as_ref()))),
                Ok(Poll::Ready(result)) => {
                    self.end(result);
                    return Ok(());
                }
                Ok(Poll::Pending) if self.is_closed() => {
                    self.drop_code(); // it continued as new
                    return Ok(());
                }
                Ok(Poll::Pending) if self.flag.0.load(Ordering::Acquire) => {}
                Ok(Poll::Pending) if self.shared.lock().wakers.is_empty() => {
                    return Err(RunError::Worker("the workflow waits for something that is not durable: await only futures of its context".to_owned()));
                }
                Ok(Poll::Pending) => return Ok(()),
            }
        }
        Err(RunError::Worker(format!("the workflow code did not come to rest within {MAX_POLLS} polls")))
    }

    fn end(&mut self, result: Result<Payload, WorkflowFailure>) {
        let mut state = self.shared.lock();
        if state.machine.is_closed() {
            return; // it continued as new in another branch
        }
        let reason = state.machine.cancel_requested(Take::All).map(str::to_owned);
        let terminal = match (result, reason) {
            (Ok(output), _) => Command::CompleteWorkflow { output },
            (Err(failure), Some(reason)) if failure.is_cancellation(&reason) => Command::CancelWorkflow { reason },
            (Err(failure), _) => Command::FailWorkflow { failure: failure.to_core() },
        };
        state.machine.finish(terminal);
        drop(state);
        self.drop_code();
    }

    /// The destructors of the author's values may panic: the worker goes on.
    fn drop_code(&mut self) {
        let code = self.code.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(code))) {
            tracing::warn!(message = panic_message(panic.as_ref()), "a workflow panicked while it was dropped");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.lock().machine.detach();
        self.drop_code();
        let mut state = self.shared.lock();
        let (wakers, queries) = (std::mem::take(&mut state.wakers), std::mem::take(&mut state.queries));
        drop(state);
        drop((wakers, queries)); // the queries may hold the context: this breaks the circle
    }
}

fn invalid_input(error: &HarvestError) -> WorkflowFailure {
    WorkflowFailure { non_retryable: true, ..WorkflowFailure::new("InvalidInput", error.to_string()) }
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
