//! HTTP and JSON under `/api/harvest`, over the calls in [`crate::api`].
//!
//! Names and shapes: `execution_id`, `workflow_name`, `workflow_id`, `state`, `queue`; instants as RFC 3339, durations in the unit that their
//! name ends with. Errors: `{"error":"..","reason":"..","field":".."}` with the reason's own facts beside, and `Retry-After` where repeating makes
//! sense. Payloads are plain JSON both ways; one that is none appears as `{"encoding":"..","base64":".."}`.

mod admin;
mod body;
mod fail;
pub(crate) mod listener;
mod paths;
mod query;
mod show;
mod workflows;

use crate::edge::Edge;
use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use fail::Failed;
use harvest_rpc::request_bytes::CALL_BYTES;
use harvest_rpc::{Error, Reason};
use harvest_runtime::{Health, metrics};
use std::sync::Arc;

/// All routes of the HTTP listener.
pub(crate) fn routes(edge: Arc<Edge>, health: Health) -> Router {
    let of_run = || {
        Router::new()
            .route("/", get(workflows::describe))
            .route("/history", get(workflows::history))
            .route("/result", get(workflows::result))
            .route("/signal/{signal}", post(workflows::signal))
            .route("/query/{query}", get(workflows::query_get).post(workflows::query_post))
            .route("/cancel", post(workflows::cancel))
            .route("/pause", post(workflows::pause))
            .route("/resume", post(workflows::resume))
            .route("/terminate", post(workflows::terminate))
    };
    let api = Router::new()
        .route("/workflows", get(workflows::list))
        .route("/workflows/{id}/start", post(workflows::start))
        .nest("/workflows/{id}", of_run())
        .nest("/workflows/by-id/{type}/{workflow_id}", of_run())
        .route("/workers", get(admin::workers))
        .route("/shards", get(admin::shards))
        .route("/admin/limits", get(admin::limits).patch(admin::change_limits))
        // The body itself is bounded where it is read, with an error that names the bound.
        .layer(DefaultBodyLimit::disable())
        .with_state(edge.clone());
    let probes = Router::new().route("/health", get(probe)).route("/health/live", get(live)).route("/health/ready", get(probe)).with_state(health.clone());
    let api = api.merge(probes).fallback(unknown_route).method_not_allowed_fallback(method_not_allowed).layer(middleware::from_fn_with_state(edge, observe));
    harvest_runtime::ops::routes(health).nest("/api/harvest", api).fallback(unknown_route)
}

async fn live() -> &'static str {
    "live\n"
}

/// Ready, or which parts are not.
async fn probe(State(health): State<Health>) -> Response {
    match health.waiting_for() {
        Some(parts) if parts.is_empty() => axum::Json(serde_json::json!({ "status": "ready" })).into_response(),
        parts => {
            let body = axum::Json(serde_json::json!({ "status": "not ready", "waiting_for": parts.unwrap_or_default() }));
            (axum::http::StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn unknown_route(request: Request) -> Failed {
    Failed(Error::new(Reason::UnknownRoute, format!("there is no route {} {}", request.method(), request.uri().path())))
}

async fn method_not_allowed(method: Method, request: Request) -> Failed {
    Failed(Error::new(Reason::MethodNotAllowed, format!("{} does not take {method}", request.uri().path())))
}

/// Counts requests by route, never by path: ids are not labels.
async fn observe(State(edge): State<Arc<Edge>>, path: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let route = format!("{} {}", request.method(), path.as_ref().map_or("unknown", MatchedPath::as_str));
    let began = edge.clock.monotonic();
    // A body of unknown length counts as the longest that is read.
    let most = u64::try_from(edge.options.max_body_bytes).unwrap_or(u64::MAX);
    let bytes = request.body().size_hint().upper().map_or(most, |bytes| bytes.min(most));
    let response = match edge.request_bytes.take(CALL_BYTES + bytes) {
        Ok(_taken) => next.run(request).await,
        Err(refused) => Failed(refused).into_response(),
    };
    metrics::RPC_DURATION.record(edge.clock.monotonic().saturating_sub(began).as_secs_f64(), [&route]);
    metrics::RPC_REQUESTS.add(1, [&route, response.status().as_str()]);
    response
}
