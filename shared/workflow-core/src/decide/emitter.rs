//! Collects one decision, applying each record as it is emitted.

use crate::decision::{Decision, Reply, Successor};
use crate::defaults::Types;
use crate::event::{Event, EventKind};
use crate::input::Env;
use crate::limits::Limits;
use crate::message::{Message, MessageBody};
use crate::random::SplitMix64;
use crate::record::{Control, Record};
use crate::retry::{Jitter, RetryPolicy};
use crate::state::State;
use harvest_ids::{Attempt, DurationMs, EventId, ExecutionId, RequestId, Timestamp};

/// One decision in the making.
pub(super) struct Emitter<'a> {
    /// The run, with everything emitted so far applied.
    pub(super) state: &'a mut State,
    /// The bounds in force.
    pub(super) limits: &'a Limits,
    /// The version of the configuration they come from.
    pub(super) config_version: (u64, u64),
    /// What attributes say.
    pub(super) types: &'a Types,
    /// The time of everything emitted: the clock, but never earlier than the newest record.
    pub(super) at: Timestamp,
    random: SplitMix64,
    records: Vec<Record>,
    messages: Vec<Message>,
    successor: Option<Box<Successor>>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(state: &'a mut State, env: &Env<'a>) -> Self {
        // An empty run has no newest record, and its zero must not lift a clock from before 1970.
        let at = if state.exists() { env.now.max(state.last_record_at()) } else { env.now };
        Self {
            state,
            limits: env.limits,
            config_version: env.config_version,
            types: env.types,
            at,
            random: SplitMix64::new(env.random),
            records: Vec::new(),
            messages: Vec::new(),
            successor: None,
        }
    }

    /// Appends an event and applies it.
    pub(super) fn event(&mut self, kind: EventKind) -> EventId {
        let id = self.state.last_event_id().next();
        self.emit(Record::Event(Event { id, at: self.at, kind }));
        id
    }

    /// Appends a control record and applies it.
    pub(super) fn control(&mut self, control: Control) {
        self.emit(Record::Control(control));
    }

    fn emit(&mut self, record: Record) {
        self.state.apply(&record);
        self.records.push(record);
    }

    /// Sends a message to another run.
    pub(super) fn message(&mut self, target: ExecutionId, body: MessageBody) {
        let source = self.execution_id();
        self.messages.push(Message { source, target, body });
    }

    /// Names the run that follows in the same commit.
    pub(super) fn succeed(&mut self, successor: Successor) {
        self.successor = Some(Box::new(successor));
    }

    /// 64 bits that follow from the input's randomness.
    pub(super) fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// This run.
    pub(super) fn execution_id(&self) -> ExecutionId {
        self.state.started().expect("only a run that exists emits messages or reads its id").execution_id
    }

    /// Remembers a request id that no event carries.
    pub(super) fn remember(&mut self, request_id: Option<&RequestId>) {
        if let Some(request_id) = request_id
            && !self.state.request_seen(request_id)
        {
            self.control(Control::RequestSeen { at: self.at, request_id: request_id.clone() });
        }
        self.trim_requests();
    }

    /// Forgets the oldest request ids once there are too many; a sixteenth more than needed, so that it is not done every time.
    pub(super) fn trim_requests(&mut self) {
        let (len, most) = (self.state.requests.len(), self.limits.max_request_ids);
        if len > most {
            let count = (len - most).saturating_add(most / 16).min(len);
            self.control(Control::RequestsForgotten { at: self.at, count: u32::try_from(count).unwrap_or(u32::MAX) });
        }
    }

    /// Whether nothing was emitted.
    pub(super) fn is_untouched(&self) -> bool {
        self.records.is_empty() && self.messages.is_empty() && self.successor.is_none()
    }

    /// Closes the collection.
    pub(super) fn decision(self, reply: Reply) -> Decision {
        Decision { records: self.records, messages: self.messages, successor: self.successor, reply }
    }
}

/// The delay before try `failures + 2` of something that is tried until it works: 5 s doubling to 300 s, spread over its upper half.
pub(super) fn patient_delay(failures: u32, random: u64) -> u64 {
    let doubling = RetryPolicy::exponential(u32::MAX, DurationMs::from_millis_const(5_000));
    let policy = RetryPolicy { jitter: Jitter::Equal, ..doubling };
    policy.next_delay(Attempt(failures.saturating_add(1)), None, random).unwrap_or(policy.max_interval.as_millis())
}
