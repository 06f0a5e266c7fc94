//! Things that code asked for and may wait for: activities, timers, children.

use harvest_ids::{Attempt, EventId, SignalName, TimerName};
use harvest_workflow_core::event::ActivityTimeout;
use harvest_workflow_core::payload::{Failure, Payload};

/// Names an activity, timer or child within one replay, from the moment code asks for it. Numbers are given in the order of asking, so
/// that they are the same on every replay; the event id is known only once the server has recorded the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// What a durable future waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKey {
    /// The end of an activity, timer or child.
    Item(Handle),
    /// The next signal of a name.
    Signal(SignalName),
    /// A request to cancel the run.
    Cancel,
}

/// How an activity, timer or child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// With a result.
    Completed(Payload),
    /// With a failure. `attempt` is set for activities.
    Failed {
        /// Why.
        failure: Failure,
        /// The last attempt.
        attempt: Option<Attempt>,
    },
    /// An activity ran out of time.
    TimedOut {
        /// Which limit.
        timeout: ActivityTimeout,
        /// The last attempt.
        attempt: Attempt,
    },
    /// The code cancelled it.
    Cancelled,
    /// A timer fired.
    Fired,
}

/// Which kind of thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Activity,
    /// One that the worker runs on the spot, within the decision that asks for it.
    Local,
    Timer(TimerName),
    Child,
    /// A child whose outcome never comes.
    Detached,
}

/// Where an item stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Asked for in the decision being worked out, at this index of its commands.
    Asked(usize),
    /// Recorded by this event; whether cancelling was asked for.
    Open { event: EventId, cancel_requested: bool },
    /// Ended; nobody has looked yet.
    Ended(Resolution),
}

/// One activity, timer or child.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) stage: Stage,
    /// The future that waited for it is gone: its end is dropped.
    pub(crate) abandoned: bool,
}
