//! Durable futures: what workflow code may wait for.

use crate::error::{HarvestError, details_value};
use crate::payload;
use crate::workflow::shared::RunShared;
use futures::future::FusedFuture;
use harvest_ids::SignalName;
use harvest_sdk_replay::{Handle, Resolution, Take, WaitKey};
use harvest_workflow_core::payload::Payload;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Cancels an activity, timer or child without holding its future.
#[derive(Clone)]
pub struct Canceller {
    /// None when the thing could not even be asked for.
    target: Option<(Arc<RunShared>, Handle)>,
}

impl Canceller {
    /// Asks it to stop. A timer ends at once; an activity or child ends when it has stopped. Asking again, or after its end, changes nothing.
    pub fn cancel(&self) {
        if let Some((shared, handle)) = &self.target {
            let woken = shared.lock().machine.cancel(*handle);
            if let Some(key) = woken {
                shared.wake(&key);
            }
        }
    }
}

/// What all futures of asked things have in common.
pub(crate) struct ItemFuture {
    state: ItemState,
}

enum ItemState {
    Waiting(Arc<RunShared>, Handle),
    Refused(HarvestError),
    Done,
}

impl ItemFuture {
    pub(crate) fn new(shared: &Arc<RunShared>, asked: Result<Handle, HarvestError>) -> Self {
        match asked {
            Ok(handle) => Self { state: ItemState::Waiting(shared.clone(), handle) },
            Err(error) => Self { state: ItemState::Refused(error) },
        }
    }

    fn canceller(&self) -> Canceller {
        match &self.state {
            ItemState::Waiting(shared, handle) => Canceller { target: Some((shared.clone(), *handle)) },
            ItemState::Refused(_) | ItemState::Done => Canceller { target: None },
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.state, ItemState::Done)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Resolution, HarvestError>> {
        match std::mem::replace(&mut self.state, ItemState::Done) {
            ItemState::Waiting(shared, handle) => {
                let mut state = shared.lock();
                if let Some(resolution) = state.machine.take(handle) {
                    return Poll::Ready(Ok(resolution));
                }
                state.wait(WaitKey::Item(handle), cx.waker());
                drop(state);
                self.state = ItemState::Waiting(shared, handle);
                Poll::Pending
            }
            ItemState::Refused(error) => Poll::Ready(Err(error)),
            ItemState::Done => Poll::Pending,
        }
    }
}

impl Drop for ItemFuture {
    fn drop(&mut self) {
        if let ItemState::Waiting(shared, handle) = &self.state {
            let mut state = shared.lock();
            state.machine.abandon(*handle);
            let stale = state.wakers.remove(&WaitKey::Item(*handle));
            drop(state);
            drop(stale);
        }
    }
}

macro_rules! fused {
    ($future:ident) => {
        impl<T: DeserializeOwned> FusedFuture for $future<T> {
            fn is_terminated(&self) -> bool {
                self.item.is_done()
            }
        }
    };
}

/// The result of an activity. Dropping it does not stop the activity: [`ActivityFuture::cancel`] does.
#[must_use = "the activity is scheduled already; await its result, or drop it explicitly to let it run on unwatched"]
pub struct ActivityFuture<T> {
    item: ItemFuture,
    activity_type: String,
    output: PhantomData<fn() -> T>,
}

impl<T> ActivityFuture<T> {
    pub(crate) fn new(item: ItemFuture, activity_type: &str) -> Self {
        Self { item, activity_type: activity_type.to_owned(), output: PhantomData }
    }

    /// Asks the activity to stop; await the future to see how it ended.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// Cancels the activity from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.item.canceller()
    }
}

impl<T: DeserializeOwned> Future for ActivityFuture<T> {
    type Output = Result<T, HarvestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.item.poll(cx).map(|ended| activity_result(&self.activity_type, ended?))
    }
}

fused!(ActivityFuture);

fn activity_result<T: DeserializeOwned>(activity_type: &str, resolution: Resolution) -> Result<T, HarvestError> {
    let activity_type = activity_type.to_owned();
    match resolution {
        Resolution::Completed(output) => payload::from_payload(&format!("output of activity {activity_type}"), &output),
        Resolution::Failed { failure, attempt } => Err(HarvestError::ActivityFailed {
            activity_type,
            attempt: attempt.map_or(0, |attempt| attempt.0),
            details: details_value(failure.details.as_ref()).map(Box::new),
            error_type: failure.error_type,
            message: failure.message,
            non_retryable: failure.non_retryable,
        }),
        Resolution::TimedOut { timeout, attempt } => Err(HarvestError::Timeout { activity_type, attempt: attempt.0, timeout: timeout.into() }),
        Resolution::Cancelled | Resolution::Fired => Err(HarvestError::Cancelled { reason: format!("activity {activity_type} was cancelled") }),
    }
}

/// The result of a child workflow. Dropping it does not stop the child: [`ChildFuture::cancel`] does.
#[must_use = "the child is started already; await its result, or use spawn_child_workflow_detached"]
pub struct ChildFuture<T> {
    item: ItemFuture,
    workflow_type: String,
    workflow_id: String,
    output: PhantomData<fn() -> T>,
}

impl<T> ChildFuture<T> {
    pub(crate) fn new(item: ItemFuture, workflow_type: &str, workflow_id: String) -> Self {
        Self { item, workflow_type: workflow_type.to_owned(), workflow_id, output: PhantomData }
    }

