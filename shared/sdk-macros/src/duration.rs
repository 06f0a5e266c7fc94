//! Duration strings: `"30s"`, `"5m"`, `"1h"`, `"7d"`, checked while the program is compiled.

use syn::LitStr;

/// The longest span that the server takes: 10 years of 365 days, in milliseconds.
const LONGEST_MS: u128 = 315_360_000_000;

/// The milliseconds of a duration string; the error names the field and what is allowed.
pub(crate) fn millis(field: &str, text: &LitStr) -> syn::Result<u64> {
    let value = text.value();
    let refuse = |what: &str| {
        syn::Error::new(text.span(), format!("{field} = {value:?} {what}; allowed are 1 ms to 10 years, for example \"30s\", \"5m\", \"1h\", \"7d\""))
    };
    if value.trim_start().starts_with('-') {
        return Err(refuse("is negative"));
    }
    let parsed = humantime::parse_duration(&value).map_err(|error| refuse(&format!("is not a duration ({error})")))?;
    let found = parsed.as_millis();
    if found == 0 {
        return Err(refuse("is too short"));
    }
    if found > LONGEST_MS || parsed.as_nanos() > LONGEST_MS * 1_000_000 {
        return Err(refuse("is too long"));
    }
    u64::try_from(found).map_err(|_| refuse("is too long"))
}
