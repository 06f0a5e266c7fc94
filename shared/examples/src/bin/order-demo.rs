//! Starts the twenty orders of the plan, approves them, waits for them, and holds results and the bank's file against the plan.
//!
//! The engine is expected to be killed meanwhile: the client repeats each call, under its request id, until it gets through. Exit code 0 =
//! all orders are correct.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use futures::stream::{FuturesUnordered, StreamExt};
use harvest_examples::bank;
use harvest_examples::order::{self, APPROVE, Approval, QUEUE};
use harvest_examples::plan::{Ending, Planned, plan};
use harvest_examples::verify::faults;
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::{Client, ClientError, StartOptions, WorkflowHandle};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The order demo.
#[derive(Parser)]
struct Arguments {
    /// A frontend of the fleet, or `harvest dev`. May be given several times.
    #[arg(long, default_value = "http://127.0.0.1:7233")]
    address: Vec<String>,
    /// The file that the bank appends to.
    #[arg(long)]
    bank_file: PathBuf,
    /// First part of the order ids; another one for every demo on the same engine.
    #[arg(long, default_value = "order")]
    prefix: String,
    /// How long an order waits for its approval, in ms.
    #[arg(long, default_value_t = 25_000)]
    approval_deadline_ms: u64,
    /// Pause between two starts, in ms.
    #[arg(long, default_value_t = 400)]
    pace_ms: u64,
    /// From an order's start to its approval, in ms.
    #[arg(long, default_value_t = 2_000)]
    approval_after_ms: u64,
    /// Lines that another program adds to this file are shown.
    #[arg(long)]
    notes: Option<PathBuf>,
    /// Give up after so long, in s.
    #[arg(long, default_value_t = 180)]
    give_up_after_s: u64,
}

/// How long the first worker may take to say what it runs.
const WORKERS_PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait before a start is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How often the notes are looked at.
const NOTES_PAUSE: Duration = Duration::from_millis(200);

struct Demo {
    client: Client,
    clock: SystemClock,
    bar: ProgressBar,
    pace: Duration,
    approval_after: Duration,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    harvest_runtime::telemetry::init();
    let arguments = Arguments::parse();
    let orders = plan(&arguments.prefix, arguments.approval_deadline_ms);
    let patience = Duration::from_secs(arguments.give_up_after_s);
    let demo = Arc::new(Demo {
        client: Client::connect(&arguments.address)?.with_patience(patience),
        clock: SystemClock::new(),
        bar: bar(orders.len())?,
        pace: Duration::from_millis(arguments.pace_ms),
        approval_after: Duration::from_millis(arguments.approval_after_ms),
    });
    let notes = arguments.notes.map(|path| harvest_runtime::spawn_owned("notes", show_notes(demo.clone(), path)));
    let mut running: FuturesUnordered<_> = orders.iter().enumerate().map(|(index, planned)| demo.carry_out(index, planned)).collect();
    let mut endings = vec![None; orders.len()];
    let all = async {
        while let Some((index, ending)) = running.next().await {
            demo.finished(&orders[index], &ending);
            endings[index] = ending.ok();
        }
    };
    let in_time = tokio::time::timeout(patience, all).await.is_ok();
    drop(notes);
    demo.bar.finish_and_clear();
    if !in_time {
        eprintln!("gave up after {} s", arguments.give_up_after_s);
    }
    let entries = bank::entries(&arguments.bank_file).with_context(|| format!("reading {}", arguments.bank_file.display()))?;
    let wrong: Vec<Vec<String>> = orders.iter().zip(&endings).map(|(planned, ending)| faults(planned, *ending, &entries)).collect();
    wrong.iter().flatten().for_each(|fault| println!("wrong: {fault}"));
    let repeated = entries.iter().filter(|entry| entry.repeated).count();
    println!("the bank was called {} times, {repeated} of them repeated calls that it answered without acting again", entries.len());
    let correct = wrong.iter().filter(|faults| faults.is_empty()).count();
    println!("{correct} of {} orders correct", orders.len());
    Ok(if correct == orders.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Demo {
    /// Starts one order when its turn has come, approves it if that is planned, and waits for its ending.
    async fn carry_out(&self, index: usize, planned: &Planned) -> (usize, anyhow::Result<Ending>) {
        let turn = u32::try_from(index).expect("the plan is short");
        self.clock.sleep(self.pace * turn).await;
        (index, self.order(planned).await)
    }

    async fn order(&self, planned: &Planned) -> anyhow::Result<Ending> {
        let handle = self.start(planned).await.context("start")?;
        if planned.is_approved() {
            self.clock.sleep(self.approval_after).await;
            handle.signal(APPROVE, Approval { by: "the demo".to_owned() }).await.context("signal")?;
        }
        handle.result().await.context("result")
    }

    /// The type is unknown until the first worker has said that it runs it; the same request id makes the repetitions one start.
    async fn start(&self, planned: &Planned) -> Result<WorkflowHandle<Ending>, ClientError> {
        let order_id = &planned.order.order_id;
        let options = StartOptions::new(order_id).task_queue(QUEUE).request_id(format!("start-{order_id}"));
        let since = self.clock.monotonic();
        loop {
            match self.client.start(&order::order, options.clone(), planned.order.clone()).await {
                Err(ClientError::NotFound(_)) if self.clock.monotonic() - since < WORKERS_PATIENCE => self.clock.sleep(RETRY_PAUSE).await,
                answer => return answer,
            }
        }
    }

    fn finished(&self, planned: &Planned, ending: &anyhow::Result<Ending>) {
        self.bar.inc(1);
        let order_id = &planned.order.order_id;
        match ending {
            Ok(ending) if *ending == planned.ending => self.say(&format!("{order_id}  {}", describe(*ending))),
            Ok(ending) => self.say(&format!("{order_id}  {}: NOT AS PLANNED", describe(*ending))),
            Err(error) => self.say(&format!("{order_id}  no ending: {error:#}")),
        }
    }

    /// A line above the bar, or just a line where there is no terminal.
    fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            println!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}

fn describe(ending: Ending) -> &'static str {
    match ending {
        Ending::Shipped => "shipped",
        Ending::OutOfStock => "out of stock",
        Ending::Declined => "card declined, goods released",
        Ending::ApprovalExpired => "not approved in time, refunded, goods released",
    }
}

fn bar(orders: usize) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::with_draw_target(Some(u64::try_from(orders)?), ProgressDrawTarget::stdout());
    bar.set_style(ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos} of {len} orders ended")?.progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(250));
    Ok(bar)
}

/// Shows each whole line that the file gets.
async fn show_notes(demo: Arc<Demo>, path: PathBuf) {
    let mut shown = 0;
    loop {
        if let Ok(text) = tokio::fs::read_to_string(&path).await {
            let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
            lines.iter().skip(shown).for_each(|line| demo.say(&format!(">>> {}", line.trim_end())));
            shown = lines.len();
        }
        demo.clock.sleep(NOTES_PAUSE).await;
    }
}
