//! Refusals of malformed values.

use harvest_rpc::Error;
use harvest_wire::WireError;

/// A malformed value as a refusal of the call.
pub(crate) fn malformed(error: WireError) -> Error {
    let field = error.field().to_owned();
    if error.is_too_large() { Error::too_large(field, error) } else { Error::invalid(field, error) }
}
