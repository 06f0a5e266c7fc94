//! `RegisterWorkers`: a frontend's live sessions. Registers their types and refreshes their last-seen time.

use crate::hub::{Hub, queues_of, unavailable};
use harvest_fleet_config::Message;
use harvest_ids::{ActivityType, Namespace, TaskQueue, WorkerId, WorkflowType};
use harvest_persistence::control::{StoredType, StoredWorker, TypeKind};
use harvest_proto::internal::v1::{RegisterWorkersCall, RegisterWorkersReply, WorkerSession};
use harvest_proto::v1::Hello;
use harvest_rpc::Error;
use prost::Message as _;

/// Most sessions of one call.
const MAX_SESSIONS: usize = 20_000;

pub(super) async fn register_workers(hub: &Hub, call: RegisterWorkersCall) -> Result<RegisterWorkersReply, Error> {
    for (field, count) in [("sessions", call.sessions.len()), ("ended_worker_ids", call.ended_worker_ids.len())] {
        if count > MAX_SESSIONS {
            return Err(Error::invalid(field, format_args!("{field} has {count} entries; allowed are {MAX_SESSIONS}")));
        }
    }
    let (mut workers, mut types) = (Vec::with_capacity(call.sessions.len()), Vec::new());
    for session in call.sessions {
        let (worker, declared) = parse(hub, session)?;
        workers.push(worker);
        types.extend(declared);
    }
    let ended = call.ended_worker_ids.iter().map(|id| WorkerId::new(id).map_err(|error| Error::invalid("ended_worker_ids", error)));
    let ended = ended.collect::<Result<Vec<_>, _>>()?;
    let new_types = hub.new_types(types);
    // Types first: a session that is listed has its types registered.
    if !new_types.is_empty() {
        hub.store.register_types(&new_types).await.map_err(|error| unavailable(&error))?;
    }
    if !workers.is_empty() || !ended.is_empty() {
        hub.store.report_workers(&workers, &ended, hub.worker_ttl_ms).await.map_err(|error| unavailable(&error))?;
    }
    let new_queues = hub.remember_queues(workers.iter().flat_map(queues_of));
    let news = !new_types.is_empty() || new_queues || !ended.is_empty();
    hub.remember_types(new_types);
    if news {
        hub.publish(&Message::RegistryChanged).await;
    }
    Ok(RegisterWorkersReply {})
}

fn parse(hub: &Hub, session: WorkerSession) -> Result<(StoredWorker, Vec<StoredType>), Error> {
    let worker_id = WorkerId::new(&session.worker_id).map_err(|error| Error::invalid("sessions.worker_id", error))?;
    let hello: Hello = session.hello.ok_or_else(|| Error::invalid("sessions.hello", "hello must be set"))?;
    let namespace = if hello.namespace.is_empty() {
        Namespace::default()
    } else {
        Namespace::new(&hello.namespace).map_err(|error| Error::invalid("sessions.hello.namespace", error))?
    };
    for queue in &hello.task_queues {
        TaskQueue::new(queue).map_err(|error| Error::invalid("sessions.hello.task_queues", error))?;
    }
    let declared = |info: &harvest_proto::v1::WorkflowTypeInfo| {
        let name = WorkflowType::new(&info.name).map_err(|error| Error::invalid("sessions.hello.workflow_types", error))?;
        Ok(StoredType { kind: TypeKind::Workflow, namespace: namespace.clone(), name: name.to_string(), info: info.encode_to_vec() })
    };
    let declared_activity = |info: &harvest_proto::v1::ActivityTypeInfo| {
        let name = ActivityType::new(&info.name).map_err(|error| Error::invalid("sessions.hello.activity_types", error))?;
        Ok(StoredType { kind: TypeKind::Activity, namespace: namespace.clone(), name: name.to_string(), info: info.encode_to_vec() })
    };
    let workflows = hello.workflow_types.iter().map(declared);
    let types = workflows.chain(hello.activity_types.iter().map(declared_activity)).collect::<Result<Vec<_>, Error>>()?;
    Ok((StoredWorker { worker_id, namespace, hello: hello.encode_to_vec(), last_seen: hub.clock.now() }, types))
}
