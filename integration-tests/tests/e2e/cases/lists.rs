//! Lists of runs.

use harvest_integration_tests::World;
use harvest_integration_tests::samples::echo;
use harvest_sdk::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

#[workflow]
async fn open_end(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.receive_signal("end").await
}

pub async fn runs_are_listed_by_state_type_and_key_page_by_page(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![echo, open_end], activities![])?;
    for number in 0..7 {
        world.result(&world.start(&echo, &format!("echo-{number}"), "x".to_owned()).await?).await?;
    }
    let open = world.start(&open_end, "open", ()).await?;
    // Read your writes: what was acknowledged is listed.
    let keys = |state: &'static str| {
        let world = world.clone();
        async move { world.list(state).await }
    };
    assert_eq!(keys("state=RUNNING").await?, ["open"]);
    assert_eq!(keys("state=COMPLETED&workflow_name=echo&page_size=100").await?.len(), 7);
    assert_eq!(keys("workflow_id=echo-3").await?, ["echo-3"]);
    assert!(keys("state=FAILED").await?.is_empty());
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = world.api().get(&format!("/workflows?page_size=3&cursor={cursor}")).await?;
        assert_eq!(page.status.as_u16(), 200, "{page:?}");
        let runs = page.body["workflows"].as_array().cloned().unwrap_or_default();
        assert!(runs.len() <= 3);
        seen.extend(runs.iter().filter_map(|run| run["workflow_id"].as_str().map(str::to_owned)));
        pages += 1;
        match page.body["next_cursor"].as_str() {
            Some(next) if pages < 10 => cursor = next.to_owned(),
            _ => break,
        }
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 8);
    assert_eq!(seen[0], "open", "newest first");
    let bad = world.api().get("/workflows?cursor=garbage").await?;
    assert_eq!((bad.status.as_u16(), bad.text("reason")), (400, "INVALID_ARGUMENT"), "{bad:?}");
    open.terminate("test over").await?;
    assert!(keys("state=RUNNING").await?.is_empty());
    assert_eq!(keys("state=TERMINATED").await?, ["open"]);
    // Another tenant sees none of it.
    let other = world.fleet().api("another-tenant")?.get("/workflows?workflow_id=echo-3").await?;
    assert_eq!(other.body["workflows"].as_array().map(Vec::len), Some(0), "{other:?}");
    Ok(())
}
