//! Holds what the bank recorded against the plan.

use std::collections::BTreeSet;

use crate::bank::{Action, Answer, Entry};
use crate::plan::{Ending, Planned};

/// What is wrong with one order; empty = it is correct.
///
/// `result` is what the workflow returned; `entries` is the bank's whole file. Checked: the ending, one idempotency key per step whatever
/// the number of attempts, each step acted on exactly as often as the ending says (money captured at most once), and everything that was
/// taken given back when the order did not ship.
pub fn faults(planned: &Planned, result: Option<Ending>, entries: &[Entry]) -> Vec<String> {
    let order_id = &planned.order.order_id;
    let mut faults = Vec::new();
    if result != Some(planned.ending) {
        faults.push(format!("{order_id}: the workflow ended with {result:?}, planned is {:?}", planned.ending));
    }
    let mine: Vec<&Entry> = entries.iter().filter(|entry| &entry.call.order_id == order_id).collect();
    for (action, expected) in expected(planned.ending) {
        let calls = mine.iter().filter(|entry| entry.action == action);
        let keys: BTreeSet<&str> = calls.clone().map(|entry| entry.call.idempotency_key.as_str()).collect();
        let answers: Vec<Answer> = calls.filter(|entry| !entry.repeated).map(|entry| entry.answer).collect();
        let planned_answers: Vec<Answer> = expected.into_iter().collect();
        if answers != planned_answers || keys.len() != planned_answers.len() {
            let action = action.as_str();
            faults.push(format!("{order_id}: {action} was carried out as {answers:?} under {} keys, planned is {planned_answers:?}", keys.len()));
        }
    }
    if let Some(wrong) = mine.iter().find(|entry| entry.call.amount_cents != planned.order.amount_cents) {
        faults.push(format!("{order_id}: {} of {} cents, the order is for {}", wrong.action.as_str(), wrong.call.amount_cents, planned.order.amount_cents));
    }
    faults
}

/// What the bank must have answered to each kind of call, once.
fn expected(ending: Ending) -> [(Action, Option<Answer>); 5] {
    let (reserve, charge, ship, refund, release) = match ending {
        Ending::Shipped => (Answer::Done, Some(Answer::Done), Some(Answer::Done), None, None),
        Ending::OutOfStock => (Answer::OutOfStock, None, None, None, None),
        Ending::Declined => (Answer::Done, Some(Answer::Declined), None, None, Some(Answer::Done)),
        Ending::ApprovalExpired => (Answer::Done, Some(Answer::Done), None, Some(Answer::Done), Some(Answer::Done)),
    };
    [(Action::Reserve, Some(reserve)), (Action::Charge, charge), (Action::Ship, ship), (Action::Refund, refund), (Action::Release, release)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Call;
    use crate::plan::plan;

    fn entry(planned: &Planned, action: Action, key: &str, answer: Answer, repeated: bool) -> Entry {
        let order = &planned.order;
        let call = Call {
            order_id: order.order_id.clone(),
            idempotency_key: key.into(),
            item: order.item.clone(),
            card: order.card.clone(),
            amount_cents: order.amount_cents,
        };
        Entry { number: 1, action, call, answer, repeated }
    }

    fn late() -> (Planned, Vec<Entry>) {
        let planned = plan("o", 1).into_iter().find(|planned| planned.ending == Ending::ApprovalExpired).unwrap();
        let steps = [Action::Reserve, Action::Charge, Action::Refund, Action::Release];
        let entries = steps.iter().map(|action| entry(&planned, *action, action.as_str(), Answer::Done, false)).collect();
        (planned, entries)
    }

    #[test]
    fn an_order_as_planned_has_no_fault_and_repeated_calls_are_none() {
        let (planned, mut entries) = late();
        entries.push(entry(&planned, Action::Charge, "charge", Answer::Done, true));
        assert_eq!(faults(&planned, Some(Ending::ApprovalExpired), &entries), Vec::<String>::new());
    }

    #[test]
    fn a_second_capture_a_second_key_a_missing_refund_and_a_wrong_ending_are_faults() {
        let (planned, entries) = late();
        let with = |action, key, repeated| {
            let mut all = entries.clone();
            all.push(entry(&planned, action, key, Answer::Done, repeated));
            faults(&planned, Some(Ending::ApprovalExpired), &all).len()
        };
        assert_eq!(with(Action::Charge, "another", false), 1);
        assert_eq!(with(Action::Charge, "another", true), 1);
        assert_eq!(with(Action::Ship, "ship", false), 1);
        let no_refund: Vec<Entry> = entries.iter().filter(|entry| entry.action != Action::Refund).cloned().collect();
        assert_eq!(faults(&planned, Some(Ending::ApprovalExpired), &no_refund).len(), 1);
        assert_eq!(faults(&planned, Some(Ending::Shipped), &entries).len(), 1);
        assert_eq!(faults(&planned, None, &entries).len(), 1);
    }
}
