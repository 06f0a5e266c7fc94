//! `PatchFleetLimits`: changes limits, broadcasts them, and waits until every shard's present owner decides by them.

use crate::hub::{Hub, document, limits, unavailable, version};
use harvest_fleet_config::{MAX_CHAIN_TIMEOUT_FIELD, MAX_EXECUTION_TIMEOUT_FIELD, Version};
use harvest_ids::DurationMs;
use harvest_persistence::control::{LimitsChange, StoredLimits};
use harvest_proto::v1::{FleetLimits, PatchFleetLimitsRequest, PatchFleetLimitsResponse};
use harvest_rpc::{Error, Reason};
use harvest_runtime::{crash, metrics};
use serde_json::{Map, Value};
use std::time::Duration;

/// Fields that a mask may name.
const FIELDS: [&str; 2] = [MAX_EXECUTION_TIMEOUT_FIELD, MAX_CHAIN_TIMEOUT_FIELD];
const DEFAULT_WAIT_MS: u64 = 2_000;
const MAX_WAIT_MS: u64 = 10_000;
const MAX_REASON_BYTES: usize = 1_024;
const MAX_ACTOR_BYTES: usize = 255;
/// How often a change is based anew on a version that somebody else has made meanwhile.
const MAX_TRIES: usize = 5;
/// Pauses between looks at the acknowledgements, which may reach another process of this service; the last one repeats.
const LOOK_AGAIN: [Duration; 4] = [Duration::from_millis(5), Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(50)];

/// A request that has been checked.
#[derive(Debug)]
struct Patch {
    changes: Map<String, Value>,
    actor: String,
    reason: String,
    wait: Duration,
}

pub(super) async fn patch_fleet_limits(hub: &Hub, request: PatchFleetLimitsRequest) -> Result<PatchFleetLimitsResponse, Error> {
    let patch = check(request)?;
    let changed = change(hub, &patch).await?;
    crash::point("config.committed");
    let committed = hub.clock.monotonic();
    hub.learn(&changed).await?;
    let (acknowledged, pending) = wait(hub, version(&changed), committed, patch.wait).await;
    Ok(PatchFleetLimitsResponse { limits: Some(limits(&document(&changed)?)), version: Some(version(&changed).into()), acknowledged, pending })
}

fn check(request: PatchFleetLimitsRequest) -> Result<Patch, Error> {
    if request.update_mask.is_empty() {
        return Err(Error::invalid("update_mask", format_args!("update_mask must name at least one of: {}", FIELDS.join(", "))));
    }
    let values = request.limits.unwrap_or_default();
    let mut changes = Map::new();
    for field in &request.update_mask {
        let value = value(&values, field)?;
        if changes.insert(field.clone(), value).is_some() {
            return Err(Error::invalid("update_mask", format_args!("update_mask names {field} twice")));
        }
    }
    let wait_ms = request.wait_ms.unwrap_or(DEFAULT_WAIT_MS);
    if wait_ms > MAX_WAIT_MS {
        return Err(Error::invalid("wait_ms", format_args!("wait_ms is {wait_ms}; allowed are 0 to {MAX_WAIT_MS}")));
    }
    text("reason", &request.reason, MAX_REASON_BYTES)?;
    text("actor", &request.actor, MAX_ACTOR_BYTES)?;
    let actor = if request.actor.is_empty() { "anonymous".to_owned() } else { request.actor };
    Ok(Patch { changes, actor, reason: request.reason, wait: Duration::from_millis(wait_ms) })
}

/// The new value of a field of the mask; null removes it.
fn value(values: &FleetLimits, field: &str) -> Result<Value, Error> {
    let millis = match field {
        MAX_EXECUTION_TIMEOUT_FIELD => values.max_workflow_execution_timeout_ms,
        MAX_CHAIN_TIMEOUT_FIELD => values.max_workflow_chain_timeout_ms,
        _ => return Err(unknown(field)),
    };
    match millis {
        None => Ok(Value::Null),
        Some(millis) => Ok(Value::from(DurationMs::new(field, millis).map_err(|error| Error::invalid(field, error))?.as_millis())),
    }
}

