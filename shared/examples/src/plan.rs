//! The twenty orders of the demo and how each must end: fixed before anything starts, so that the check cannot bend to what happened.

use crate::bank::{BAD_CARD, SOLD_OUT};
use serde::{Deserialize, Serialize};

/// What a customer ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Also the workflow id.
    pub order_id: String,
    /// What is bought.
    pub item: String,
    /// What pays.
    pub card: String,
    /// The price in cents.
    pub amount_cents: u64,
    /// How long the order waits for its approval, in ms.
    pub approval_deadline_ms: u64,
}

/// How an order ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Paid, approved, shipped.
    Shipped,
    /// Nothing to reserve: nothing to undo.
    OutOfStock,
    /// The card was refused: the goods went back.
    Declined,
    /// Nobody approved in time: the money and the goods went back.
    ApprovalExpired,
}

/// One order of the demo with its ending.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The order.
    pub order: Order,
    /// How it must end.
    pub ending: Ending,
}

impl Planned {
    /// True when the demo sends it an approval.
    pub fn is_approved(&self) -> bool {
        self.ending == Ending::Shipped
    }
}

/// How many orders the demo starts.
pub const ORDERS: usize = 20;

/// The ending of each, mixed so that every kind is in flight when the engine is killed.
const ENDINGS: [Ending; ORDERS] = {
    use Ending::{ApprovalExpired as Late, Declined as Bad, OutOfStock as Out, Shipped as Ship};
    [Ship, Out, Ship, Late, Ship, Bad, Ship, Ship, Out, Ship, Ship, Late, Ship, Out, Ship, Ship, Bad, Ship, Out, Ship]
};

/// The plan: 12 ship, 4 are out of stock, 2 are declined, 2 pass their approval deadline. `prefix` keeps the orders of two demos apart.
pub fn plan(prefix: &str, approval_deadline_ms: u64) -> Vec<Planned> {
    const ITEMS: [&str; 4] = ["lamp", "chair", "desk", "shelf"];
    let numbered = (1_u64..).zip(ENDINGS).zip(ITEMS.iter().cycle());
    numbered
        .map(|((number, ending), item)| Planned {
            order: Order {
                order_id: format!("{prefix}-{number:02}"),
                item: if ending == Ending::OutOfStock { format!("{SOLD_OUT} {item}") } else { (*item).to_owned() },
                card: if ending == Ending::Declined { format!("{BAD_CARD}-{number:04}") } else { format!("visa-{number:04}") },
                amount_cents: 1_000 + 250 * number,
                approval_deadline_ms,
            },
            ending,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_the_promised_mix() {
        let plan = plan("order", 1000);
        let count = |ending| plan.iter().filter(|planned| planned.ending == ending).count();
        assert_eq!(plan.len(), ORDERS);
        assert_eq!([Ending::Shipped, Ending::OutOfStock, Ending::Declined, Ending::ApprovalExpired].map(count), [12, 4, 2, 2]);
    }
}
