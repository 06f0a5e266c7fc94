//! The world outside the fleet: an HTTP server in the test process that appends every call that an activity makes.
//!
//! It has no unique constraint and forgets nothing, so it shows what really happened. A call may name a *gate*: while the test holds the
//! gate the call is recorded and not answered, which keeps its activity running for exactly as long as the test wants.

use crate::eventually::holds;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use harvest_sdk::{ActivityContext, ActivityFailure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// One call of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The tenant.
    pub namespace: String,
    /// The business key of the run.
    pub workflow_id: String,
    /// The run.
    pub execution_id: String,
    /// The activity's function.
    pub activity: String,
    /// The same for every attempt of an activity, different for every other.
    pub idempotency_key: String,
    /// From 1.
    pub attempt: u32,
    /// The process that runs it.
    pub pid: u32,
    /// What the activity says.
    pub payload: serde_json::Value,
    /// The gate that it waits at.
    pub gate: Option<String>,
}

#[derive(Clone)]
struct Book {
    calls: Arc<Mutex<Vec<Call>>>,
    held: Arc<watch::Sender<BTreeSet<String>>>,
}

impl Book {
    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server. It ends with the test.
pub struct Observer {
    url: String,
    book: Book,
    _server: harvest_runtime::OwnedTask<()>,
}

impl Observer {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start() -> anyhow::Result<Self> {
        let book = Book { calls: Arc::default(), held: Arc::new(watch::channel(BTreeSet::new()).0) };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = Router::new().route("/calls", post(record)).with_state(book.clone());
        let server = harvest_runtime::spawn_owned("observer", async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the observer ended");
            }
        });
        Ok(Self { url, book, _server: server })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls that name this gate are not answered from now on.
    pub fn hold(&self, gate: &str) {
        self.book.held.send_modify(|held| _ = held.insert(gate.to_owned()));
    }

    /// Answers the calls that wait at this gate, and those that come later.
    pub fn release(&self, gate: &str) {
        self.book.held.send_modify(|held| _ = held.remove(gate));
    }

    /// The calls of one tenant, in order of arrival.
    pub fn calls(&self, namespace: &str) -> Vec<Call> {
        self.book.calls().iter().filter(|call| call.namespace == namespace).cloned().collect()
    }

    /// The calls of one run, in order of arrival.
    pub fn calls_of(&self, namespace: &str, workflow_id: &str) -> Vec<Call> {
        self.book.calls().iter().filter(|call| call.namespace == namespace && call.workflow_id == workflow_id).cloned().collect()
    }

    /// Waits until at least `count` calls of one run have arrived.
    ///
    /// # Errors
    /// When they have not within `longest`.
    pub async fn wait_for_calls(&self, namespace: &str, workflow_id: &str, count: usize, longest: Duration) -> anyhow::Result<Vec<Call>> {
        holds(format!("{count} calls of {workflow_id} at the observer"), longest, || self.calls_of(namespace, workflow_id).len() >= count).await?;
        Ok(self.calls_of(namespace, workflow_id))
    }
}

async fn record(State(book): State<Book>, Json(call): Json<Call>) -> Json<()> {
    let gate = call.gate.clone();
    book.calls().push(call);
    if let Some(gate) = gate {
        let mut held = book.held.subscribe();
        // The sender lives as long as the book: this ends with the gate's release.
        drop(held.wait_for(|held| !held.contains(&gate)).await);
    }
    Json(())
}

/// The way to the observer: a worker's state.
#[derive(Debug, Clone)]
pub struct ObserverClient {
    http: reqwest::Client,
    url: String,
}

impl ObserverClient {
    /// A client of the observer at `url`.
    pub fn new(url: &str) -> Self {
        Self { http: reqwest::Client::new(), url: url.to_owned() }
    }
}

/// Tells the observer what this attempt does, waiting at `gate` if one is given and held.
///
/// # Errors
/// `Setup` when the worker has no observer, `ObserverGone` when it does not answer.
pub async fn report(ctx: &ActivityContext, payload: impl Serialize, gate: Option<&str>) -> Result<(), ActivityFailure> {
    let observer = ctx.state::<ObserverClient>().ok_or_else(|| ActivityFailure::non_retryable("Setup", "the worker was built without an observer"))?;
    let gone = |error: String| ActivityFailure::new("ObserverGone", error);
    let info = ctx.info();
    let call = Call {
        namespace: info.namespace.clone(),
        workflow_id: info.workflow_id.clone(),
        execution_id: info.execution_id.clone(),
        activity: info.activity_type.clone(),
        idempotency_key: ctx.idempotency_key(),
        attempt: info.attempt,
        pid: std::process::id(),
        payload: serde_json::to_value(payload).map_err(|error| gone(error.to_string()))?,
        gate: gate.map(str::to_owned),
    };
    let sent = observer.http.post(format!("{}/calls", observer.url)).json(&call).send().await.and_then(reqwest::Response::error_for_status);
    sent.map(|_| ()).map_err(|error| gone(error.to_string()))
}
