//! Workflows under test.

use crate::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);

#[activity(start_to_close = "30s", retry = RetryPolicy::fixed(2, Duration::from_millis(10)), queue = "special")]
pub(super) async fn double(_ctx: &ActivityContext, n: u32) -> Result<u32, String> {
    Ok(n * 2)
}

#[activity]
pub(super) async fn add(_ctx: ActivityContext, a: u32, b: u32) -> Result<u32, ActivityFailure> {
    Ok(a + b)
}

/// Two steps, errors as text.
#[workflow(execution_timeout = "1h")]
pub(super) async fn sequence(ctx: &WorkflowContext, n: u32) -> Result<u32, String> {
    let doubled = ctx.execute_activity(&double, n).await?;
    let add = ctx.execute_activity(&add, (doubled, 1)).await?; // a variable of the activity's name
    Ok(add)
}

#[workflow]
pub(super) async fn parallel(ctx: WorkflowContext) -> Result<u32, HarvestError> {
    let first = ctx.execute_activity(&double, 1);
    let second = ctx.execute_activity(&add, (10, 20));
    let (first, second) = crate::try_join!(first, second)?;
    Ok(first + second)
}

#[workflow]
pub(super) async fn first_of(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let mut slow = ctx.execute_activity(&double, 1);
    let mut deadline = ctx.start_timer("deadline", SECOND);
    crate::select! {
        value = slow => Ok(format!("activity {}", value?)),
        fired = deadline => {
            fired?;
            slow.cancel();
            Ok(format!("timer, then {:?}", slow.await.is_err()))
        }
    }
}

#[workflow]
pub(super) async fn approval(ctx: &WorkflowContext) -> Result<Option<String>, HarvestError> {
    ctx.receive_signal_timeout("approve", SECOND).await
}

#[workflow]
pub(super) async fn counter(ctx: &WorkflowContext, start: u32) -> Result<u32, HarvestError> {
    let total = Arc::new(Mutex::new(start));
    let seen = total.clone();
    ctx.register_query("total", move || *seen.lock().unwrap());
    let scaled = total.clone();
    ctx.register_query_with_args("scaled", move |factor: u32| *scaled.lock().unwrap() * factor);
    loop {
        let n: u32 = ctx.receive_signal("add").await?;
        if n == 0 {
            return Ok(*total.lock().unwrap());
        }
        *total.lock().unwrap() += n;
        if n == 100 {
            let total = *total.lock().unwrap();
            ctx.continue_as_new(total).await?;
        }
    }
}

#[workflow]
pub(super) async fn stoppable(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    let never = ctx.or_cancelled(ctx.receive_signal::<()>("never")).await;
    if never.is_err() {
        ctx.execute_activity_raw::<()>("clean_up", (), "").await?; // work after the request is possible
    }
    never
}

#[workflow]
pub(super) async fn stoppable_text(ctx: &WorkflowContext) -> Result<(), String> {
    ctx.timer("t", SECOND).await?;
    ctx.check_cancelled()?;
    Ok(())
}

#[workflow]
pub(super) async fn dice(ctx: &WorkflowContext) -> Result<Vec<String>, HarvestError> {
    let mut seen = vec![ctx.random_u64().to_string(), ctx.random_range(5..8).to_string(), ctx.new_uuid().to_string(), format!("{:?}", ctx.system_now())];
    seen.push(ctx.side_effect("once", || uuid::Uuid::new_v4().to_string()).await?);
    ctx.timer("t", SECOND).await?;
    seen.push(ctx.side_effect("once", || "never taken".to_owned()).await?);
    assert_eq!(seen[4], seen[5]);
    seen.push(ctx.random_f64().to_string());
    Ok(seen)
}

#[workflow]
pub(super) async fn parent(ctx: &WorkflowContext, n: u32) -> Result<u32, HarvestError> {
    let left = ctx.spawn_child_workflow(&sequence, n);
    let right = ctx.spawn_child_workflow_with_opts(&sequence, n + 1, ChildOptions::new().workflow_id("right").task_queue("q"));
    assert_eq!(right.workflow_id(), "right");
    let detached = ctx.spawn_child_workflow_detached(&parallel, (), ChildOptions::new())?;
    assert!(detached.ends_with("/3"), "{detached}");
    let (left, right) = crate::join!(left, right);
    Ok(left? + right.unwrap_or(1_000))
}

#[workflow]
pub(super) async fn panics(_ctx: &WorkflowContext) -> Result<(), String> {
    panic!("it broke")
}

#[workflow]
pub(super) async fn sleeps(_ctx: &WorkflowContext) -> Result<(), String> {
    std::future::pending::<()>().await;
    Ok(())
}

#[workflow]
pub(super) async fn spins(ctx: &WorkflowContext) -> Result<(), String> {
    loop {
        ctx.random_u64();
        if ctx.random_u64() == 0 {
            return Ok(());
        }
        let failed = ctx.execute_activity_raw::<()>("x", (), "").await;
        failed?;
    }
}

#[workflow(name = "renamed")]
pub(super) async fn typed_failure(ctx: &WorkflowContext) -> Result<(), WorkflowFailure> {
    match ctx.execute_activity(&double, 1).await {
        Err(HarvestError::ActivityFailed { error_type, attempt: 1, details: Some(details), non_retryable: true, .. }) => {
            Err(WorkflowFailure::new(error_type, format!("details {details}")))
        }
        other => Err(format!("{other:?}").into()),
    }
}
