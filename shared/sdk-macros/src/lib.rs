//! `#[workflow]` and `#[activity]`: turn an async function into a definition that the SDK can register, start and schedule by type.
//!
//! Each attribute replaces `async fn order(ctx: &WorkflowContext, input: Order) -> Result<Receipt, String>` by
//! - a type `order` that implements the SDK's definition trait (name, input and output types, options),
//! - a function `order()` that makes it, so that `ctx.execute_activity(&charge, input)`, `client.start(&order, ..)` and
//!   `workflows![order]` read as if they named the function,
//! - `order::call(ctx, input)`: the body as written, for unit tests.
//!
//! Durations are checked here, at compile time. May depend on syn, quote and humantime. Start at `definition.rs`.

mod arguments;
mod definition;
mod duration;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes a workflow definition of an async function.
///
/// Arguments: `name = ".."` (default: the function's name), `execution_timeout = "1h"`, `chain_execution_timeout = "7d"`,
/// `sla = "2h"`. The function takes `&WorkflowContext` (or `WorkflowContext`) and any number of arguments (several travel as a JSON array) and returns `Result<T, E>` with
/// `E: Into<WorkflowFailure>`, for example `String` or `HarvestError`.
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    definition::workflow(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes an activity definition of an async function.
///
/// Arguments: `name = ".."` (default: the function's name), `start_to_close = "30s"`, `heartbeat_timeout = "5s"`,
/// `schedule_to_start = "1m"`, `schedule_to_close = "10m"`, `retry = RetryPolicy::fixed(3, Duration::from_secs(1))`, `queue = ".."`,
/// `local = true` (it runs on the spot, in the worker and the workflow task that ask for it). The function takes `&ActivityContext` (or `ActivityContext`) and any number of arguments and returns `Result<T, E>` with `E: Into<ActivityFailure>`.
#[proc_macro_attribute]
pub fn activity(arguments: TokenStream, item: TokenStream) -> TokenStream {
    definition::activity(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
