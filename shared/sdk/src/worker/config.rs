//! How a worker is set up.

use crate::retry::RetryPolicy;
use std::time::Duration;

/// Settings of a worker. Every count and time has a bound, checked by [`HarvestBuilder::build`](crate::HarvestBuilder::build).
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerConfig {
    pub(crate) addresses: Vec<String>,
    pub(crate) token: Option<String>,
    pub(crate) namespace: String,
    pub(crate) queues: Vec<String>,
    pub(crate) max_concurrent_workflows: u32,
    pub(crate) max_concurrent_activities: u32,
    pub(crate) workflow_cache_size: usize,
    pub(crate) eager_activities: bool,
    pub(crate) eager_starts: bool,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) cancellation_grace_period: Duration,
    pub(crate) build_id: String,
    pub(crate) identity: String,
    pub(crate) default_activity_retry_policy: Option<RetryPolicy>,
    pub(crate) default_activity_start_to_close: Option<Duration>,
    pub(crate) max_local_activity_start_to_close: Duration,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            addresses: vec!["http://127.0.0.1:7233".to_owned()],
            token: None,
            namespace: "default".to_owned(),
            queues: vec!["default".to_owned()],
            max_concurrent_workflows: 200,
            max_concurrent_activities: 200,
            workflow_cache_size: 1_000,
            eager_activities: true,
            eager_starts: true,
            shutdown_timeout: Duration::from_secs(25),
            cancellation_grace_period: Duration::from_secs(5),
            build_id: String::new(),
            identity: format!("{}:{}", host(), std::process::id()),
            default_activity_retry_policy: None,
            default_activity_start_to_close: None,
            max_local_activity_start_to_close: Duration::from_secs(60),
        }
    }
}

/// The machine's name, as far as the environment tells it.
fn host() -> String {
    std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "host".to_owned())
}

impl WorkerConfig {
    /// Sets the frontends, e.g. `http://127.0.0.1:7233`; default that one. When one fails the next is used.
    #[must_use]
    pub fn with_addresses<S: Into<String>>(mut self, addresses: impl IntoIterator<Item = S>) -> Self {
        self.addresses = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the bearer token; default none.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the tenant; default `default`.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the queues that it serves, 1 to 64; default `default`.
    #[must_use]
    pub fn with_queues<S: Into<String>>(mut self, queues: impl IntoIterator<Item = S>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how many workflow tasks run at once, at least 1; default 200. Shared evenly by the queues.
    #[must_use]
    pub fn with_max_concurrent_workflows(mut self, most: u32) -> Self {
        self.max_concurrent_workflows = most;
        self
    }

    /// Sets how many activities run at once; default 200. Shared evenly by the queues. 0 = none: this worker runs workflow code only.
    #[must_use]
    pub fn with_max_concurrent_activities(mut self, most: u32) -> Self {
        self.max_concurrent_activities = most;
        self
    }

    /// Sets how many runs are kept in memory between their tasks; default 1 000. 0 = every task is replayed from the full history.
    #[must_use]
    pub fn with_workflow_cache_size(mut self, most: usize) -> Self {
        self.workflow_cache_size = most;
        self
    }

    /// Sets whether the worker asks for the activities that its own workflow code schedules, and decides by itself what their results lead to,
    /// where it can; default true. A run of activities in sequence then needs about half the round trips to the server. To have such activities,
    /// the worker grants the server only half of its activity places at a time and keeps the rest. Turn it off when activities must be spread
    /// evenly over many workers that also run workflow code.
    #[must_use]
    pub fn with_eager_activities(mut self, eager: bool) -> Self {
        self.eager_activities = eager;
        self
    }

    /// Sets whether starts by a client that [`Worker::client`](crate::Worker::client) has made ask for the first workflow task of their run, where
    /// they can; default true. The run then begins with the reply, in this process. To have a place for it, the worker grants the server only half of
    /// its places for workflow tasks at a time and keeps the rest. Turn it off when runs should go to whichever worker is free.
    #[must_use]
    pub fn with_eager_starts(mut self, eager: bool) -> Self {
        self.eager_starts = eager;
        self
    }

    /// Sets how long running tasks may go on after a shutdown was asked for; default 25 s.
    #[must_use]
    pub fn with_shutdown_timeout(mut self, longest: Duration) -> Self {
        self.shutdown_timeout = longest;
        self
    }

    /// Sets how long an activity may go on after it was asked to cancel; default 5 s. Then it is aborted.
    #[must_use]
    pub fn with_cancellation_grace_period(mut self, longest: Duration) -> Self {
        self.cancellation_grace_period = longest;
        self
    }

    /// Sets the name of the worker's build, recorded with every decision; default empty.
    #[must_use]
    pub fn with_build_id(mut self, build_id: impl Into<String>) -> Self {
        self.build_id = build_id.into();
        self
    }

    /// Sets the worker's name for people; default `host:pid`.
    #[must_use]
    pub fn with_identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Sets the longest that one attempt of a local activity may take, whatever it declares; default 60 s.
    #[must_use]
    pub fn with_max_local_activity_start_to_close(mut self, longest: Duration) -> Self {
        self.max_local_activity_start_to_close = longest;
        self
    }

    /// Sets the retry policy of activities that declare none, at the call site or by their attribute; default none (3 attempts).
    #[must_use]
    pub fn with_default_activity_retry_policy(mut self, retry: RetryPolicy) -> Self {
        self.default_activity_retry_policy = Some(retry);
        self
    }

    /// Sets the longest attempt of activities that declare none; default none.
    #[must_use]
    pub fn with_default_activity_start_to_close(mut self, longest: Duration) -> Self {
        self.default_activity_start_to_close = Some(longest);
        self
    }
}
