//! The way in: one file for each call.

mod arm_timers;

use crate::scanner::Scanner;
use harvest_proto::internal::v1::timer_scanner_service_server::TimerScannerService;
use harvest_proto::internal::v1::{ArmTimersCall, ArmTimersReply};
use tonic::{Request, Response, Status};

/// Serves `TimerScannerService`.
#[derive(Clone)]
pub(crate) struct Api {
    pub scanner: Scanner,
}

#[tonic::async_trait]
impl TimerScannerService for Api {
    async fn arm_timers(&self, request: Request<ArmTimersCall>) -> Result<Response<ArmTimersReply>, Status> {
        Ok(Response::new(arm_timers::arm_timers(self, &request.into_inner())?))
    }
}
