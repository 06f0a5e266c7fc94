//! `harvest workflow history`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::Run;
use crate::cli::output::{self, Output};
use anyhow::Context as _;
use clap::Args;
use harvest_proto::v1;
use harvest_wire::json::EventJson;
use std::time::Duration;

/// Events of one page.
const PAGE: u32 = 1_000;
/// How much of an event's fields a table shows.
const SUMMARY: usize = 120;

/// Shows the events of a workflow run. As JSON it is an array that a replay reads.
#[derive(Debug, Args)]
pub struct History {
    #[command(flatten)]
    run: Run,
    /// The first event.
    #[arg(long, value_name = "EVENT_ID", default_value_t = 1)]
    from: u64,
}

impl History {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let mut request = v1::GetHistoryRequest { workflow: Some(self.run.reference(&fleet.namespace)), from_event_id: self.from, page_size: PAGE };
        let mut events = Vec::new();
        loop {
            let page = fleet.workflows(Duration::ZERO, request.clone(), |mut client, call| async move { client.get_history(call).await }).await?;
            for event in page.events {
                let id = event.event_id;
                events.push(EventJson::from_proto(event).with_context(|| format!("event {id} is of a kind newer than this program"))?);
            }
            if page.next_event_id == 0 {
                break;
            }
            request.from_event_id = page.next_event_id;
            // A business key may name another run by now: the pages are of one.
            request.workflow = Some(v1::WorkflowRef { namespace: fleet.namespace.clone(), execution_id: page.execution_id, ..Default::default() });
        }
        match fleet.output {
            Output::Json => output::json(&events)?,
            Output::Table => {
                let row = |it: EventJson| [it.event_id.to_string(), output::instant(it.at_ms), it.kind, summary(it.data.get())];
                output::table(["EVENT", "AT", "TYPE", "DATA"], events.into_iter().map(row), "no events")?;
            }
        }
        Ok(())
    }
}

fn summary(data: &str) -> String {
    let one_line: String = data.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.chars().count() <= SUMMARY { one_line } else { one_line.chars().take(SUMMARY - 1).chain(['\u{2026}']).collect() }
}
