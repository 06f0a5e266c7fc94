//! Random steps: what may happen to a run, said without knowing the run. [`super::world::World`] finds what they mean in its state.

use proptest::prelude::*;

/// One thing that happens. Numbers that pick something are taken modulo how many there are.
#[derive(Debug, Clone)]
pub enum Step {
    /// The clock moves, perhaps backwards.
    Clock(i64),
    /// Somebody wakes the run, without anything being due perhaps.
    Wake,
    /// The clock moves to the next deadline, and the run is woken.
    WakeAtDue,
    /// The same, though it may be far away.
    WakeAtEnd,
    Signal {
        request: Option<u64>,
        bytes: usize,
    },
    Cancel {
        request: Option<u64>,
    },
    Terminate {
        request: Option<u64>,
    },
    /// An operator pauses the run, for so long.
    Pause {
        request: Option<u64>,
        millis: u64,
    },
    Resume {
        request: Option<u64>,
    },
    /// A worker takes the workflow task.
    Take,
    /// The worker that has the task answers.
    Decide {
        commands: Vec<Want>,
        read: usize,
    },
    /// The worker that has the task gives up.
    GiveUp(Cause),
    /// A worker takes a waiting activity.
    Run {
        pick: usize,
    },
    /// A worker answers for an attempt that it has or once had.
    Close {
        pick: usize,
        end: End,
    },
    Heartbeat {
        pick: usize,
        details: bool,
    },
    /// The worker that has the task says that it is still at it.
    Extend,
    Announce {
        pick: usize,
    },
    /// The owner finds a worker silent.
    Lose {
        pick: usize,
    },
    /// The owner dies and its last batch with it, if that was only the start of an attempt.
    TakeOver,
    /// A child reports.
    Child {
        pick: usize,
        end: ChildEnd,
    },
    /// The parent of this run wants it to stop.
    AskedByParent,
    /// An input that was accepted before arrives again.
    Repeat {
        pick: usize,
    },
    /// A completion arrives that answers nothing.
    Forge {
        pick: usize,
    },
    /// The next run of the chain, or another chain, once a run has ended.
    Follow,
}

/// A command, with its target picked among what there is.
#[derive(Debug, Clone)]
pub enum Want {
    Activity {
        attempts: u32,
        start_to_close: bool,
        schedule_to_start: bool,
        schedule_to_close: bool,
        heartbeat: bool,
        jitter: bool,
    },
    /// An activity that the worker ran on the spot: how often it failed, and whether it had a result then.
    Local {
        failures: u32,
        has_result: bool,
    },
    CancelActivity {
        pick: usize,
    },
    Timer {
        millis: u64,
    },
    CancelTimer {
        pick: usize,
    },
    SideEffect,
    Marker,
    Child {
        detached: bool,
    },
    CancelChild {
        pick: usize,
    },
    /// A reference to something that never existed.
    Nonsense,
    Complete,
    /// With an output of 100 bytes, more than the small bounds allow.
    CompleteLarge,
    Fail,
    CancelSelf,
    ContinueAsNew,
}

#[derive(Debug, Clone, Copy)]
pub enum Cause {
    TimedOut,
    NonDeterminism,
    Panicked,
    WorkerError,
}

#[derive(Debug, Clone, Copy)]
pub enum End {
    Completed,
    Failed { retry_after: bool },
    Declined,
    Cancelled,
    Released,
}

#[derive(Debug, Clone, Copy)]
pub enum ChildEnd {
    Completed,
    Failed,
    Refused,
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        6 => (1u32..4, any::<[bool; 5]>()).prop_map(|(attempts, [start_to_close, schedule_to_start, schedule_to_close, heartbeat, jitter])| {
            Want::Activity { attempts, start_to_close, schedule_to_start, schedule_to_close, heartbeat, jitter }
        }),
        2 => (0u32..3, any::<bool>()).prop_map(|(failures, has_result)| Want::Local { failures, has_result }),
        3 => any::<usize>().prop_map(|pick| Want::CancelActivity { pick }),
        4 => (1u64..20_000).prop_map(|millis| Want::Timer { millis }),
        2 => any::<usize>().prop_map(|pick| Want::CancelTimer { pick }),
        1 => Just(Want::SideEffect),
        1 => Just(Want::Marker),
        2 => any::<bool>().prop_map(|detached| Want::Child { detached }),
        1 => any::<usize>().prop_map(|pick| Want::CancelChild { pick }),
    ]
}

/// Commands in order, rarely with an end behind them, very rarely nonsense among them.
fn wants() -> impl Strategy<Value = Vec<Want>> {
    let end = prop_oneof![
        60 => Just(None),
        2 => Just(Some(Want::Complete)),
        1 => Just(Some(Want::CompleteLarge)),
        1 => Just(Some(Want::Fail)),
        1 => Just(Some(Want::CancelSelf)),
        5 => Just(Some(Want::ContinueAsNew)),
        1 => Just(Some(Want::Nonsense)),
    ];
    (prop::collection::vec(want(), 0..5), end).prop_map(|(mut wants, end)| {
        wants.extend(end);
        wants
    })
}

fn request() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 3 => (1u64..60).prop_map(Some)]
}

pub fn step() -> impl Strategy<Value = Step> {
    let cause = prop_oneof![Just(Cause::TimedOut), Just(Cause::NonDeterminism), Just(Cause::Panicked), Just(Cause::WorkerError)];
    let end = prop_oneof![
        4 => Just(End::Completed),
        4 => any::<bool>().prop_map(|retry_after| End::Failed { retry_after }),
        1 => Just(End::Declined),
        1 => Just(End::Cancelled),
        2 => Just(End::Released),
    ];
    let child_end = prop_oneof![Just(ChildEnd::Completed), Just(ChildEnd::Failed), Just(ChildEnd::Refused)];
    prop_oneof![
        6 => (-3_000i64..6_000).prop_map(Step::Clock),
        3 => Just(Step::Wake),
        14 => Just(Step::WakeAtDue),
        1 => prop_oneof![6 => Just(Step::WakeAtDue), 1 => Just(Step::WakeAtEnd)],
        10 => (request(), 0usize..40).prop_map(|(request, bytes)| Step::Signal { request, bytes }),
        2 => request().prop_map(|request| Step::Cancel { request }),
        1 => prop_oneof![4 => Just(Step::Wake), 1 => request().prop_map(|request| Step::Terminate { request })],
        2 => (request(), 1u64..30_000).prop_map(|(request, millis)| Step::Pause { request, millis }),
        3 => request().prop_map(|request| Step::Resume { request }),
        24 => Just(Step::Take),
        24 => (wants(), 0usize..4).prop_map(|(commands, read)| Step::Decide { commands, read }),
        3 => cause.prop_map(Step::GiveUp),
        14 => any::<usize>().prop_map(|pick| Step::Run { pick }),
        14 => (any::<usize>(), end).prop_map(|(pick, end)| Step::Close { pick, end }),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(pick, details)| Step::Heartbeat { pick, details }),
        2 => Just(Step::Extend),
        3 => any::<usize>().prop_map(|pick| Step::Announce { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Lose { pick }),
        4 => Just(Step::TakeOver),
        5 => (any::<usize>(), child_end).prop_map(|(pick, end)| Step::Child { pick, end }),
        1 => Just(Step::AskedByParent),
        5 => any::<usize>().prop_map(|pick| Step::Repeat { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Forge { pick }),
        6 => Just(Step::Follow),
    ]
}
