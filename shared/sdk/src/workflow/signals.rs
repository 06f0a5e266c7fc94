//! Signals.

use crate::error::HarvestError;
use crate::payload;
use crate::workflow::context::WorkflowContext;
use crate::workflow::future::{SignalFuture, TimerHandle};
use harvest_ids::SignalName;
use harvest_sdk_replay::Take;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

fn signal_name(name: &str) -> Result<SignalName, HarvestError> {
    SignalName::new(name).map_err(|error| HarvestError::invalid("signal_name", error))
}

impl WorkflowContext {
    /// Waits for the next signal of a name. Signals that came earlier are kept, in order, until they are taken.
    pub fn receive_signal<T: DeserializeOwned>(&self, name: &str) -> SignalFuture<T> {
        SignalFuture::new(&self.shared, signal_name(name))
    }

    /// The same, as JSON.
    pub fn wait_for_signal(&self, name: &str) -> SignalFuture<serde_json::Value> {
        self.receive_signal(name)
    }

    /// Waits for the next signal of a name, at most so long; `None` when the time is over first. Which came first is as recorded.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`] for a signal of another shape, [`HarvestError::InvalidArgument`].
    pub async fn receive_signal_timeout<T: DeserializeOwned>(&self, name: &str, longest: Duration) -> Result<Option<T>, HarvestError> {
        if let Some(signal) = self.take_signal(name, Take::InOrder)? {
            return Ok(Some(signal));
        }
        let number = self.shared.lock().next_name();
        // A timer's id has at most 255 bytes and the signal's name may have as many: the number alone makes it unique.
        let shown: String = name.chars().take(40).collect();
        let timer = self.start_timer(&format!("__signal_timeout:{number}:{shown}"), longest);
        SignalOrTimer { signal: self.receive_signal(name), timer }.await
    }

    /// Takes the next signal of a name if there is one already. Also sees signals that arrived after what the code has waited for so far,
    /// as far as the running workflow task knows them: code that drains its signals before it ends misses none.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`] for a signal of another shape (it is taken nevertheless), [`HarvestError::InvalidArgument`].
    pub fn try_receive_signal<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, HarvestError> {
        self.take_signal(name, Take::All)
    }

    /// How many signals of a name wait to be taken.
    pub fn unread_signals(&self, name: &str) -> usize {
        signal_name(name).map_or(0, |name| self.shared.lock().machine.unread_signals(&name))
    }

    fn take_signal<T: DeserializeOwned>(&self, name: &str, take: Take) -> Result<Option<T>, HarvestError> {
        let name = signal_name(name)?;
        let signal = self.shared.lock().machine.take_signal(&name, take);
        signal.map(|signal| payload::from_payload("signal", &signal.payload)).transpose()
    }
}

/// Both at once; the machine hands out events one by one, so at most one of them has just become ready.
struct SignalOrTimer<T> {
    signal: SignalFuture<T>,
    timer: TimerHandle,
}

impl<T: DeserializeOwned> Future for SignalOrTimer<T> {
    type Output = Result<Option<T>, HarvestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(payload) = self.signal.poll_payload(cx) {
            return Poll::Ready(payload.and_then(|payload| payload::from_payload("signal", &payload)).map(Some));
        }
        Pin::new(&mut self.timer).poll(cx).map(|fired| fired.map(|()| None))
    }
}
