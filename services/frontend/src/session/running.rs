//! Attempts that a session's worker is running, as far as this frontend knows: what the new owner of a shard is told at once.

use super::announce::MAX_ATTEMPTS;
use bytes::Bytes;
use harvest_ids::Slot;
use harvest_wire::token;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the worker announced last, with what it was handed and what it has answered since. Naming an attempt that has ended costs nothing:
/// its owner says so. Leaving one out lets it run twice.
#[derive(Debug, Default)]
pub(super) struct Running {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    announced: BTreeMap<Bytes, Slot>,
    /// Handed over since the last announcement came.
    handed: BTreeMap<Bytes, Slot>,
    /// Handed over in the time before: the announcement may have been on its way already.
    handed_before: BTreeMap<Bytes, Slot>,
}

fn slot_of(task_token: &[u8]) -> Option<Slot> {
    token::decode(task_token).ok().map(|token| token.execution_id.slot())
}

impl Running {
    /// The worker says what it is running.
    pub(super) fn announced(&self, task_tokens: &[Bytes]) {
        let announced = task_tokens.iter().filter_map(|token| Some((token.clone(), slot_of(token)?))).collect();
        let mut known = self.known();
        known.announced = announced;
        known.handed_before = std::mem::take(&mut known.handed);
    }

    /// An activity task goes to the worker. Beyond the most attempts that a session may announce, nothing more is remembered.
    pub(super) fn handed(&self, task_token: &[u8]) {
        let Some(slot) = slot_of(task_token) else { return };
        let mut known = self.known();
        if known.handed.len() < MAX_ATTEMPTS {
            // A copy: the token is a part of the task's message, which may be large.
            known.handed.insert(Bytes::copy_from_slice(task_token), slot);
        }
    }

    /// The attempt is not the worker's any more.
    pub(super) fn ended(&self, task_token: &[u8]) {
        let mut known = self.known();
        known.announced.remove(task_token);
        known.handed.remove(task_token);
        known.handed_before.remove(task_token);
    }

    /// Tokens of attempts of some slots, each once.
    pub(super) fn of(&self, slots: impl Fn(Slot) -> bool) -> Vec<Bytes> {
        let known = self.known();
        let all = known.announced.iter().chain(&known.handed).chain(&known.handed_before);
        let tokens: BTreeMap<&Bytes, ()> = all.filter(|(_, slot)| slots(**slot)).map(|(token, _)| (token, ())).collect();
        tokens.into_keys().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_ids::{Attempt, Epoch, EventId, ExecutionId, Timestamp, WorkerId};
    use harvest_workflow_core::input::TaskToken;
    use harvest_workflow_core::record::Dispatch;

    fn token(slot: u16, sequence: u64) -> Bytes {
        let execution_id = ExecutionId::new(Slot::new(slot).unwrap(), Timestamp::from_millis(0), 7);
        let dispatch = Dispatch { epoch: Epoch(1), sequence, worker_id: WorkerId::new("w").unwrap() };
        token::encode(&TaskToken { execution_id, activity_id: Some(EventId(3)), attempt: Attempt(1), dispatch })
    }

    fn all(running: &Running) -> Vec<Bytes> {
        running.of(|_| true)
    }

    #[test]
    fn a_task_on_its_way_is_known_although_the_next_announcement_does_not_name_it_yet() {
        let running = Running::default();
        let (old, new) = (token(1, 1), token(1, 2));
        running.announced(std::slice::from_ref(&old));
        running.handed(&new);
        assert_eq!(all(&running), [old.clone(), new.clone()]);
        running.announced(std::slice::from_ref(&old));
        assert_eq!(all(&running), [old.clone(), new.clone()], "this announcement and the task crossed each other");
        running.announced(std::slice::from_ref(&old));
        assert_eq!(all(&running), [old], "the worker has had the task for a whole interval and does not run it");
    }

    #[test]
    fn what_has_ended_is_not_known_any_more_and_slots_are_told_apart() {
        let running = Running::default();
        let tokens = [token(1, 1), token(2, 2), token(1, 3)];
        running.announced(&tokens[..2]);
        running.handed(&tokens[2]);
        running.handed(b"garbage");
        assert_eq!(running.of(|slot| slot.number() == 1), [tokens[0].clone(), tokens[2].clone()]);
        running.ended(&tokens[0]);
        running.ended(&tokens[2]);
        assert_eq!(all(&running), [tokens[1].clone()]);
    }
}
