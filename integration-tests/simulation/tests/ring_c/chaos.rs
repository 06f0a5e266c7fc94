//! What goes wrong, and when it is put right.

use crate::world::{Fate, HOSTS, Host, Kind, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use turmoil::Sim;

/// For how long things go wrong.
const FAULTS_FOR: Duration = Duration::from_secs(14);
/// The usual latency of a message at most.
pub const LATENCY: Duration = Duration::from_millis(20);

/// How far a host's clock may be off either way.
const MOST_SKEW_MS: i64 = 300_000;

type Link = (&'static str, &'static str);

/// Something that puts a fault right.
#[derive(Debug, Clone, Copy)]
enum Mend {
    Start(&'static str),
    Repair(Link),
    Release(Link),
    Quicken(Link),
    Database(&'static str),
    Bus(&'static str),
}

/// The faults of a simulation.
pub struct Chaos {
    world: Arc<World>,
    next: Duration,
    agenda: BTreeMap<(Duration, u64), Mend>,
    entries: u64,
    down: BTreeSet<&'static str>,
    broken: BTreeSet<Link>,
    over: bool,
}

impl Chaos {
    pub fn new(world: Arc<World>) -> Self {
        // Clocks differ from the beginning.
        for host in world.hosts.values() {
            host.set_skew_ms(skew(&world, MOST_SKEW_MS));
        }
        Self { world, next: Duration::from_secs(1), agenda: BTreeMap::new(), entries: 0, down: BTreeSet::new(), broken: BTreeSet::new(), over: false }
    }

    /// Does what is to be done after a step. True once nothing goes wrong any more.
    pub fn step(&mut self, sim: &mut Sim<'_>) -> bool {
        let now = sim.elapsed();
        self.world.stepped(now);
        self.bury(sim);
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let mend = entry.remove();
            self.mend(sim, mend);
        }
        if now >= FAULTS_FOR && !self.over {
            self.end(sim);
        }
        if !self.over && now >= self.next {
            self.next = now + Duration::from_millis(50) + self.world.dice.millis(900);
            self.mishap(sim, now);
        }
        self.over
    }

    /// Puts everything right.
    fn end(&mut self, sim: &mut Sim<'_>) {
        self.world.note(format_args!("calm"));
        for mend in std::mem::take(&mut self.agenda).into_values() {
            self.mend(sim, mend);
        }
        self.world.calm_down();
        self.over = true;
    }

    /// A process that has ended leaves no connections.
    fn bury(&mut self, sim: &mut Sim<'_>) {
        for (name, host) in &self.world.hosts {
            if host.is_ended() && host.kind != Kind::Client && self.down.contains(name) && sim.is_host_running(*name) {
                sim.crash(*name);
            }
        }
    }

    fn later(&mut self, after: Duration, mend: Mend) {
        self.entries += 1;
        self.agenda.insert((self.world.elapsed() + after, self.entries), mend);
    }

    fn mend(&mut self, sim: &mut Sim<'_>, mend: Mend) {
        self.world.note(format_args!("{mend:?}"));
        match mend {
            Mend::Start(name) => {
                sim.bounce(name);
                self.down.remove(name);
            }
            Mend::Repair((a, b)) => sim.repair(a, b),
            Mend::Release((a, b)) => sim.release(a, b),
            Mend::Quicken((a, b)) => sim.set_link_max_message_latency(a, b, LATENCY),
            Mend::Database(name) => {
                let host = self.world.host(name);
                host.set_failing(false);
                host.hold(false);
            }
            Mend::Bus(name) => self.world.host(name).set_bus_faults(false, false),
        }
        if let Mend::Repair(link) | Mend::Release(link) | Mend::Quicken(link) = mend {
            self.broken.remove(&link);
        }
    }

    fn mishap(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let world = self.world.clone();
        let dice = &world.dice;
        match dice.below(20) {
            0 | 1 => self.crash(sim, Kind::History),
            2 => self.crash(sim, *dice.pick(&[Kind::Matching, Kind::TimerScanner, Kind::Frontend, Kind::Config])),
            3 => self.crash(sim, Kind::Worker),
            4 => self.drain(*dice.pick(&[Kind::History, Kind::History, Kind::Matching, Kind::TimerScanner, Kind::Frontend, Kind::Config, Kind::Worker])),
            5..8 => self.break_link(sim, any_link(&world)),
            8 => self.isolate(sim, dice.pick(&HOSTS).0),
            9..12 => self.fate(),
            12 => self.database(any(&world, Kind::History), false),
            13 => self.database(any(&world, Kind::History), true),
            14 => {
                let held = dice.one_in(2);
                world.note(format_args!("the database is away"));
                for (name, _) in HOSTS {
                    self.database(name, held);
                }
            }
            15 => self.database(dice.pick(&HOSTS).0, dice.one_in(2)),
            16 => self.bus(dice.pick(&HOSTS).0),
            17 => {
                for (name, _) in HOSTS {
                    self.bus(name);
                }
            }
            18 => {
                let host = world.host(dice.pick(&HOSTS).0);
                host.set_skew_ms(skew(&world, MOST_SKEW_MS));
                world.note(format_args!("the clock of {} is {} ms ahead", host.name, host.skew_ms()));
            }
            _ => self.next = now + dice.millis(100),
        }
    }

    /// The name of a running process.
    fn running(&self, kind: Kind) -> Option<&'static str> {
        let name = any(&self.world, kind);
        (!self.down.contains(name)).then_some(name)
    }

    fn crash(&mut self, sim: &mut Sim<'_>, kind: Kind) {
        let Some(name) = self.running(kind) else { return };
        self.world.note(format_args!("{name} is killed"));
        sim.crash(name);
        self.down.insert(name);
        let after = self.world.dice.millis(4_000);
        self.later(after, Mend::Start(name));
    }

    fn drain(&mut self, kind: Kind) {
        let Some(name) = self.running(kind) else { return };
        self.world.note(format_args!("{name} is asked to end"));
        self.world.host(name).ask_to_end();
        self.down.insert(name);
        // Whatever it has not done by then it will not do.
        let after = self.world.dice.millis(8_000);
        self.later(after, Mend::Start(name));
    }

    fn break_link(&mut self, sim: &mut Sim<'_>, link: Link) {
        if !self.broken.insert(link) {
            return;
        }
        let (a, b) = link;
        let after = self.world.dice.millis(5_000);
        let how = self.world.dice.below(4);
        self.world.note(format_args!("the link of {a} and {b} is broken: {how} for {after:?}"));
        match how {
            0 => {
                sim.partition(a, b);
                self.later(after, Mend::Repair(link));
            }
            1 => {
                sim.partition_oneway(a, b);
                self.later(after, Mend::Repair(link));
            }
            2 => {
                sim.hold(a, b);
                self.later(after, Mend::Release(link));
            }
            _ => {
                sim.set_link_max_message_latency(a, b, self.world.dice.millis(3_000) + LATENCY);
                self.later(after, Mend::Quicken(link));
            }
        }
    }

    /// A host alone: no link of it works.
    fn isolate(&mut self, sim: &mut Sim<'_>, name: &'static str) {
        let after = self.world.dice.millis(5_000);
        self.world.note(format_args!("{name} is alone for {after:?}"));
        for (other, _) in HOSTS {
            let link = ordered(name, other);
            if other != name && self.broken.insert(link) {
                sim.partition(link.0, link.1);
                self.later(after, Mend::Repair(link));
            }
        }
    }

    fn fate(&mut self) {
        let dice = &self.world.dice;
        let fate = *dice.pick(&[Fate::Poisoned, Fate::Unavailable, Fate::UnknownLanded, Fate::UnknownLost, Fate::UnknownLate]);
        let name = any(&self.world, Kind::History);
        self.world.note(format_args!("a commit of {name} is to be {fate:?}"));
        self.world.host(name).script(fate);
    }

    fn database(&mut self, name: &'static str, held: bool) {
        self.world.note(format_args!("the database is {} for {name}", if held { "silent" } else { "failing" }));
        let host = self.world.host(name);
        if held {
            host.hold(true)
        } else {
            host.set_failing(true)
        }
        let after = self.world.dice.millis(4_000);
        self.later(after, Mend::Database(name));
    }

    fn bus(&mut self, name: &'static str) {
        let cut = self.world.dice.one_in(2);
        self.world.note(format_args!("the bus is {} for {name}", if cut { "cut" } else { "bad" }));
        self.world.host(name).set_bus_faults(cut, !cut);
        let after = self.world.dice.millis(6_000);
        self.later(after, Mend::Bus(name));
    }
}

fn skew(world: &World, most: i64) -> i64 {
    let range = u64::try_from(2 * most + 1).expect("it is positive");
    i64::try_from(world.dice.below(range)).expect("it is small") - most
}

fn any(world: &World, kind: Kind) -> &'static str {
    let names: Vec<&'static str> = world.hosts_of(kind).map(|host: &Arc<Host>| host.name).collect();
    world.dice.pick::<&'static str>(&names)
}

fn ordered(a: &'static str, b: &'static str) -> Link {
    if a < b { (a, b) } else { (b, a) }
}

fn any_link(world: &World) -> Link {
    loop {
        let (a, b) = (world.dice.pick(&HOSTS).0, world.dice.pick(&HOSTS).0);
        if a != b {
            return if world.dice.one_in(2) { ordered(a, b) } else { ordered(b, a) };
        }
    }
}
