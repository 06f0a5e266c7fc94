//! A config service that knows what was registered with it.

use harvest_proto::internal::v1::config_service_server::{ConfigService, ConfigServiceServer};
use harvest_proto::internal::v1::*;
use harvest_proto::v1;
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
pub struct FakeConfig {
    pub sessions: Arc<Mutex<Vec<WorkerSession>>>,
    pub ended: Arc<Mutex<Vec<String>>>,
    pub patches: Arc<Mutex<Vec<v1::PatchFleetLimitsRequest>>>,
}

impl FakeConfig {
    pub fn service(&self) -> ConfigServiceServer<Self> {
        ConfigServiceServer::new(self.clone())
    }

    /// Makes a type and a queue known, as a worker would.
    pub fn register(&self, workflow_type: &str, queue: &str) {
        let hello = v1::Hello {
            namespace: "default".into(),
            task_queues: vec![queue.into()],
            workflow_types: vec![v1::WorkflowTypeInfo { name: workflow_type.into(), ..v1::WorkflowTypeInfo::default() }],
            ..Default::default()
        };
        self.sessions.lock().unwrap().push(WorkerSession { worker_id: "worker-0".into(), hello: Some(hello) });
    }
}

#[tonic::async_trait]
impl ConfigService for FakeConfig {
    async fn get_snapshot(&self, _: Request<GetSnapshotCall>) -> Result<Response<ConfigSnapshot>, Status> {
        let hellos: Vec<v1::Hello> = self.sessions.lock().unwrap().iter().filter_map(|session| session.hello.clone()).collect();
        let workflow_types = hellos
            .iter()
            .flat_map(|hello| hello.workflow_types.iter().map(|it| RegisteredType { namespace: hello.namespace.clone(), workflow_type: Some(it.clone()) }))
            .collect();
        let served_queues = hellos
            .iter()
            .flat_map(|hello| hello.task_queues.iter().map(|queue| ServedQueue { namespace: hello.namespace.clone(), task_queue: queue.clone() }))
            .collect();
        let limits = Some(v1::FleetLimits { max_workflow_execution_timeout_ms: Some(3_600_000), ..v1::FleetLimits::default() });
        let version = Some(v1::ConfigVersion { generation: 1, number: 4 });
        Ok(Response::new(ConfigSnapshot { version, limits, workflow_types, served_queues, ..ConfigSnapshot::default() }))
    }
    async fn acknowledge(&self, _: Request<AcknowledgeCall>) -> Result<Response<AcknowledgeReply>, Status> {
        Ok(Response::new(AcknowledgeReply {}))
    }
    async fn register_workers(&self, request: Request<RegisterWorkersCall>) -> Result<Response<RegisterWorkersReply>, Status> {
        let call = request.into_inner();
        let mut sessions = self.sessions.lock().unwrap();
        for session in call.sessions {
            sessions.retain(|known| known.worker_id != session.worker_id);
            sessions.push(session);
        }
        self.ended.lock().unwrap().extend(call.ended_worker_ids);
        Ok(Response::new(RegisterWorkersReply {}))
    }
    async fn list_workers(&self, request: Request<v1::ListWorkersRequest>) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let namespace = request.into_inner().namespace;
        let info = |session: &WorkerSession| v1::WorkerInfo { worker_id: session.worker_id.clone(), namespace: namespace.clone(), ..Default::default() };
        Ok(Response::new(v1::ListWorkersResponse { workers: self.sessions.lock().unwrap().iter().map(info).collect() }))
    }
    async fn patch_fleet_limits(&self, request: Request<v1::PatchFleetLimitsRequest>) -> Result<Response<v1::PatchFleetLimitsResponse>, Status> {
        let request = request.into_inner();
        if request.limits.as_ref().and_then(|limits| limits.max_workflow_execution_timeout_ms) == Some(1) {
            return Err(harvest_rpc::Error::invalid("max_workflow_execution_timeout_ms", "too small").into());
        }
        let limits = request.limits;
        self.patches.lock().unwrap().push(request);
        let version = Some(v1::ConfigVersion { generation: 1, number: 5 });
        Ok(Response::new(v1::PatchFleetLimitsResponse { limits, version, acknowledged: 3, pending: vec![2] }))
    }
}
