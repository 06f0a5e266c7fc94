//! A fleet in one process for tests: the real core behind the public protocol, in memory, without durability or shards.

mod eager;
mod eager_start;
mod engine;
mod server;

pub use engine::{Faults, RunRecord};

use engine::Engine;
use harvest_proto::v1::worker_service_server::WorkerServiceServer;
use harvest_proto::v1::workflow_service_server::WorkflowServiceServer;
use harvest_sdk::Client;
use harvest_workflow_core::event::Event;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;

/// Shared by the services and the test.
pub struct Fleet {
    engine: Arc<Mutex<Engine>>,
    changed: Arc<Notify>,
    address: String,
    _serving: JoinSet<()>,
}

impl Fleet {
    pub async fn start() -> Self {
        let engine = Arc::new(Mutex::new(Engine::default()));
        let changed = Arc::new(Notify::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let services = server::Services { engine: engine.clone(), changed: changed.clone() };
        let mut serving = JoinSet::new();
        let router = tonic::transport::Server::builder()
            .add_service(WorkerServiceServer::new(services.clone()))
            .add_service(WorkflowServiceServer::new(services.clone()));
        serving.spawn(async move { router.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap() });
        serving.spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(5));
            loop {
                tick.tick().await;
                services.act(Engine::wake_due);
            }
        });
        Self { engine, changed, address, _serving: serving }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn client(&self) -> Client {
        Client::connect([self.address()]).unwrap()
    }

    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap()
    }

    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.engine().faults);
    }

    /// Waits until the engine shows it.
    pub async fn until<T>(&self, what: &str, mut look: impl FnMut(&mut Engine) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = look(&mut self.engine()) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("{what} did not come"))
    }

    pub fn events(&self, execution_id: &str) -> Vec<Event> {
        self.engine().events(execution_id)
    }
}
