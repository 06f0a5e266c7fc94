//! Events.

mod from_proto;
mod to_proto;

pub use from_proto::from_proto;
pub use to_proto::to_proto;

use crate::error::WireError;
use harvest_proto::v1;
use harvest_workflow_core::event::Event;

pub(crate) use from_proto::{child, parent};
pub(crate) use to_proto::{child as child_to_proto, parent as parent_to_proto};

/// Events in order.
///
/// # Errors
/// As [`from_proto`], naming the event.
pub fn list(events: Vec<v1::Event>) -> Result<Vec<Event>, WireError> {
    let each = events.into_iter().enumerate();
    each.map(|(index, event)| from_proto(event).map_err(|error| error.within(&format!("events[{index}]")))).collect()
}
