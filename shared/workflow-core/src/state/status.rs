//! Whether and how a run ended.

use std::fmt;

/// Whether and how a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not ended.
    Running,
    /// With a result.
    Completed,
    /// With a failure.
    Failed,
    /// By cancelling itself.
    Cancelled,
    /// Ended from outside.
    Terminated,
    /// Ran out of time.
    TimedOut,
    /// Started its successor.
    ContinuedAsNew,
}

impl Status {
    /// The name on every wire: `RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED`, `TERMINATED`, `TIMED_OUT`, `CONTINUED_AS_NEW`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Terminated => "TERMINATED",
            Self::TimedOut => "TIMED_OUT",
            Self::ContinuedAsNew => "CONTINUED_AS_NEW",
        }
    }

    /// All states, in the order they are documented.
    pub const ALL: [Self; 7] = [Self::Running, Self::Completed, Self::Failed, Self::Cancelled, Self::Terminated, Self::TimedOut, Self::ContinuedAsNew];

    /// Reads [`Status::as_str`] back.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