fn unknown(field: &str) -> Error {
    let near = FIELDS.into_iter().map(|known| (strsim::jaro_winkler(field, known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = near.filter(|(likeness, _)| *likeness > 0.8).map(|(_, known)| format!("; did you mean {known}?")).unwrap_or_default();
    let field: String = field.chars().take(64).collect();
    Error::invalid("update_mask", format_args!("update_mask names {field:?}; allowed are {}{hint}", FIELDS.join(", ")))
}

fn text(field: &str, text: &str, max_bytes: usize) -> Result<(), Error> {
    if text.len() > max_bytes {
        return Err(Error::invalid(field, format_args!("{field} has {} bytes; allowed are {max_bytes}", text.len())));
    }
    if text.contains('\0') {
        return Err(Error::invalid(field, format_args!("{field} must not contain U+0000")));
    }
    Ok(())
}

/// Commits the change with its audit row. Fields that this release does not know stay as they are.
async fn change(hub: &Hub, patch: &Patch) -> Result<StoredLimits, Error> {
    for _ in 0..MAX_TRIES {
        let before = hub.store.limits().await.map_err(|error| unavailable(&error))?;
        let mut document = document(&before)?;
        let mut summary = Vec::new();
        for (field, value) in &patch.changes {
            let old = if value.is_null() { document.remove(field) } else { document.insert(field.clone(), value.clone()) };
            summary.push(format!("{field}: {} -> {value}", old.unwrap_or(Value::Null)));
        }
        let change = LimitsChange {
            expected: version(&before).to_pair(),
            document: Value::Object(document).to_string(),
            actor: patch.actor.clone(),
            reason: patch.reason.clone(),
            summary: summary.join(", "),
        };
        if let Some(changed) = hub.store.change_limits(&change).await.map_err(|error| unavailable(&error))? {
            return Ok(changed);
        }
    }
    Err(Error::new(Reason::Conflict, "the limits are being changed by others; try again"))
}

/// Waits for every shard's present owner; returns how many have acknowledged and which have not.
async fn wait(hub: &Hub, version: Version, committed: Duration, wait: Duration) -> (u32, Vec<u32>) {
    let deadline = committed + wait;
    let mut last = (0, Vec::new());
    let mut looks = 0;
    loop {
        let told = hub.acknowledged.notified();
        tokio::pin!(told);
        told.as_mut().enable(); // before looking, so that nothing falls between
        match hub.store.acknowledgements().await {
            Ok(shards) => {
                let decides = |epoch, acknowledged: &harvest_persistence::control::Acknowledgement| {
                    acknowledged.epoch == epoch && Version::from_pair(acknowledged.version) >= version
                };
                let pending: Vec<u32> = shards
                    .iter()
                    .filter(|(_, epoch, acknowledged)| !acknowledged.as_ref().is_some_and(|one| decides(*epoch, one)))
                    .map(|(shard, ..)| shard.0)
                    .collect();
                let acknowledged = u32::try_from(shards.len() - pending.len()).unwrap_or(u32::MAX);
                if pending.is_empty() {
                    metrics::CONFIG_PROPAGATION.record_duration(hub.clock.monotonic().saturating_sub(committed), []);
                    return (acknowledged, pending);
                }
                last = (acknowledged, pending);
            }
            // The change is committed: what is not known to be acknowledged is reported as pending.
            Err(error) => tracing::debug!(%error, "acknowledgements cannot be read"),
        }
        let left = deadline.saturating_sub(hub.clock.monotonic());
        if left.is_zero() {
            return last;
        }
        let pause = LOOK_AGAIN[looks.min(LOOK_AGAIN.len() - 1)].min(left);
        looks += 1;
        tokio::select! {
            () = told => {}
            () = hub.clock.sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests;
