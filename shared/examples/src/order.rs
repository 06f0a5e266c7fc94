//! The order workflow and its activities: reserve, charge, wait for an approval, ship; undo in reverse order when it ends otherwise.

use std::time::Duration;

use harvest_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bank::{Action, Answer, Call};
use crate::plan::{Ending, Order};

/// The signal that approves an order.
pub const APPROVE: &str = "approve";
/// The queue that the order workers serve.
pub const QUEUE: &str = "orders";

/// The content of the approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Approval {
    /// Who approved.
    pub by: String,
}

/// Carries one order through. Business endings are results, not errors: a run only fails when a step fails for good.
#[workflow(execution_timeout = "1h")]
pub async fn order(ctx: &WorkflowContext, order: Order) -> Result<Ending, HarvestError> {
    if ctx.execute_activity(&reserve, order.clone()).await? == Answer::OutOfStock {
        return Ok(Ending::OutOfStock);
    }
    if ctx.execute_activity(&charge, order.clone()).await? == Answer::Declined {
        ctx.execute_activity(&release, order).await?;
        return Ok(Ending::Declined);
    }
    let deadline = Duration::from_millis(order.approval_deadline_ms);
    let shipped = match ctx.receive_signal_timeout::<Approval>(APPROVE, deadline).await? {
        Some(_) => ctx.execute_activity(&ship, order.clone()).await.map(|_| Ending::Shipped),
        None => Ok(Ending::ApprovalExpired),
    };
    if shipped != Ok(Ending::Shipped) {
        ctx.execute_activity(&refund, order.clone()).await?;
        ctx.execute_activity(&release, order).await?;
    }
    shipped
}

/// Puts the goods aside.
#[activity(start_to_close = "10s", retry = patient())]
pub async fn reserve(ctx: &ActivityContext, order: Order) -> Result<Answer, ActivityFailure> {
    call(ctx, Action::Reserve, order).await
}

/// Puts the goods back.
#[activity(start_to_close = "10s", retry = patient())]
pub async fn release(ctx: &ActivityContext, order: Order) -> Result<Answer, ActivityFailure> {
    call(ctx, Action::Release, order).await
}

/// Takes the money. The idempotency key is the same in every attempt, so the bank takes it once.
#[activity(start_to_close = "10s", retry = patient())]
pub async fn charge(ctx: &ActivityContext, order: Order) -> Result<Answer, ActivityFailure> {
    call(ctx, Action::Charge, order).await
}

/// Gives the money back.
#[activity(start_to_close = "10s", retry = patient())]
pub async fn refund(ctx: &ActivityContext, order: Order) -> Result<Answer, ActivityFailure> {
    call(ctx, Action::Refund, order).await
}

/// Hands the goods to the carrier.
#[activity(start_to_close = "10s", retry = patient())]
pub async fn ship(ctx: &ActivityContext, order: Order) -> Result<Answer, ActivityFailure> {
    call(ctx, Action::Ship, order).await
}

/// A bank that is away for minutes must not fail an order.
fn patient() -> RetryPolicy {
    RetryPolicy::exponential(50, Duration::from_millis(200)).with_max_interval(Duration::from_secs(5))
}

/// The way to the bank; a worker's state, so that attempts share its connections.
#[derive(Debug, Clone)]
pub struct BankClient {
    http: reqwest::Client,
    url: String,
}

impl BankClient {
    /// A client of the bank at `url`, for example `http://127.0.0.1:7300`.
    pub fn new(url: &str) -> Self {
        Self { http: reqwest::Client::new(), url: url.trim_end_matches('/').to_owned() }
    }

    async fn call(&self, action: Action, call: &Call) -> Result<Answer, reqwest::Error> {
        let request = self.http.post(format!("{}/calls/{}", self.url, action.as_str())).json(call).timeout(Duration::from_secs(5));
        request.send().await?.error_for_status()?.json().await
    }
}

async fn call(ctx: &ActivityContext, action: Action, order: Order) -> Result<Answer, ActivityFailure> {
    let call = Call { order_id: order.order_id, idempotency_key: ctx.idempotency_key(), item: order.item, card: order.card, amount_cents: order.amount_cents };
    let bank = ctx.state::<BankClient>().ok_or_else(|| ActivityFailure::non_retryable("Setup", "the worker was built without a BankClient"))?;
    bank.call(action, &call).await.map_err(|error| ActivityFailure::new("BankUnreachable", error.to_string()))
}
