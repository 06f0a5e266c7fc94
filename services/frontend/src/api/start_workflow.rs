//! A run starts.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_ids::{Namespace, Slot, WorkflowType};
use harvest_proto::internal::v1::StartWorkflowCall;
use harvest_proto::v1::{StartWorkflowRequest, StartWorkflowResponse, WorkflowTypeInfo};
use harvest_rpc::{Error, Reason};
use harvest_wire::start::StartWorkflow;
use tokio::time::Instant;

/// How many similar names an unknown type is answered with.
const MAX_SUGGESTIONS: usize = 3;

pub(crate) async fn start_workflow(edge: &Edge, mut request: StartWorkflowRequest, deadline: Instant) -> Result<StartWorkflowResponse, Error> {
    let start = StartWorkflow::from_proto(request.clone(), &edge.options.limits).map_err(malformed)?;
    let declared = registered(edge, &start.namespace, &start.workflow_type).await?;
    // Made once, here: the retries below must be repetitions of one call.
    let workflow_id = start.workflow_id.unwrap_or_else(|| edge.new_workflow_id());
    let request_id = start.request_id.unwrap_or_else(|| edge.new_request_id());
    let slot = Slot::of(&start.namespace, &workflow_id);
    request.namespace = start.namespace.to_string();
    request.workflow_id = workflow_id.to_string();
    request.task_queue = start.task_queue.to_string();
    request.request_id = request_id.to_string();
    let eager_worker = start.eager_worker.filter(|worker_id| edge.sessions.serves(worker_id, &start.namespace, &start.task_queue, &start.workflow_type));
    request.eager_worker_id = eager_worker.map(|worker_id| worker_id.to_string()).unwrap_or_default();
    let make = |shard_id| StartWorkflowCall { shard_id, request: Some(request.clone()), declared: Some(declared.clone()) };
    let mut reply = edge.router.call(slot, deadline, make, |mut client, call| async move { client.start_workflow(call).await }).await?;
    let config = edge.config.get();
    if config.loaded && !config.is_served(&start.namespace, &start.task_queue) {
        reply.warnings.push(format!("no live worker serves task queue {:?}: the run waits until one does", start.task_queue.as_str()));
    }
    Ok(reply)
}

/// What is registered about a type. One that no worker has ever registered is refused, after one fresh look.
async fn registered(edge: &Edge, namespace: &Namespace, workflow_type: &WorkflowType) -> Result<WorkflowTypeInfo, Error> {
    if let Some(info) = edge.config.get().workflow_type(namespace, workflow_type) {
        return Ok(info.to_proto(workflow_type));
    }
    let refreshed = edge.config.refresh().await;
    let config = edge.config.get();
    if let Some(info) = config.workflow_type(namespace, workflow_type) {
        return Ok(info.to_proto(workflow_type));
    }
    if let Err(error) = refreshed {
        return Err(Error::unavailable(format!("whether workflow type {:?} exists cannot be told: {}", workflow_type.as_str(), error.message)));
    }
    let similar = nearest(workflow_type.as_str(), config.type_names(namespace).map(WorkflowType::as_str));
    let mut message = format!("no worker has registered workflow type {:?} in namespace {namespace}", workflow_type.as_str());
    if !similar.is_empty() {
        message.push_str(&format!("; did you mean {}?", similar.join(", ")));
    }
    let mut error = Error::new(Reason::UnknownWorkflowType, message).with("workflow_type", workflow_type);
    error.field = Some("workflow_type".to_owned());
    Err(error)
}

/// The known names most like `wanted`, the nearest first.
fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted_lower = wanted.to_lowercase();
    let within = (wanted.chars().count() / 3).max(2);
    let mut ranked: Vec<(usize, &str)> =
        known.map(|name| (strsim::damerau_levenshtein(&wanted_lower, &name.to_lowercase()), name)).filter(|(distance, _)| *distance <= within).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_misspelt_type_is_answered_with_the_nearest_names() {
        let known = || ["order", "Order_v2", "invoice", "border"].into_iter();
        assert_eq!(nearest("ordr", known()), ["order", "border"]);
        assert_eq!(nearest("ORDER", known()), ["order", "border"]);
        assert!(nearest("shipping", known()).is_empty());
    }
}
