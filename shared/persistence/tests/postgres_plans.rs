//! Postgres only: what the statements read, by EXPLAIN. Plans made while the tables were empty must not scan them when they are full.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use harvest_ids::{Epoch, ShardId};
use harvest_persistence::postgres::{COMMIT, PgOptions, migrate, session_options, writer_options};
use harvest_persistence::provision;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

/// Rows 1 to 100 000 of every table of shard 0: 90 000 closed runs with two history rows each, 10 000 open ones with all that they can have.
const FILL: &str = include_str!("support/fill.sql");

/// A batch that touches one row by every branch; `$n` of the test are the numbers of rows that are there (`there`) and of new ones (`new`).
fn batch(there: u32, new: u32) -> String {
    let id = |number: u32| format!("'00070000-0000-8000-8000-{number:012x}'::uuid");
    let ids = |number: u32| format!("ARRAY[{}]", id(number));
    let task = |number: u32| format!("ARRAY[uuid_send({}) || '\\x0000000000000000'::bytea]", id(number));
    [
        "0, 1, 1".to_owned(),
        format!("{}, '{{RUNNING}}', '{{NULL}}', '{{9}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', '{{NULL}}'", ids(there)),
        format!("{}, '{{default}}', '{{order}}', '{{new-{new}}}', {}, '{{NULL}}', '{{orders}}', '{{5}}', '{{NULL}}', '{{NULL}}'", ids(new), ids(new)),
        "'{RUNNING}', '{NULL}', '{1}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}'".to_owned(),
        format!("{}, '{{1}}', '{{1}}', '{{1}}', '{{1}}', '{{abc}}'", ids(new)),
        task(there),
        format!("{}, '{{{new}}}', '{{0}}', '{{default}}', '{{orders}}'", task(new)),
        format!("{}, '{{7}}', {}, {}, '{{8}}'", ids(there), ids(there + 1), ids(new)),
        format!("'{{{there}}}', '{{{new}}}', {}, '{{xyz}}'", ids(new)),
    ]
    .join(", ")
}

fn execute(name: &str, arguments: &str) -> String {
    if arguments.is_empty() { format!("EXECUTE {name}") } else { format!("EXECUTE {name}({arguments})") }
}

/// Runs a prepared statement under EXPLAIN; the plan, and how many buffers it touched.
async fn explain(connection: &mut PgConnection, name: &str, arguments: &str) -> (String, u64) {
    let text = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) {}", execute(name, arguments));
    let rows = connection.fetch_all(AssertSqlSafe(text)).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let buffers = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
    let total = buffers.split([' ', '=']).skip_while(|word| *word != "shared").filter_map(|word| word.parse::<u64>().ok()).sum();
    (plan.join("\n"), total)
}

async fn migrated() -> String {
    let url = provision::database().await.unwrap();
    migrate(&url, 2).await.unwrap();
    url
}

/// The tables' statistics say that they are empty: the worst case for a plan.
async fn analyse_empty(connection: &mut PgConnection) {
    for table in ["run", "history", "task", "due", "outbox"] {
        connection.execute(AssertSqlSafe(format!("ALTER TABLE shard_0.{table} SET (autovacuum_enabled = off); ANALYZE shard_0.{table}"))).await.unwrap();
    }
}

fn check(name: &str, plan: &str) {
    assert!(!plan.contains("Seq Scan"), "{name} scans a table:\n{plan}");
}

