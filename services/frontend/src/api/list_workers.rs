//! Connected workers are listed.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_ids::Namespace;
use harvest_proto::v1::{ListWorkersRequest, ListWorkersResponse};
use harvest_rpc::Error;
use harvest_wire::field;
use tokio::time::Instant;

pub(crate) async fn list_workers(edge: &Edge, mut request: ListWorkersRequest, deadline: Instant) -> Result<ListWorkersResponse, Error> {
    let namespace: Namespace = field::name_or_default("namespace", request.namespace).map_err(malformed)?;
    request.namespace = namespace.to_string();
    edge.configs.call(deadline, request, |mut client, call| async move { client.list_workers(call).await }).await
}
