//! The list itself. One line a metric: static, kind, name, unit, (bounds,) labels; its documentation is its help text.

use super::{COUNTS, Counter, Descriptor, Gauge, Histogram, SECONDS};

/// How many labels a list has, for the type of its metric.
const fn count(labels: &[&str]) -> usize {
    labels.len()
}

macro_rules! metrics {
    ($(#[doc = $help:literal] $constant:ident: $kind:ident = $name:literal, $unit:literal, $($bounds:ident,)? [$($label:literal),*];)*) => {
        $(#[doc = $help] pub static $constant: $kind<{ count(&[$($label),*]) }> = $kind::new($name, $unit, $($bounds,)? &[$($label),*], $help);)*

        /// Every metric of the fleet.
        pub fn catalogue() -> Vec<Descriptor> {
            vec![$($constant.descriptor),*]
        }

        #[cfg(test)]
        pub(super) fn emit_all() {
            $(super::Emit::emit(&$constant);)*
        }
    };
}

metrics! {
    #[doc = "Runs started."]
    WORKFLOW_STARTED: Counter = "harvest.workflow.started", "", ["workflow", "queue"];
    #[doc = "Runs whose first workflow task went to a worker with the answer to their start."]
    WORKFLOW_EAGER_STARTED: Counter = "harvest.workflow.eager_started", "", ["workflow", "queue"];
    #[doc = "Runs closed, by outcome: completed, failed, cancelled, timed_out, terminated, continued_as_new."]
    WORKFLOW_TERMINAL: Counter = "harvest.workflow.terminal", "", ["workflow", "queue", "outcome"];
    #[doc = "From start to close of a run, by outcome."]
    WORKFLOW_DURATION: Histogram = "harvest.workflow.duration", "s", SECONDS, ["workflow", "queue", "status"];
    #[doc = "Runs closed by their execution timeout."]
    WORKFLOW_TIMEOUT: Counter = "harvest.workflow.timeout", "", ["workflow", "queue"];
    #[doc = "Runs closed by the timeout of their chain."]
    WORKFLOW_CHAIN_TIMEOUT: Counter = "harvest.workflow.chain_timeout", "", ["workflow", "queue"];
    #[doc = "Runs that were found to be late: their SLA passed. Nothing else happens to them."]
    WORKFLOW_SLA_BREACHED: Counter = "harvest.workflow.sla_breached", "", ["workflow", "queue"];
    #[doc = "Runs that continued as new."]
    WORKFLOW_CONTINUE_AS_NEW: Counter = "harvest.workflow.continue_as_new", "", ["workflow"];
    #[doc = "Workflow tasks whose code did not match the history: the run is blocked until one does."]
    WORKFLOW_NONDETERMINISTIC_BLOCK: Counter = "harvest.workflow.nondeterministic_block", "", ["workflow", "queue"];
    #[doc = "Workflow tasks whose code panicked."]
    WORKFLOW_PANIC: Counter = "harvest.workflow.panic", "", ["workflow", "queue"];
    #[doc = "Decisions that found their run in memory."]
    WORKFLOW_CACHE_HIT: Counter = "harvest.workflow.cache_hit", "", [];
    #[doc = "Decisions that had to load their run from the store."]
    WORKFLOW_CACHE_MISS: Counter = "harvest.workflow.cache_miss", "", [];
    #[doc = "Bytes of memory that runs of this process's shards take, by estimate."]
    WORKFLOW_CACHE_BYTES: Gauge = "harvest.workflow.cache_bytes", "", [];
    #[doc = "Ended attempts of activities, by outcome: completed, failed, cancelled, timed_out, lost."]
    ACTIVITY_ATTEMPTS: Counter = "harvest.activity.attempts", "", ["activity", "queue", "outcome"];
    #[doc = "Attempts that will be retried."]
    ACTIVITY_RETRIES: Counter = "harvest.activity.retries", "", ["activity", "queue"];
    #[doc = "Activities that failed for good."]
    ACTIVITY_FAILED: Counter = "harvest.activity.failed", "", ["activity", "queue"];
    #[doc = "Durable timers started."]
    TIMER_STARTED: Counter = "harvest.timer.started", "", [];
    #[doc = "From a timer's due time to the commit that fired it."]
    TIMER_LAG: Histogram = "harvest.timer.lag", "s", SECONDS, [];
    #[doc = "Signals received."]
    SIGNAL_RECEIVED: Counter = "harvest.signal.received", "", ["workflow", "queue"];
    #[doc = "Time of one batch commit, sent to answered."]
    ENGINE_COMMIT_DURATION: Histogram = "harvest.engine.commit.duration", "s", SECONDS, [];
    #[doc = "Decisions in one batch commit."]
    ENGINE_COMMIT_DECISIONS: Histogram = "harvest.engine.commit.decisions", "", COUNTS, [];
    #[doc = "Batch commits, by outcome: committed, lost, poisoned, unavailable, unknown."]
    ENGINE_COMMITS: Counter = "harvest.engine.commits", "", ["outcome"];
    #[doc = "Calls refused because a bound was reached, by its name: too much waits, or too much of one run."]
    OVERLOADED: Counter = "harvest.overloaded", "", ["limit"];
    #[doc = "Shards that this process owns."]
    SHARD_OWNED: Gauge = "harvest.shard.owned", "", [];
    #[doc = "The epoch under which this process last owned the shard."]
    SHARD_GENERATION: Gauge = "harvest.shard.generation", "", ["shard"];
    #[doc = "Shards lost to another owner: its batch was fenced off."]
    SHARD_FENCED: Counter = "harvest.shard.fenced", "", ["shard"];
    #[doc = "Shards taken over, by cause: acquired, handed_over."]
    SHARD_ACQUIRED: Counter = "harvest.shard.acquired", "", ["cause"];
    #[doc = "Offers waiting in this matching process, by kind: workflow, activity, query."]
    QUEUE_DEPTH: Gauge = "harvest.queue.depth", "", ["kind"];
    #[doc = "Tasks handed to workers, by kind."]
    QUEUE_DISPATCHED: Counter = "harvest.queue.dispatched", "", ["kind"];
    #[doc = "Offers whose task was no longer pending when a worker was found, by kind."]
    QUEUE_GONE: Counter = "harvest.queue.gone", "", ["kind"];
    #[doc = "Offers dropped because their history process had more than the window in one queue, by kind."]
    QUEUE_DROPPED: Counter = "harvest.queue.dropped", "", ["kind"];
    #[doc = "From the arrival of an offer to its task being handed to a worker, by kind."]
    QUEUE_SCHEDULE_TO_START: Histogram = "harvest.queue.schedule_to_start", "s", SECONDS, ["kind"];
    #[doc = "Worker sessions connected to this matching process."]
    QUEUE_SESSIONS: Gauge = "harvest.queue.sessions", "", [];
    #[doc = "Scans of due rows, by outcome: rows, idle, failed."]
    SCANNER_TICK: Counter = "harvest.scanner.tick", "", ["outcome"];
    #[doc = "Runs whose timers were sent to their owners."]
    SCANNER_FIRED: Counter = "harvest.scanner.fired", "", [];
    #[doc = "Deadlines in this scanner's memory."]
    SCANNER_ARMED: Gauge = "harvest.scanner.armed", "", [];
    #[doc = "Number of the configuration version that this process uses."]
    CONFIG_VERSION: Gauge = "harvest.config.version", "", ["service"];
    #[doc = "Time since this process last knew that its configuration is the newest."]
    CONFIG_STALENESS: Gauge = "harvest.config.staleness", "s", ["service"];
    #[doc = "From the commit of a changed limit until every shard had acknowledged it."]
    CONFIG_PROPAGATION: Histogram = "harvest.config.propagation", "s", SECONDS, [];
    #[doc = "Requests served, by method and gRPC code or HTTP status."]
    RPC_REQUESTS: Counter = "harvest.rpc.requests", "", ["method", "code"];
    #[doc = "Time to answer a request."]
    RPC_DURATION: Histogram = "harvest.rpc.duration", "s", SECONDS, ["method"];
    #[doc = "Worker sessions connected to this frontend."]
    WORKER_SESSIONS: Gauge = "harvest.worker.sessions", "", [];
    #[doc = "How far the clock of this process's machine is ahead of the database's, which is used instead."]
    CLOCK_SKEW: Gauge = "harvest.clock.skew", "s", ["service"];
    #[doc = "Messages on the bus that this process did not understand: a newer release's, or another program's."]
    BUS_UNREADABLE: Counter = "harvest.bus.unreadable", "", [];
    #[doc = "Tasks of the process that panicked: a bug."]
    TASK_PANICS: Counter = "harvest.process.task_panics", "", ["task"];
}
