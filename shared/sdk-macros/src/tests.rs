//! What the attributes refuse, with the messages that authors see, and what they make of a function.

use crate::definition;
use proc_macro2::TokenStream;

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

fn workflow(arguments: &str, item: &str) -> String {
    definition::workflow(tokens(arguments), tokens(item)).map_or_else(|error| format!("error: {error}"), |made| made.to_string())
}

fn activity(arguments: &str, item: &str) -> String {
    definition::activity(tokens(arguments), tokens(item)).map_or_else(|error| format!("error: {error}"), |made| made.to_string())
}

const WORKFLOW: &str = "async fn order(ctx: &WorkflowContext) -> Result<(), String> { Ok(()) }";
const ACTIVITY: &str = "async fn charge(ctx: &ActivityContext) -> Result<(), String> { Ok(()) }";
const ALLOWED: &str = r#"allowed are 1 ms to 10 years, for example "30s", "5m", "1h", "7d""#;

#[test]
fn a_duration_out_of_range_is_refused_with_its_field_and_what_is_allowed() {
    for (given, problem) in [
        ("0s", "is too short"),
        ("500us", "is too short"),
        ("-5s", "is negative"),
        ("11y", "is too long"),
        ("3651days", "is too long"),
        ("soon", "is not a duration (expected number at 0)"),
        ("5", "is not a duration (time unit needed, for example 5sec or 5ms)"),
    ] {
        assert_eq!(workflow(&format!("execution_timeout = {given:?}"), WORKFLOW), format!("error: execution_timeout = {given:?} {problem}; {ALLOWED}"));
        assert_eq!(activity(&format!("heartbeat_timeout = {given:?}"), ACTIVITY), format!("error: heartbeat_timeout = {given:?} {problem}; {ALLOWED}"));
    }
    assert_eq!(activity("start_to_close = 30", ACTIVITY), "error: start_to_close is a string in quotes");
}

#[test]
fn durations_are_whole_milliseconds() {
    for (given, millis) in [("1ms", 1_u64), ("30s", 30_000), ("5m", 300_000), ("1h 30m", 5_400_000), ("7d", 604_800_000), ("3650days", 315_360_000_000)] {
        assert!(activity(&format!("schedule_to_start = {given:?}"), ACTIVITY).contains(&format!("from_millis ({millis}u64)")), "{given}");
    }
}

#[test]
fn arguments_that_do_not_exist_or_come_twice_are_refused() {
    assert_eq!(workflow("slo = \"2h\"", WORKFLOW), "error: #[workflow] has no argument slo; it has name, execution_timeout, chain_execution_timeout, sla");
    assert_eq!(activity("queue = \"a\", queue = \"b\"", ACTIVITY), "error: queue is given twice");
    assert_eq!(activity("local = 1", ACTIVITY), "error: local is true or false");
    for key in ["schedule_to_close", "schedule_to_start", "heartbeat_timeout", "queue"] {
        let refused = activity(&format!("local = true, {key} = \"1s\""), ACTIVITY);
        assert!(refused.starts_with(&format!("error: {key} does not apply to a local activity")), "{refused}");
    }
    assert!(activity("local = true, start_to_close = \"1s\"", ACTIVITY).contains("fn is_local () -> bool { true }"));
    assert_eq!(workflow("name = \"\"", WORKFLOW), "error: name has 0 bytes; allowed are 1 to 255 without U+0000");
    assert!(activity(&format!("queue = {:?}", "x".repeat(256)), ACTIVITY).starts_with("error: queue has 256 bytes"));
}

#[test]
fn functions_of_another_shape_are_refused() {
    assert_eq!(workflow("", "fn order(ctx: &WorkflowContext) -> Result<(), String> { Ok(()) }"), "error: #[workflow] needs an async fn");
    let first = "error: the first parameter of #[activity] is `ctx: &ActivityContext`";
    assert_eq!(activity("", "async fn charge() -> Result<(), String> { Ok(()) }"), first);
    assert_eq!(activity("", "async fn charge(input: u32) -> Result<(), String> { Ok(()) }"), first);
    assert_eq!(activity("", "async fn charge(&self) -> Result<(), String> { Ok(()) }"), first);
    assert_eq!(activity("", "async fn charge(ctx: &WorkflowContext) -> Result<(), String> { Ok(()) }"), first);
    assert_eq!(activity("", "async fn charge(ctx: &ActivityContext) { }"), "error: #[activity] returns a Result");
    assert!(workflow("", "async fn order<T>(ctx: &WorkflowContext) -> Result<(), T> { }").contains("no generic parameters"));
}

#[test]
fn several_parameters_travel_as_one_tuple() {
    let made = activity("", "async fn add(ctx: ActivityContext, a: u32, b: String) -> Result<(), String> { Ok(()) }");
    assert!(made.contains("type Input = (u32 , String ,)"), "{made}");
    let made = workflow("name = \"order-v2\"", WORKFLOW);
    assert!(made.contains("type Input = ()") && made.contains("NAME : & 'static str = \"order-v2\""), "{made}");
}
