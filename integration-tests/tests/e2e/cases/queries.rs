//! Queries.

use harvest_integration_tests::World;
use harvest_integration_tests::eventually;
use harvest_integration_tests::world::SOON;
use harvest_sdk::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

#[workflow]
async fn ledger(ctx: &WorkflowContext) -> Result<Vec<String>, HarvestError> {
    let book = Arc::new(Mutex::new(Vec::<String>::new()));
    let (all, filtered) = (book.clone(), book.clone());
    ctx.register_query("entries", move || all.lock().unwrap_or_else(PoisonError::into_inner).clone());
    ctx.register_query_with_args("with_prefix", move |prefix: String| {
        let book = filtered.lock().unwrap_or_else(PoisonError::into_inner);
        book.iter().filter(|entry| entry.starts_with(&prefix)).cloned().collect::<Vec<_>>()
    });
    loop {
        let entry: String = ctx.receive_signal("entry").await?;
        if entry == "close" {
            break;
        }
        book.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }
    let entries = book.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(entries)
}

pub async fn code_answers_queries_and_they_leave_no_trace(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![ledger], activities![])?;
    let handle = world.start(&ledger, "book", ()).await?;
    // Queries are known once the code has run for the first time.
    let first = eventually("the first workflow task is done", SOON, || async { Ok(Some(handle.query::<Vec<String>>("entries", ()).await?)) }).await?;
    assert!(first.is_empty());
    for entry in ["apple", "banana", "avocado"] {
        handle.signal("entry", entry).await?;
    }
    // A query sees what the code has decided about: the signals, once their workflow task is done.
    eventually("the code has seen the signals", SOON, || async {
        let entries: Vec<String> = handle.query("entries", ()).await?;
        Ok((entries == ["apple", "banana", "avocado"]).then_some(()))
    })
    .await?;
    assert_eq!(handle.query::<Vec<String>>("with_prefix", "a").await?, ["apple", "avocado"]);
    let before = handle.describe().await?.history_events;
    for _ in 0..5 {
        handle.query::<Vec<String>>("entries", ()).await?;
    }
    assert_eq!(handle.describe().await?.history_events, before);
    let answer = world.api().get("/workflows/by-id/ledger/book/query/entries").await?;
    assert_eq!((answer.status.as_u16(), &answer.body["result"]), (200, &serde_json::json!(["apple", "banana", "avocado"])), "{answer:?}");
    handle.signal("entry", "close").await?;
    world.result(&handle).await?;
    // A run that has ended still answers.
    assert_eq!(handle.query::<Vec<String>>("entries", ()).await?, ["apple", "banana", "avocado"]);
    Ok(())
}

pub async fn unknown_and_failing_queries_are_typed_errors(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![ledger], activities![])?;
    let handle = world.start(&ledger, "book", ()).await?;
    let base = format!("/workflows/{}/query", handle.execution_id());
    eventually("the first workflow task is done", SOON, || async { Ok(Some(handle.query::<Vec<String>>("entries", ()).await?)) }).await?;
    let unknown = world.api().get(&format!("{base}/entriez")).await?;
    assert_eq!((unknown.status.as_u16(), unknown.text("reason")), (404, "UNKNOWN_QUERY"), "{unknown:?}");
    let failing = world.api().post(&format!("{base}/with_prefix"), &serde_json::json!({"args": {"not": "a string"}})).await?;
    assert_eq!((failing.status.as_u16(), failing.text("reason")), (422, "QUERY_FAILED"), "{failing:?}");
    world.stop_workers().await?;
    let alone = world.api().get(&format!("{base}/entries?timeout=500ms")).await?;
    assert_eq!((alone.status.as_u16(), alone.text("reason")), (408, "QUERY_TIMEOUT"), "{alone:?}");
    Ok(())
}
