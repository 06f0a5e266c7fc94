//! docs/guide/children.md

use harvest_sdk::prelude::*;

/// Runs a child for each name, all at once, and gathers their results.
#[workflow]
pub async fn batch(ctx: &WorkflowContext, names: Vec<String>) -> Result<Vec<String>, HarvestError> {
    let children: Vec<_> = names.into_iter().map(|name| ctx.spawn_child_workflow(&greeting, name)).collect();
    let mut greetings = Vec::new();
    for child in children {
        greetings.push(child.await?);
    }
    Ok(greetings)
}

/// One child.
#[workflow(execution_timeout = "1h")]
pub async fn greeting(_ctx: &WorkflowContext, name: String) -> Result<String, HarvestError> {
    Ok(format!("Hello, {name}"))
}

/// Adds up for as long as anybody likes: its history stays short. `null` ends it.
#[workflow]
pub async fn tally(ctx: &WorkflowContext, mut total: u64) -> Result<u64, HarvestError> {
    while let Some(number) = ctx.receive_signal::<Option<u64>>("add").await? {
        total += number;
        if ctx.should_continue_as_new() {
            ctx.continue_as_new(total).await?;
        }
    }
    Ok(total)
}
