//! The bank's HTTP side: `POST /calls/{action}` carries out a call, `GET /health` answers when it is up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use harvest_runtime::Clock;

use crate::bank::{Action, Answer, Bank, Call};

#[derive(Clone)]
struct Counter {
    bank: Arc<Mutex<Bank>>,
    latency: Duration,
    clock: Arc<dyn Clock>,
}

/// The routes of a bank whose calls take `latency`.
pub fn routes(bank: Bank, latency: Duration, clock: Arc<dyn Clock>) -> Router {
    let counter = Counter { bank: Arc::new(Mutex::new(bank)), latency, clock };
    Router::new().route("/health", get(|| async { "ok" })).route("/calls/{action}", post(serve)).with_state(counter)
}

/// Half of the time passes before the call is on disk and half after: a caller that dies may or may not have been served.
async fn serve(State(counter): State<Counter>, Path(action): Path<Action>, Json(call): Json<Call>) -> Result<Json<Answer>, (StatusCode, String)> {
    counter.clock.sleep(counter.latency / 2).await;
    let bank = counter.bank.clone();
    let written = tokio::task::spawn_blocking(move || {
        // A poisoned lock means that a write panicked half-way: refuse to go on.
        bank.lock().map_err(|_| "the bank is out of order".to_owned())?.call(action, call).map_err(|error| error.to_string())
    });
    let answer = written.await.unwrap_or_else(|error| Err(error.to_string())).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error))?;
    counter.clock.sleep(counter.latency / 2).await;
    Ok(Json(answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::entries;
    use crate::order::{self, BankClient};
    use crate::plan::{Order, plan};
    use harvest_runtime::SystemClock;
    use harvest_sdk::ActivityContext;

    #[tokio::test]
    async fn an_activity_reaches_the_bank_and_says_so_when_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes(Bank::open(&path).unwrap(), Duration::ZERO, Arc::new(SystemClock::new()));
        let server = harvest_runtime::spawn_owned("bank", async move { axum::serve(listener, routes).await });

        let context = ActivityContext::for_test_with_state(BankClient::new(&url));
        let wanted = plan("o", 1).remove(0).order;
        let sold_out = Order { item: "sold-out desk".into(), ..wanted.clone() };
        assert_eq!(order::reserve::call(&context, sold_out).await, Ok(Answer::OutOfStock));
        assert_eq!(order::charge::call(&context, wanted.clone()).await, Ok(Answer::Done));
        assert_eq!(order::charge::call(&context, wanted.clone()).await, Ok(Answer::Done));
        let recorded: Vec<_> = entries(&path).unwrap().into_iter().map(|entry| (entry.action, entry.repeated)).collect();
        assert_eq!(recorded, [(Action::Reserve, false), (Action::Charge, false), (Action::Charge, true)]);

        drop(server);
        let context = ActivityContext::for_test_with_state(BankClient::new("http://127.0.0.1:1"));
        let failure = order::ship::call(&context, wanted.clone()).await.unwrap_err();
        assert_eq!((failure.error_type.as_str(), failure.non_retryable), ("BankUnreachable", false));
        let failure = order::ship::call(&ActivityContext::for_test(), wanted).await.unwrap_err();
        assert!(failure.non_retryable, "a worker without a bank is a mistake that no retry mends");
    }
}
