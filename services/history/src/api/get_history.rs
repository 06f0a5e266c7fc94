//! Events of a run, by pages.

use super::{Api, request, target};
use crate::reply::malformed;
use crate::shard::operation::Refusal;
use harvest_ids::{EventId, ExecutionId, ShardId};
use harvest_proto::internal::v1::GetHistoryCall;
use harvest_proto::v1::GetHistoryResponse;
use harvest_rpc::Error;
use harvest_wire::start::GetHistory;
use harvest_workflow_core::event::Event;
use harvest_workflow_core::record::Record;

/// Bytes after which a page ends.
pub(super) const PAGE_BYTES: usize = 2 * 1024 * 1024;

pub(super) async fn get_history(api: &Api, call: GetHistoryCall) -> Result<GetHistoryResponse, Error> {
    let get = GetHistory::from_proto(request(call.request)?).map_err(malformed)?;
    let (run, _, last_event) = api.locate(call.shard_id, target(&get.workflow)).await?;
    let most = usize::try_from(get.page_size).unwrap_or(usize::MAX);
    let events = read(api, ShardId(call.shard_id), run, get.from, last_event, most).await?;
    let next = events.last().map_or(last_event.next(), |event| event.id.next());
    let next_event_id = if next > last_event { 0 } else { next.0 };
    Ok(GetHistoryResponse { events: events.iter().map(harvest_wire::event::to_proto).collect(), next_event_id, execution_id: run.to_string() })
}

/// Events from `from` to `to`, at most so many and about [`PAGE_BYTES`]. They are read from the store, which holds committed ones only.
pub(super) async fn read(api: &Api, shard_id: ShardId, run: ExecutionId, from: EventId, to: EventId, most: usize) -> Result<Vec<Event>, Error> {
    if from > to {
        return Ok(Vec::new());
    }
    let rows = api.store.history(shard_id, run, from, PAGE_BYTES).await.map_err(|error| api.error(shard_id, crate::shard::refusal_of(&error)))?;
    let mut events = Vec::new();
    for row in rows {
        let records = harvest_wire::records::decode(&row).map_err(|error| api.error(shard_id, Refusal::Corrupt(error.to_string())))?;
        events.extend(records.into_iter().filter_map(|record| match record {
            Record::Event(event) if event.id >= from && event.id <= to => Some(event),
            Record::Event(_) | Record::Control(_) => None,
        }));
    }
    events.truncate(most);
    Ok(events)
}
