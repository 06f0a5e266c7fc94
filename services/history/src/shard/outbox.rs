//! Messages on their way to other runs: delivered at least once, in order per target shard, removed when the target has committed them.

use harvest_ids::ShardId;
use harvest_persistence::batch::OutboxRow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most messages in one delivery.
const MAX_DELIVERY: usize = 100;
/// Most bytes in one delivery, unless one message alone has more: what is larger than a gRPC message may be would never arrive.
const MAX_DELIVERY_BYTES: usize = 4 * 1024 * 1024;
/// Most undelivered messages in memory; beyond it they are read from the store again when there is room.
pub(crate) const MAX_WAITING: usize = 10_000;
/// Most bytes of undelivered messages in memory, likewise.
const MAX_WAITING_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<OutboxRow>,
    in_delivery: usize,
    failures: u32,
    not_before: Option<Duration>,
}

/// The outbox of a shard, by target shard: one that cannot be reached blocks no other.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    lanes: BTreeMap<ShardId, Lane>,
    waiting: usize,
    waiting_bytes: usize,
    /// Messages above this sequence may be in the store only.
    spilled_after: Option<i64>,
    /// Everything up to here came by a page: what a commit brings of it later is here already.
    read_to: i64,
    /// A message was left to the store while a page was being read: the page may have missed it.
    missed: bool,
    reading: bool,
}

impl Outbox {
    /// A committed message waits for delivery.
    pub(crate) fn add(&mut self, target: ShardId, row: OutboxRow) {
        if row.sequence <= self.read_to {
            return; // the page was read between the commit and its answer
        }
        if self.spilled_after.is_some() {
            self.missed |= self.reading;
            return; // the store's pages bring it, in order
        }
        if self.waiting >= MAX_WAITING || self.waiting_bytes >= MAX_WAITING_BYTES {
            self.spilled_after = Some(row.sequence - 1);
            return;
        }
        self.push(target, row);
    }

    fn push(&mut self, target: ShardId, row: OutboxRow) {
        self.waiting += 1;
        self.waiting_bytes += row.message.len();
        self.lanes.entry(target).or_default().waiting.push_back(row);
    }

    /// Reads the store from the beginning: after a takeover.
    pub(crate) fn recover(&mut self) {
        self.spilled_after = Some(0);
    }

    /// Where to read a page, when one is wanted. It is answered by one [`Outbox::page`].
    pub(crate) fn wants_page(&mut self) -> Option<i64> {
        let room = self.waiting < MAX_WAITING / 2 && self.waiting_bytes < MAX_WAITING_BYTES / 2;
        let after = self.spilled_after.filter(|_| !self.reading && room)?;
        self.reading = true;
        self.missed = false;
        Some(after)
    }

    /// A page came, with the target shard of each row: `None` when it could not be read.
    pub(crate) fn page(&mut self, rows: Option<Vec<(ShardId, OutboxRow)>>, asked_for: usize) {
        self.reading = false;
        let Some(rows) = rows else { return };
        let read_to = rows.last().map_or(self.spilled_after, |(_, row)| Some(row.sequence));
        self.spilled_after = if rows.len() < asked_for && !self.missed { None } else { read_to };
        for (target, row) in rows {
            self.read_to = row.sequence;
            self.push(target, row);
        }
    }

    /// When the next delivery to a target that could not be reached is tried.
    pub(crate) fn next_try(&self, now: Duration) -> Option<Duration> {
        self.lanes.values().filter(|lane| lane.in_delivery == 0).filter_map(|lane| lane.not_before).filter(|at| *at > now).min()
    }

    /// Deliveries to start now: one at a time per target.
    pub(crate) fn deliveries(&mut self, now: Duration) -> Vec<(ShardId, Vec<OutboxRow>)> {
        let idle = self.lanes.iter_mut().filter(|(_, lane)| lane.in_delivery == 0 && !lane.waiting.is_empty() && lane.not_before.is_none_or(|at| at <= now));
        idle.map(|(target, lane)| {
            let mut bytes = 0;
            let fits = |row: &&OutboxRow| {
                let first = bytes == 0;
                bytes += row.message.len();
                first || bytes <= MAX_DELIVERY_BYTES
            };
            let rows: Vec<_> = lane.waiting.iter().take(MAX_DELIVERY).take_while(fits).cloned().collect();
            lane.in_delivery = rows.len();
            (*target, rows)
        })
        .collect()
    }