#[tokio::test]
async fn a_commit_costs_the_same_after_100_000_rows_as_on_empty_tables() {
    let url = migrated().await;
    let mut filler = PgConnection::connect(&url).await.unwrap();
    analyse_empty(&mut filler).await;
    let mut writer = PgConnection::connect_with(&writer_options(url.parse().unwrap(), &PgOptions::default(), ShardId(0), Epoch(1))).await.unwrap();
    filler.execute("UPDATE harvest.harvest_shard SET epoch = 1").await.unwrap();
    writer.execute(AssertSqlSafe(format!("PREPARE batch AS {COMMIT}"))).await.unwrap();
    filler.execute(AssertSqlSafe(FILL.replace("$from", "99901").replace("$to", "100000"))).await.unwrap();
    let (_, first) = explain(&mut writer, "batch", &batch(99_950, 200_000)).await;
    let (plan, near_empty) = explain(&mut writer, "batch", &batch(99_960, 200_001)).await;
    check("the batch", &plan);
    filler.execute(AssertSqlSafe(FILL.replace("$from", "1").replace("$to", "99900"))).await.unwrap();
    let (_, warm) = explain(&mut writer, "batch", &batch(95_000, 200_002)).await;
    let (plan, full) = explain(&mut writer, "batch", &batch(95_010, 200_003)).await;
    check("the batch", &plan);
    println!("buffers: {first} and {near_empty} near empty, {warm} and {full} with 100 000 rows\n{plan}");
    assert!(full <= 2 * near_empty, "{near_empty} buffers near empty, {full} with 100 000 rows:\n{plan}");
}

#[tokio::test]
async fn reads_of_full_tables_are_index_scans_that_touch_few_pages() {
    let url = migrated().await;
    let mut filler = PgConnection::connect(&url).await.unwrap();
    analyse_empty(&mut filler).await;
    let mut session = PgConnection::connect_with(&session_options(url.parse().unwrap(), &PgOptions::default())).await.unwrap();
    let id = "'00070000-0000-8000-8000-000000017318'"; // 95 000 in hexadecimal
    let task = |last: &str| format!("uuid_send({id}::uuid) || '\\x{last}'::bytea");
    let far = "9223372036854775807, 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
    let list = |text: &dyn Fn(u32) -> String| format!("'{{{}}}'", (0..32).map(text).collect::<Vec<_>>().join(","));
    let many = [list(&|_| "default".into()), list(&|n| format!("order-{}", 3_000 * n + 1)), list(&|_| "order".into())].join(", ");
    let statements = [
        ("load", include_str!("../src/postgres/run/load.sql"), format!("{id}, {}, {}", task("0000000000000000"), task("ffffffffffffffff")), 60),
        ("find_open", include_str!("../src/postgres/run/find.sql"), "'{default}', '{order-95000}', '{order}'".to_owned(), 40),
        ("find_closed", include_str!("../src/postgres/run/find.sql"), "'{default}', '{order-50000}', '{order}'".to_owned(), 40),
        ("find_many", include_str!("../src/postgres/run/find.sql"), many, 32 * 40),
        ("history", include_str!("../src/postgres/history/page.sql"), format!("{id}, 1, 1000000, 1024"), 20),
        ("queues", include_str!("../src/postgres/task/queues.sql"), String::new(), 30),
        ("backlog", include_str!("../src/postgres/task/backlog.sql"), "'default', 'orders', 0::smallint, 95000, 100".to_owned(), 30),
        ("outbox", include_str!("../src/postgres/outbox/page.sql"), "50000, 100".to_owned(), 30),
        ("recovery", include_str!("../src/postgres/shard/recovery.sql"), String::new(), 60),
        ("due", include_str!("../src/postgres/due/until.sql"), "'{0}', 9223372036854775807, 100".to_owned(), 30),
        ("list", include_str!("../src/postgres/run/list.sql"), format!("'default', NULL, NULL, {far}, 100, NULL, NULL"), 60),
        ("list_late", include_str!("../src/postgres/run/list_late.sql"), format!("'default', NULL, NULL, {far}, 100, NULL, true"), 60),
        ("list_paused", include_str!("../src/postgres/run/list_paused.sql"), format!("'default', NULL, NULL, {far}, 100, true, NULL"), 60),
        ("list_key", include_str!("../src/postgres/run/list_by_workflow_id.sql"), format!("'default', NULL, NULL, {far}, 100, 'order-95000', NULL, NULL"), 60),
    ];
    let types = |name: &str| match name {
        "load" => "(uuid, bytea, bytea)",
        "history" => "(uuid, bigint, bigint, bigint)",
        "outbox" => "(bigint, bigint)",
        "due" => "(integer[], bigint, bigint)",
        "backlog" => "(text, text, smallint, bigint, bigint)",
        "list" | "list_late" | "list_paused" => "(text, text, text, bigint, uuid, bigint, boolean, boolean)",
        "list_key" => "(text, text, text, bigint, uuid, bigint, text, boolean, boolean)",
        "find_open" | "find_closed" | "find_many" => "(text[], text[], text[])",
        _ => "",
    };
    for (name, text, _, _) in &statements {
        session.execute(AssertSqlSafe(format!("PREPARE {name} {} AS {text}", types(name)))).await.unwrap();
    }
    // Plans are made now, on nothing.
    for (name, _, arguments, _) in &statements {
        session.execute(AssertSqlSafe(execute(name, arguments))).await.unwrap();
    }
    filler.execute(AssertSqlSafe(FILL.replace("$from", "1").replace("$to", "100000"))).await.unwrap();
    for (name, _, arguments, most) in &statements {
        let (plan, buffers) = explain(&mut session, name, arguments).await;
        println!("{name}: {buffers} buffers");
        check(name, &plan);
        assert!(buffers <= *most, "{name} touched {buffers} buffers, allowed are {most}:\n{plan}");
    }
}

