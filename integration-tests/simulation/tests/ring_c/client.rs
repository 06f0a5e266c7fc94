//! Clients: they start, signal, look, ask, cancel and wait, and remember what they were told.

use crate::clock::sleep;
use crate::dice::Dice;
use crate::ledger::{Ending, Started};
use crate::net;
use crate::program::{Plan, QUERY, SIGNAL};
use crate::world::World;
use harvest_sdk::{Client, ClientError, ConflictPolicy, StartOptions, WorkflowHandle, WorkflowOutcomeError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Clients of one host.
pub const CLIENTS: u64 = 3;
const STARTS: u64 = 3;

type Handle = WorkflowHandle<serde_json::Value>;

/// One client's life.
pub async fn live(world: Arc<World>, host: &'static str, number: u64, dice: Dice) -> anyhow::Result<()> {
    let addresses = ["http://frontend-1:7233", "http://frontend-2:7233"];
    let client = Client::connect_over(&net::network(), addresses, None)?.with_patience(Duration::from_secs(8));
    let me = Me { world, client, dice, name: format!("{host}.{number}") };
    for start in 0..STARTS {
        sleep(me.dice.millis(4_000)).await;
        let shared = me.dice.one_in(4);
        let id = if shared { format!("shared-{}", me.dice.below(3)) } else { format!("{}.{start}", me.name) };
        if let Some(handle) = me.start(&id, start).await {
            me.accompany(&handle, (!shared).then_some(id.as_str()), start).await;
        }
    }
    me.world.note(format_args!("client {} is done", me.name));
    me.world.busy_clients.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// The life of a client in a worker's process: it starts some runs, which may begin in that process, and dies with it.
pub async fn live_beside(world: Arc<World>, client: Client, name: String, dice: Dice) {
    let me = Me { world, client: client.with_patience(Duration::from_secs(8)), dice, name };
    for start in 0..STARTS {
        sleep(me.dice.millis(2_000)).await;
        if me.world.is_calm() {
            return; // what is started now might not be over in the end
        }
        let _accompanied_by_nobody = me.start(&format!("{}.{start}", me.name), start).await;
    }
}

struct Me {
    world: Arc<World>,
    client: Client,
    dice: Dice,
    name: String,
}

/// Whether the same call may be answered another time.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unavailable(_) => true,
        ClientError::Refused { reason, .. } => {
            matches!(reason.as_str(), "RESOURCE_EXHAUSTED" | "INTERNAL" | "CANCELLED" | "QUERY_TIMEOUT" | "Unknown" | "Cancelled" | "Internal")
        }
        _ => false,
    }
}

impl Me {
    /// Repeats a call until it is answered.
    async fn insist<T, F: Future<Output = Result<T, ClientError>>>(&self, what: &str, call: impl Fn() -> F) -> Result<T, ClientError> {
        loop {
            match call().await {
                Err(error) if is_passing(&error) => {
                    self.world.note(format_args!("{} {what}: {error}", self.name));
                    sleep(self.dice.millis(500)).await;
                }
                // Types are known once a worker has been welcomed.
                Err(ClientError::NotFound(message)) if what == "starts" => {
                    self.world.note(format_args!("{} {what}: {message}", self.name));
                    sleep(Duration::from_millis(500)).await;
                }
                answer => return answer,
            }
        }
    }

    fn violation(&self, what: &str, found: &dyn std::fmt::Debug) {
        self.world.note(format_args!("{} {what}: {found:?}", self.name));
        self.world.ledger().violations.push(format!("{} {what}: {found:?}", self.name));
    }

    async fn start(&self, id: &str, number: u64) -> Option<Handle> {
        let request = format!("start-{}-{number}", self.name);
        let plan = Plan { seed: self.dice.below(1_000_000), depth: 2, generations: self.dice.below(3) };
        let policy = if self.dice.one_in(2) { ConflictPolicy::Fail } else { ConflictPolicy::UseExisting };
        let mut options = StartOptions::new(id).request_id(&request).conflict_policy(policy);
        if self.dice.one_in(6) {
            options = options.execution_timeout(Duration::from_secs(1) + self.dice.millis(20_000));
        }
        match self.insist("starts", || self.client.start_raw("errand", options.clone(), plan.clone())).await {
            Ok(handle) => {
                let handle: Handle = handle;
                self.world.note(format_args!("{request} is run {} fresh {}", handle.execution_id(), handle.started_fresh()));
                let started = Started { workflow_id: id.to_owned(), execution_id: handle.execution_id().to_owned(), fresh: handle.started_fresh() };
                self.world.ledger().starts.insert(request, started);
                Some(handle)
            }
            Err(ClientError::AlreadyExists(_)) if policy == ConflictPolicy::Fail => None,
            Err(error) => {
                self.violation("starts", &error);
                None
            }
        }
    }

