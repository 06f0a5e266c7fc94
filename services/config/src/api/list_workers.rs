//! `ListWorkers`: connected worker sessions of a namespace.

use crate::hub::{Hub, unavailable};
use harvest_ids::Namespace;
use harvest_persistence::control::StoredWorker;
use harvest_proto::v1::{Hello, ListWorkersRequest, ListWorkersResponse, WorkerInfo};
use harvest_rpc::{Error, Reason};
use prost::Message as _;

pub(super) async fn list_workers(hub: &Hub, request: &ListWorkersRequest) -> Result<ListWorkersResponse, Error> {
    let namespace = match request.namespace.as_str() {
        "" => Namespace::default(),
        text => Namespace::new(text).map_err(|error| Error::invalid("namespace", error))?,
    };
    let stored = hub.store.workers(hub.worker_ttl_ms).await.map_err(|error| unavailable(&error))?;
    let workers = stored.into_iter().filter(|worker| worker.namespace == namespace).map(info).collect::<Result<_, _>>()?;
    Ok(ListWorkersResponse { workers })
}

fn info(worker: StoredWorker) -> Result<WorkerInfo, Error> {
    let hello = Hello::decode(worker.hello.as_slice()).map_err(|error| Error::new(Reason::DataLoss, format!("worker {}: {error}", worker.worker_id)))?;
    Ok(WorkerInfo {
        worker_id: worker.worker_id.to_string(),
        identity: hello.identity,
        build_id: hello.build_id,
        sdk: hello.sdk,
        task_queues: hello.task_queues,
        workflow_types: hello.workflow_types.into_iter().map(|info| info.name).collect(),
        activity_types: hello.activity_types.into_iter().map(|info| info.name).collect(),
        last_seen_ms: worker.last_seen.as_millis(),
        namespace: worker.namespace.to_string(),
    })
}
