//! Tasks by name: every one is tracked, and one that panics is logged with its name.

use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

static TRACKER: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// A task that is aborted when its owner drops this handle.
pub type OwnedTask<T> = AbortOnDropHandle<T>;

/// Starts a task that lives until it ends by itself; whoever starts it gives it a token or a channel that ends it. [`drain`] waits for it.
#[allow(clippy::disallowed_methods)] // the one place that spawns
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    TRACKER.spawn(async move {
        let _watch = PanicWatch(name);
        future.await
    })
}

/// Starts a task that ends with its owner: dropping the handle aborts it.
pub fn spawn_owned<F>(name: &'static str, future: F) -> OwnedTask<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    AbortOnDropHandle::new(spawn(name, future))
}

/// Waits until all tasks of the process have ended, at most `timeout`. Returns how many are left.
pub async fn drain(timeout: Duration) -> usize {
    TRACKER.close();
    let ended = tokio::time::timeout(timeout, TRACKER.wait()).await;
    TRACKER.reopen();
    match ended {
        Ok(()) => 0,
        Err(_) => TRACKER.len(),
    }
}

struct PanicWatch(&'static str);

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.0, "task panicked");
            crate::metrics::TASK_PANICS.add(1, [self.0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_owned_task_ends_with_its_owner() {
        let (alive, mut gone) = tokio::sync::mpsc::channel::<()>(1);
        let task = spawn_owned("owned", async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert_eq!(gone.recv().await, None);
    }

    #[tokio::test]
    async fn a_panic_reaches_whoever_waits_for_the_task() {
        assert!(spawn("faulty", async { panic!("on purpose") }).await.is_err());
    }
}
