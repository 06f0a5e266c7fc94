//! Signals that code has not taken yet.

use harvest_ids::{EventId, SignalName};
use harvest_workflow_core::payload::Payload;
use std::collections::{BTreeMap, VecDeque};

/// One signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// The event that recorded it.
    pub event_id: EventId,
    /// What it carries.
    pub payload: Payload,
}

/// Which signals a taker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Those whose turn has come: for somebody who waits, so that a signal and a timer are seen in their recorded order.
    InOrder,
    /// Also those that the decision has seen and whose turn is yet to come: for somebody who looks without waiting, so that code which
    /// drains its signals before it ends misses none.
    All,
}

/// Unread signals by name.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    by_name: BTreeMap<SignalName, VecDeque<Signal>>,
}

impl Inbox {
    pub(crate) fn push(&mut self, name: SignalName, signal: Signal) {
        self.by_name.entry(name).or_default().push_back(signal);
    }

    /// Takes the oldest of a name; `reached` is the event whose turn it is.
    pub(crate) fn take(&mut self, name: &SignalName, reached: EventId, take: Take) -> Option<Signal> {
        let queue = self.by_name.get_mut(name)?;
        let first = queue.front()?;
        if take == Take::InOrder && first.event_id > reached {
            return None;
        }
        let signal = queue.pop_front();
        if queue.is_empty() {
            self.by_name.remove(name);
        }
        signal
    }

    /// How many of a name are unread.
    pub(crate) fn count(&self, name: &SignalName) -> usize {
        self.by_name.get(name).map_or(0, VecDeque::len)
    }
}