#[tokio::test]
async fn a_page_of_a_backlog_costs_the_same_at_any_depth_and_after_its_oldest_tasks_have_ended() {
    let url = migrated().await;
    let mut filler = PgConnection::connect(&url).await.unwrap();
    analyse_empty(&mut filler).await;
    let mut session = PgConnection::connect_with(&session_options(url.parse().unwrap(), &PgOptions::default())).await.unwrap();
    let text = include_str!("../src/postgres/task/backlog.sql");
    session.execute(AssertSqlSafe(format!("PREPARE backlog (text, text, smallint, bigint, bigint) AS {text}"))).await.unwrap();
    // A hundred activities a run, so that the order of the primary key is not that of the queue.
    let fill = "INSERT INTO shard_0.task (shard_id, task_id, sequence, kind, namespace, queue)
        SELECT 0, decode(md5((n / 100)::text), 'hex') || int8send(n), n, 1, 'default', 'deep' FROM generate_series($from, $to) n";
    let page = |after: u32| format!("'default', 'deep', 1::smallint, {after}, 500");
    filler.execute(AssertSqlSafe(fill.replace("$from", "1").replace("$to", "1000"))).await.unwrap();
    // The second of each: the first also marks what it finds.
    let mut cost = Vec::new();
    explain(&mut session, "backlog", &page(0)).await;
    cost.push(explain(&mut session, "backlog", &page(0)).await);
    filler.execute(AssertSqlSafe(fill.replace("$from", "1001").replace("$to", "200000"))).await.unwrap();
    for after in [0, 100_000, 199_000] {
        explain(&mut session, "backlog", &page(after)).await;
        cost.push(explain(&mut session, "backlog", &page(after)).await);
    }
    filler.execute("DELETE FROM shard_0.task WHERE sequence <= 100000").await.unwrap();
    explain(&mut session, "backlog", &page(100_000)).await;
    cost.push(explain(&mut session, "backlog", &page(100_000)).await);
    let (_, shallow) = cost[0];
    println!("buffers: {:?}", cost.iter().map(|(_, buffers)| buffers).collect::<Vec<_>>());
    for (plan, buffers) in &cost {
        check("a page of the backlog", plan);
        assert!(plan.contains("rows=500"), "{plan}");
        assert!(*buffers <= 2 * shallow + 10, "{shallow} buffers of a queue of 1 000, {buffers} of one of 200 000:\n{plan}");
    }
}