    /// Does things with a run, then waits for its end. `key`: nobody else starts runs of it.
    async fn accompany(&self, run: &Handle, key: Option<&str>, start: u64) {
        for number in 0..self.dice.below(7) {
            sleep(self.dice.millis(900)).await;
            let by_key = key.filter(|_| self.dice.one_in(2)).map(|id| self.client.handle_raw("errand", id));
            let handle = by_key.as_ref().unwrap_or(run);
            match self.dice.below(12) {
                0..6 => self.signal(run, handle, format!("s-{}-{start}-{number}", self.name)).await,
                6..8 => self.look(run).await,
                8 | 9 => self.ask(handle).await,
                10 => self.end("cancels", || handle.cancel("by the client")).await,
                _ if self.dice.one_in(2) => self.end("terminates", || handle.terminate("by the client")).await,
                _ => {}
            }
        }
        self.wait(run).await;
        self.look(run).await;
    }

    async fn signal(&self, run: &Handle, handle: &Handle, text: String) {
        match self.insist("signals", || handle.signal_once(SIGNAL, &text, &text)).await {
            Ok(()) => {
                self.world.note(format_args!("signal {text} taken"));
                self.world.ledger().signals.insert(text, run.execution_id().to_owned());
            }
            Err(ClientError::Refused { reason, .. }) if reason == "WORKFLOW_CLOSED" => {
                self.world.note(format_args!("signal {text} refused"));
                self.world.ledger().refused_signals.insert(text);
            }
            Err(error) => self.violation("signals", &error),
        }
    }

    async fn look(&self, run: &Handle) {
        let asked_after = self.world.ledger().seen(run.execution_id());
        match self.insist("looks", || run.describe()).await {
            Ok(shown) => self.world.ledger().saw(run.execution_id(), shown.history_events, asked_after),
            Err(error) => self.violation("looks", &error),
        }
    }

    async fn ask(&self, handle: &Handle) {
        match handle.query::<Vec<String>>(QUERY, ()).await {
            Ok(_) => self.world.ledger().answers += 1,
            Err(error) if is_passing(&error) => {}
            // A run that has not run its first step knows no query.
            Err(ClientError::NotFound(_)) => {}
            Err(ClientError::Refused { reason, .. }) if reason == "QUERY_FAILED" => {}
            Err(error) => self.violation("asks", &error),
        }
    }

    async fn end<F: Future<Output = Result<(), ClientError>>>(&self, what: &str, call: impl Fn() -> F) {
        match self.insist(what, call).await {
            Ok(()) => self.world.note(format_args!("{} {what}", self.name)),
            Err(ClientError::Refused { reason, .. }) if reason == "WORKFLOW_CLOSED" => {}
            Err(error) => self.violation(what, &error),
        }
    }

    async fn wait(&self, run: &Handle) {
        loop {
            let ending = match run.poll_result(Duration::from_secs(20)).await {
                Ok(None) => continue,
                Ok(Some(result)) => Ending::Completed(result),
                Err(WorkflowOutcomeError::Failed { error_type, .. }) => Ending::Failed(error_type),
                Err(WorkflowOutcomeError::Cancelled(_)) => Ending::Cancelled,
                Err(WorkflowOutcomeError::Terminated(_)) => Ending::Terminated,
                Err(WorkflowOutcomeError::TimedOut(_)) => Ending::TimedOut,
                Err(WorkflowOutcomeError::Call(error)) if is_passing(&error) => {
                    sleep(self.dice.millis(500)).await;
                    continue;
                }
                Err(error) => return self.violation("waits", &error),
            };
            self.world.note(format_args!("{} has ended: {ending:?}", run.execution_id()));
            self.world.ledger().endings.insert(run.execution_id().to_owned(), ending);
            return;
        }
    }
}