    /// A delivery ended. Returns the sequences that are done with.
    pub(crate) fn delivered(&mut self, target: ShardId, success: bool, now: Duration) -> Vec<i64> {
        let Some(lane) = self.lanes.get_mut(&target) else { return Vec::new() };
        let count = std::mem::take(&mut lane.in_delivery);
        if !success {
            lane.failures = lane.failures.saturating_add(1);
            let wait = Duration::from_millis(100).saturating_mul(1 << lane.failures.min(5)).min(Duration::from_secs(2));
            lane.not_before = Some(now + wait);
            return Vec::new();
        }
        lane.failures = 0;
        lane.not_before = None;
        self.waiting -= count;
        let done: Vec<OutboxRow> = lane.waiting.drain(..count).collect();
        self.waiting_bytes -= done.iter().map(|row| row.message.len()).sum::<usize>();
        if lane.waiting.is_empty() {
            self.lanes.remove(&target);
        }
        done.into_iter().map(|row| row.sequence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_ids::{ExecutionId, Slot, Timestamp};

    const TARGET: ShardId = ShardId(1);

    fn row(sequence: i64) -> OutboxRow {
        let target = ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), 1);
        OutboxRow { sequence, target, message: bytes::Bytes::new() }
    }

    fn delivered(outbox: &mut Outbox) -> Vec<i64> {
        let sent = outbox.deliveries(Duration::ZERO);
        sent.into_iter().flat_map(|(target, _)| outbox.delivered(target, true, Duration::ZERO)).collect()
    }

    #[test]
    fn a_message_that_a_page_brought_before_its_commit_was_known_is_delivered_once() {
        let mut outbox = Outbox::default();
        outbox.recover();
        assert_eq!(outbox.wants_page(), Some(0));
        outbox.page(Some(vec![(TARGET, row(1)), (TARGET, row(2))]), 500);
        assert_eq!(delivered(&mut outbox), [1, 2]);
        outbox.add(TARGET, row(2));
        outbox.add(TARGET, row(3));
        assert_eq!(delivered(&mut outbox), [3], "its row can be removed only once");
    }

    #[test]
    fn a_delivery_holds_what_fits_a_message_and_large_ones_do_not_fill_memory() {
        let large = |sequence| OutboxRow { message: bytes::Bytes::from(vec![0; 3 * 1024 * 1024]), ..row(sequence) };
        let mut outbox = Outbox::default();
        (1..=20).for_each(|sequence| outbox.add(TARGET, large(sequence)));
        assert!(outbox.waiting_bytes < MAX_WAITING_BYTES + 3 * 1024 * 1024);
        let in_memory = outbox.waiting;
        assert!(in_memory < 20);
        let mut all = delivered(&mut outbox);
        assert_eq!(all, [1], "two do not fit one delivery");
        while outbox.waiting > 0 {
            all.extend(delivered(&mut outbox));
        }
        assert_eq!(outbox.waiting_bytes, 0);
        let after = outbox.wants_page().unwrap();
        outbox.page(Some((after + 1..=20).map(|sequence| (TARGET, row(sequence))).collect()), 500);
        all.extend(delivered(&mut outbox));
        assert_eq!(all, (1..=20).collect::<Vec<_>>());
    }

    #[test]
    fn messages_beyond_memory_come_by_pages_in_order_and_none_is_missed() {
        let mut outbox = Outbox::default();
        let most = i64::try_from(MAX_WAITING).unwrap();
        (1..=most + 5).for_each(|sequence| outbox.add(TARGET, row(sequence)));
        assert_eq!(outbox.wants_page(), None, "there is no room yet");
        let mut all = Vec::new();
        while outbox.waiting >= MAX_WAITING / 2 {
            all.extend(delivered(&mut outbox));
        }
        assert_eq!(outbox.wants_page(), Some(most));
        outbox.add(TARGET, row(most + 6)); // commits after the page was read
        outbox.page(Some((most + 1..=most + 5).map(|sequence| (TARGET, row(sequence))).collect()), 500);
        assert_eq!(outbox.wants_page(), Some(most + 5));
        outbox.page(Some(vec![(TARGET, row(most + 6))]), 500);
        while outbox.waiting > 0 {
            all.extend(delivered(&mut outbox));
        }
        assert_eq!(all, (1..=most + 6).collect::<Vec<_>>());
        assert_eq!(outbox.wants_page(), None);
    }
}
