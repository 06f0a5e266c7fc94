//! `GetSnapshot`: everything that processes keep in memory, at least as new as the call.

use crate::hub::Hub;
use harvest_proto::internal::v1::ConfigSnapshot;
use harvest_rpc::Error;

pub(super) async fn get_snapshot(hub: &Hub) -> Result<ConfigSnapshot, Error> {
    hub.snapshot().await
}
