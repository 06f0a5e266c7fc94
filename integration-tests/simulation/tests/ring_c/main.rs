//! Ring C: the real services, workers and clients on a simulated network, with everything that can go wrong, from one seed. Then the faults
//! stop, every run must close, and the records are held against the laws and against what clients and the world outside have seen.
//!
//! Each seed lives in a process of its own, whose clocks and randomness are fixed too (see the library of this crate), so that it repeats
//! exactly. `HARVEST_SIM_SEED=17` replays one seed and prints its trace, with `HARVEST_SIM_DETAILS=1` every statement too; `HARVEST_SIM_SEEDS=1000` runs so many, `HARVEST_SIM_MINUTES=30` for so long,
//! both from `HARVEST_SIM_FROM` on. `./x sim` sets these.

mod bus;
mod chaos;
mod client;
mod clock;
mod database;
mod dice;
mod hosts;
mod ledger;
mod net;
mod program;
mod seeds;
mod verdict;
mod world;

use anyhow::Context as _;
use chaos::Chaos;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use world::World;

/// The step of the simulation: messages arrive at steps, timers within them.
const STEP: Duration = Duration::from_millis(10);
/// By when every run must have closed, in the simulation's time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Steps between two looks at whether all is done.
const LOOK_EVERY: u32 = 20;

/// What a seed came to.
struct Life {
    trace: u64,
    lines: usize,
    runs: usize,
    span: Duration,
}

/// Lives through one seed, in this thread.
fn live(seed: u64, printed: bool) -> anyhow::Result<Life> {
    let (world, late) = World::new(seed, printed)?;
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .epoch(std::time::UNIX_EPOCH)
        .tick_duration(STEP)
        .simulation_duration(PATIENCE * 2)
        .max_message_latency(chaos::LATENCY)
        .build();
    hosts::add_all(&mut sim, seed, &world, late);
    let mut chaos = Chaos::new(world.clone());
    for step in 0.. {
        sim.step().map_err(|error| anyhow::anyhow!("{error}"))?;
        harvest_simulation::set_elapsed(sim.elapsed());
        let calm = chaos.step(&mut sim);
        if calm && step % LOOK_EVERY == 0 {
            if verdict::is_at_rest(&world)? {
                break;
            }
            anyhow::ensure!(sim.elapsed() < PATIENCE, "not everything came to rest: {}", verdict::what_hangs(&world)?);
        }
    }
    let runs = verdict::judge(&world)?;
    let (trace, lines) = world.trace();
    Ok(Life { trace, lines, runs, span: sim.elapsed() })
}

/// Panics of any task, in words.
fn watch_panics() -> Arc<Mutex<Vec<String>>> {
    let panics: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, usual) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
        usual(info);
    }));
    panics
}

/// One seed, in a process of its own: started by the tests below.
#[test]
#[ignore = "started by the other tests, with HARVEST_SIM_SEED"]
fn one_seed() {
    let seed = seeds::variable("HARVEST_SIM_SEED").expect("HARVEST_SIM_SEED names the seed");
    let printed = std::env::var_os("HARVEST_SIM_PRINT").is_some();
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).without_time().init();
    }
    // A thread of its own, in which no hash map has been made yet.
    let lived = std::thread::Builder::new().stack_size(64 << 20).spawn(move || {
        harvest_simulation::repeat_from(seed);
        let panics = watch_panics();
        let life = live(seed, printed)?;
        match panics.lock().unwrap_or_else(PoisonError::into_inner).first() {
            Some(panic) => anyhow::bail!("a task panicked: {panic}"),
            None => Ok(life),
        }
    });
    let lived = lived.expect("a thread can be made").join().unwrap_or_else(|_| Err(anyhow::anyhow!("the simulation panicked")));
    match lived.with_context(|| format!("seed {seed}")) {
        Ok(Life { trace, lines, runs, span }) => println!("\n{}{trace:016x} {lines} lines, {runs} runs, {:.1} s", seeds::TRACE, span.as_secs_f64()),
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn in_every_seed_all_runs_close_and_what_clients_and_the_world_outside_saw_is_true() {
    seeds::run_all();
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only there a process repeats itself")]
fn a_seed_repeats_itself_line_by_line() {
    let traces: Vec<_> = [7, 7, 8].into_iter().map(|seed| seeds::run(seed).expect("the seed passes").trace).collect();
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], traces[2]);
}
