//! The way in: one file for each call.

mod acknowledge;
mod get_snapshot;
mod list_workers;
mod patch_fleet_limits;
mod register_workers;

use crate::hub::Hub;
use harvest_proto::internal::v1::config_service_server::ConfigService;
use harvest_proto::internal::v1::{AcknowledgeCall, AcknowledgeReply, ConfigSnapshot, GetSnapshotCall, RegisterWorkersCall, RegisterWorkersReply};
use harvest_proto::v1::{ListWorkersRequest, ListWorkersResponse, PatchFleetLimitsRequest, PatchFleetLimitsResponse};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Serves `ConfigService`.
#[derive(Clone)]
pub(crate) struct Api {
    pub hub: Arc<Hub>,
}

#[tonic::async_trait]
impl ConfigService for Api {
    async fn get_snapshot(&self, _: Request<GetSnapshotCall>) -> Result<Response<ConfigSnapshot>, Status> {
        Ok(Response::new(get_snapshot::get_snapshot(&self.hub).await?))
    }

    async fn acknowledge(&self, request: Request<AcknowledgeCall>) -> Result<Response<AcknowledgeReply>, Status> {
        Ok(Response::new(acknowledge::acknowledge(&self.hub, request.into_inner()).await?))
    }

    async fn register_workers(&self, request: Request<RegisterWorkersCall>) -> Result<Response<RegisterWorkersReply>, Status> {
        Ok(Response::new(register_workers::register_workers(&self.hub, request.into_inner()).await?))
    }

    async fn list_workers(&self, request: Request<ListWorkersRequest>) -> Result<Response<ListWorkersResponse>, Status> {
        Ok(Response::new(list_workers::list_workers(&self.hub, &request.into_inner()).await?))
    }

    async fn patch_fleet_limits(&self, request: Request<PatchFleetLimitsRequest>) -> Result<Response<PatchFleetLimitsResponse>, Status> {
        // A caller that goes away must not stop a change between its commit and its broadcast.
        let (hub, request) = (self.hub.clone(), request.into_inner());
        let patched = harvest_runtime::spawn("patch limits", async move { patch_fleet_limits::patch_fleet_limits(&hub, request).await }).await;
        let answer = patched.map_err(|_| Status::internal("the change ended badly"))?;
        Ok(Response::new(answer?))
    }
}
