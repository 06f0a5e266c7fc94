//! The bank of the order example: stock, cards and parcels behind one HTTP endpoint, with a memory that outlives every process of the demo.
//!
//! It behaves as a payment provider does: each call names an idempotency key, the first call of a key acts, a repeated one is answered
//! again without acting. Every call that arrives is a line of its file, repeated ones too, so that the file shows what really happened and
//! not what a unique constraint left of it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Items that begin with this are never in stock.
pub const SOLD_OUT: &str = "sold-out";
/// Cards that begin with this are always declined.
pub const BAD_CARD: &str = "declined";

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Put the goods aside.
    Reserve,
    /// Put them back: undoes `Reserve`.
    Release,
    /// Take the money.
    Charge,
    /// Give it back: undoes `Charge`.
    Refund,
    /// Hand the goods to the carrier.
    Ship,
}

impl Action {
    /// Its name in paths and in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Reserve => "reserve",
            Action::Release => "release",
            Action::Charge => "charge",
            Action::Refund => "refund",
            Action::Ship => "ship",
        }
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Whose order.
    pub order_id: String,
    /// Same key, same call: names the step of the order, not the attempt.
    pub idempotency_key: String,
    /// What is bought.
    pub item: String,
    /// What pays.
    pub card: String,
    /// The price in cents.
    pub amount_cents: u64,
}

/// What the bank answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Done,
    /// `Reserve`: nothing left.
    OutOfStock,
    /// `Charge`: the card is refused.
    Declined,
}

/// A line of the file: one call that arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Numbered from 1 in order of arrival.
    pub number: u64,
    /// What was asked.
    pub action: Action,
    /// By which call.
    #[serde(flatten)]
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
    /// True when the key had been seen for this action: nothing was done again.
    pub repeated: bool,
}

/// Why the bank cannot work.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// The file cannot be read or written.
    #[error("bank file: {0}")]
    File(#[from] std::io::Error),
    /// A line that is not the last one is damaged.
    #[error("bank file, line {line}: {error}")]
    Damaged {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

/// The open file and what it says.
#[derive(Debug)]
pub struct Bank {
    file: File,
    entries: u64,
    seen: BTreeMap<(Action, String), Answer>,
}

impl Bank {
    /// Opens or creates the file and remembers what it says. A torn last line (a crash in the middle of a write, never answered) is cut off.
    ///
    /// # Errors
    /// [`BankError`] when the file cannot be used or is damaged before its end.
    pub fn open(path: &Path) -> Result<Self, BankError> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let (entries, whole) = read(&file)?;
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        let seen = entries.iter().map(|entry| ((entry.action, entry.call.idempotency_key.clone()), entry.answer)).collect();
        let entries = u64::try_from(entries.len()).expect("a count of lines fits in 64 bits");
        Ok(Self { file, entries, seen })
    }

    /// Carries out one call: recorded and synced to disk before it is answered.
    ///
    /// # Errors
    /// [`BankError::File`] when the line cannot be made durable; then the caller must not be answered.
    pub fn call(&mut self, action: Action, call: Call) -> Result<Answer, BankError> {
        let key = (action, call.idempotency_key.clone());
        let earlier = self.seen.get(&key).copied();
        let answer = earlier.unwrap_or_else(|| decide(action, &call));
        let entry = Entry { number: self.entries + 1, action, call, answer, repeated: earlier.is_some() };
        let mut line = serde_json::to_vec(&entry).map_err(std::io::Error::from)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.entries += 1;
        self.seen.insert(key, answer);
        Ok(answer)
    }
}

/// Every call that arrived, in order.
///
/// # Errors
/// [`BankError`] when the file cannot be read or is damaged before its end.
pub fn entries(path: &Path) -> Result<Vec<Entry>, BankError> {
    Ok(read(&File::open(path)?)?.0)
}

fn decide(action: Action, call: &Call) -> Answer {
    match action {
        Action::Reserve if call.item.starts_with(SOLD_OUT) => Answer::OutOfStock,
        Action::Charge if call.card.starts_with(BAD_CARD) => Answer::Declined,
        Action::Reserve | Action::Release | Action::Charge | Action::Refund | Action::Ship => Answer::Done,
    }
}

/// The entries and how many bytes of whole lines they take.
fn read(file: &File) -> Result<(Vec<Entry>, u64), BankError> {
    let mut reader = BufReader::new(file);
    let (mut entries, mut whole, mut line) = (Vec::new(), 0, Vec::new());
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 || line.last() != Some(&b'\n') {
            return Ok((entries, whole));
        }
        whole += u64::try_from(length).expect("a line's length fits in 64 bits");
        let number = u64::try_from(entries.len()).expect("a count of lines fits in 64 bits") + 1;
        entries.push(serde_json::from_slice(&line).map_err(|error| BankError::Damaged { line: number, error })?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(key: &str) -> Call {
        Call { order_id: "o-1".into(), idempotency_key: key.into(), item: "lamp".into(), card: "visa".into(), amount_cents: 1200 }
    }

    #[test]
    fn a_repeated_key_is_answered_again_and_recorded_again_but_not_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let mut bank = Bank::open(&path).unwrap();
        let declined = Call { card: "declined-1".into(), ..call("k1") };
        assert_eq!(bank.call(Action::Charge, declined.clone()).unwrap(), Answer::Declined);
        assert_eq!(bank.call(Action::Charge, call("k2")).unwrap(), Answer::Done);
        drop(bank);
        // Also after a restart.
        let mut bank = Bank::open(&path).unwrap();
        assert_eq!(bank.call(Action::Charge, declined).unwrap(), Answer::Declined);
        assert_eq!(bank.call(Action::Charge, call("k2")).unwrap(), Answer::Done);
        let seen: Vec<_> = entries(&path).unwrap().into_iter().map(|entry| (entry.number, entry.answer, entry.repeated)).collect();
        assert_eq!(seen, [(1, Answer::Declined, false), (2, Answer::Done, false), (3, Answer::Declined, true), (4, Answer::Done, true)]);
    }

    #[test]
    fn the_same_key_under_another_action_is_another_call() {
        let folder = tempfile::tempdir().unwrap();
        let mut bank = Bank::open(&folder.path().join("bank.jsonl")).unwrap();
        assert_eq!(bank.call(Action::Reserve, Call { item: "sold-out lamp".into(), ..call("k") }).unwrap(), Answer::OutOfStock);
        assert_eq!(bank.call(Action::Ship, call("k")).unwrap(), Answer::Done);
    }

    #[test]
    fn a_torn_last_line_is_cut_off_and_a_damaged_one_before_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        Bank::open(&path).unwrap().call(Action::Ship, call("k")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [whole.as_slice(), b"{\"number\":2"].concat()).unwrap();
        Bank::open(&path).unwrap().call(Action::Ship, call("k")).unwrap();
        assert_eq!(entries(&path).unwrap().len(), 2);
        std::fs::write(&path, [b"rubbish\n", whole.as_slice()].concat()).unwrap();
        assert!(matches!(Bank::open(&path), Err(BankError::Damaged { line: 1, .. })));
    }
}