    /// The child's business key.
    pub fn workflow_id(&self) -> &str {
        &self.workflow_id
    }

    /// Asks the child to cancel itself; await the future to see how it ended.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// Cancels the child from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.item.canceller()
    }

    fn result(&self, resolution: Resolution) -> Result<T, HarvestError>
    where
        T: DeserializeOwned,
    {
        let (workflow_type, workflow_id) = (self.workflow_type.clone(), self.workflow_id.clone());
        match resolution {
            Resolution::Completed(output) => payload::from_payload(&format!("output of child workflow {workflow_type}"), &output),
            Resolution::Failed { failure, .. } => Err(HarvestError::ChildFailed {
                workflow_type,
                workflow_id,
                details: details_value(failure.details.as_ref()).map(Box::new),
                error_type: failure.error_type,
                message: failure.message,
            }),
            Resolution::Cancelled | Resolution::Fired | Resolution::TimedOut { .. } => {
                Err(HarvestError::Cancelled { reason: format!("child workflow {workflow_type} ({workflow_id}) was cancelled") })
            }
        }
    }
}

impl<T: DeserializeOwned> Future for ChildFuture<T> {
    type Output = Result<T, HarvestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.item.poll(cx).map(|ended| self.result(ended?))
    }
}

fused!(ChildFuture);

/// A durable timer: awaiting it waits until it fires ([`HarvestError::Cancelled`] when it was cancelled). Dropping it cancels it.
#[must_use = "dropping a timer cancels it; await it"]
pub struct TimerHandle {
    /// None for a timer of no length, which has fired already.
    item: Option<ItemFuture>,
    fired: bool,
    name: String,
}

impl TimerHandle {
    pub(crate) fn new(item: Option<ItemFuture>, name: &str) -> Self {
        Self { item, fired: false, name: name.to_owned() }
    }

    /// Stops the timer: awaiting it gives [`HarvestError::Cancelled`]. A timer that has fired stays fired.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// Cancels the timer from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.item.as_ref().map_or(Canceller { target: None }, ItemFuture::canceller)
    }
}

impl Future for TimerHandle {
    type Output = Result<(), HarvestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(item) = &mut self.item else {
            self.fired = true;
            return Poll::Ready(Ok(()));
        };
        item.poll(cx).map(|ended| match ended? {
            Resolution::Cancelled => Err(HarvestError::Cancelled { reason: format!("timer {} was cancelled", self.name) }),
            Resolution::Fired | Resolution::Completed(_) | Resolution::Failed { .. } | Resolution::TimedOut { .. } => Ok(()),
        })
    }
}

impl FusedFuture for TimerHandle {
    fn is_terminated(&self) -> bool {
        self.fired || self.item.as_ref().is_some_and(ItemFuture::is_done)
    }
}

/// The next signal of a name, in the order they were recorded. A signal is taken when this future is ready, never by dropping it.
#[must_use = "await it to take a signal"]
pub struct SignalFuture<T> {
    shared: Arc<RunShared>,
    name: Result<SignalName, HarvestError>,
    done: bool,
    output: PhantomData<fn() -> T>,
}

impl<T> SignalFuture<T> {
    pub(crate) fn new(shared: &Arc<RunShared>, name: Result<SignalName, HarvestError>) -> Self {
        Self { shared: shared.clone(), name, done: false, output: PhantomData }
    }

    /// Takes the next payload, or notes who to wake.
    pub(crate) fn poll_payload(&mut self, cx: &mut Context<'_>) -> Poll<Result<Payload, HarvestError>> {
        if self.done {
            return Poll::Pending;
        }
        let name = match &self.name {
            Ok(name) => name,
            Err(error) => {
                self.done = true;
                return Poll::Ready(Err(error.clone()));
            }
        };
        let mut state = self.shared.lock();
        match state.machine.take_signal(name, Take::InOrder) {
            Some(signal) => {
                self.done = true;
                Poll::Ready(Ok(signal.payload))
            }
            None => {
                state.wait(WaitKey::Signal(name.clone()), cx.waker());
                Poll::Pending
            }
        }
    }
}

impl<T: DeserializeOwned> Future for SignalFuture<T> {
    type Output = Result<T, HarvestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_payload(cx).map(|payload| payload::from_payload("signal", &payload?))
    }
}

impl<T: DeserializeOwned> FusedFuture for SignalFuture<T> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// A request to cancel the run: ready with its reason, and at once when it was asked for already.
#[must_use = "await it"]
pub struct Cancelled {
    shared: Arc<RunShared>,
    done: bool,
}

impl Cancelled {
    pub(crate) fn new(shared: &Arc<RunShared>) -> Self {
        Self { shared: shared.clone(), done: false }
    }
}

impl Future for Cancelled {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if let Some(reason) = state.machine.cancel_requested(Take::InOrder) {
            self.done = true;
            return Poll::Ready(reason.to_owned());
        }
        state.wait(WaitKey::Cancel, cx.waker());
        Poll::Pending
    }
}

impl FusedFuture for Cancelled {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// The end of this run. Never ready, unless with an error: the run has no code after it.
#[must_use = "await it: the run ends here"]
pub struct ContinueAsNew {
    error: Option<HarvestError>,
}

impl ContinueAsNew {
    pub(crate) fn new(asked: Result<(), HarvestError>) -> Self {
        Self { error: asked.err() }
    }
}

impl Future for ContinueAsNew {
    type Output = Result<std::convert::Infallible, HarvestError>;

    fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    }
}
