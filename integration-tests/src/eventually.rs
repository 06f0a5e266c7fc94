//! Waiting for conditions.

use harvest_runtime::{Clock, SystemClock};
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

/// The first pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Looks until `look` gives `Some`, at most for `longest`. An error counts as "not yet": the last one is part of the message.
///
/// # Errors
/// When the time is over; the text says what was awaited.
pub async fn eventually<T, F>(what: impl Display, longest: Duration, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + longest;
    let mut pause = FIRST_PAUSE;
    loop {
        // A look that hangs must not outlive the deadline.
        let left = deadline.saturating_sub(clock.monotonic()).max(FIRST_PAUSE);
        let seen = match tokio::time::timeout(left, look()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some("the last look did not end".to_owned()),
        };
        if clock.monotonic() >= deadline {
            let seen = seen.map(|error| format!("; at last: {error}")).unwrap_or_default();
            anyhow::bail!("not within {longest:?}: {what}{seen}");
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The same for a plain condition.
///
/// # Errors
/// When the time is over; the text says what was awaited.
pub async fn holds(what: impl Display, longest: Duration, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
    eventually(what, longest, || std::future::ready(Ok(condition().then_some(())))).await
}
