//! Query strings, read parameter by parameter, so that a refusal names the parameter and what is allowed.

use axum::http::Uri;
use harvest_rpc::Error;
use std::time::Duration;

/// The parameters of a query string.
pub(super) struct Parameters {
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Parameters {
    /// Reads a query string. A parameter given twice is refused, as is one that is not UTF-8.
    pub(super) fn read(uri: &Uri) -> Result<Self, Error> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decode(name, "query string")?;
            let value = decode(value, &name)?;
            if pairs.iter().any(|(before, _)| *before == name) {
                return Err(Error::invalid(name.clone(), format!("parameter {name} is given twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs, known: Vec::new() })
    }

    fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let index = self.pairs.iter().position(|(found, _)| found == name)?;
        Some(self.pairs.swap_remove(index).1)
    }

    /// A text; empty when absent.
    pub(super) fn text(&mut self, name: &'static str) -> String {
        self.take(name).unwrap_or_default()
    }

    /// A whole number.
    pub(super) fn number<T: std::str::FromStr>(&mut self, name: &'static str) -> Result<Option<T>, Error> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let refused = |_| Error::invalid(name, format!("{name} is {:?}; a whole number is allowed", text.chars().take(64).collect::<String>()));
        text.parse().map(Some).map_err(refused)
    }

    /// `true` or `false`.
    pub(super) fn truth(&mut self, name: &'static str) -> Result<Option<bool>, Error> {
        let refused = |text: &str| Error::invalid(name, format!("{name} is {text:?}; true and false are allowed"));
        self.take(name).map(|text| text.parse().map_err(|_| refused(&text))).transpose()
    }

    /// The size of a page. On gRPC 0 is "not given"; whoever writes it here hardly means that.
    pub(super) fn page_size(&mut self, name: &'static str) -> Result<Option<u32>, Error> {
        match self.number(name)? {
            Some(0) => Err(Error::invalid(name, format!("{name} is 0; at least 1 is allowed, and leaving it out"))),
            size => Ok(size),
        }
    }

    /// A span such as `5s`, `250ms` or `1m`; a bare number is seconds.
    pub(super) fn span(&mut self, name: &'static str) -> Result<Option<Duration>, Error> {
        let Some(text) = self.take(name) else { return Ok(None) };
        span(&text).map(Some).ok_or_else(|| {
            Error::invalid(name, format!("{name} is {:?}; spans such as 5s, 250ms or 1m are allowed", text.chars().take(64).collect::<String>()))
        })
    }

    /// Refuses parameters that nobody took.
    pub(super) fn finish(self) -> Result<(), Error> {
        let Some((unknown, _)) = self.pairs.first() else { return Ok(()) };
        let shown: String = unknown.chars().take(64).collect();
        let allowed = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(Error::invalid(shown.clone(), format!("parameter {shown:?} is not known; allowed are {allowed}")))
    }
}

/// Reads a span; `None` when it is none.
pub(super) fn span(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let count: u64 = digits.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    count.checked_mul(millis).map(Duration::from_millis)
}

/// Undoes percent-encoding and `+`.
fn decode(text: &str, field: &str) -> Result<String, Error> {
    percent(text.replace('+', " ").as_bytes(), field)
}

/// Undoes percent-encoding.
pub(super) fn percent(bytes: &[u8], field: &str) -> Result<String, Error> {
    let refused = |what: &str| Error::invalid(field, format!("{field} {what}"));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok());
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => decoded.push(high << 4 | low),
            _ => return Err(refused("has a malformed percent-encoding")),
        }
    }
    String::from_utf8(decoded).map_err(|_| refused("is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_percent_encoding_are_read_or_refused() {
        assert_eq!(span("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(span("5"), Some(Duration::from_secs(5)));
        assert_eq!(span("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "s", "-1s", "1d", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(span(bad), None, "{bad}");
        }
        assert_eq!(percent(b"a%2Fb%C3%A9", "x").unwrap(), "a/b\u{e9}");
        assert_eq!(percent(b"a%2", "x").unwrap_err().message, "x has a malformed percent-encoding");
        assert_eq!(percent(b"%ff", "x").unwrap_err().message, "x is not valid UTF-8");
        assert!(percent(b"%+1", "x").is_err());
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused_by_name() {
        let read = |text: &str| Parameters::read(&text.parse::<Uri>().unwrap());
        assert_eq!(read("/?a=1&a=2").err().unwrap().field.unwrap(), "a");
        assert_eq!(read("/?limit=0").unwrap().page_size("limit").unwrap_err().message, "limit is 0; at least 1 is allowed, and leaving it out");
        assert_eq!(read("/?limit=7").unwrap().page_size("limit").unwrap(), Some(7));
        let mut parameters = read("/?limit=x&other=1").unwrap();
        assert_eq!(parameters.number::<u32>("limit").unwrap_err().field.unwrap(), "limit");
        assert_eq!(parameters.finish().unwrap_err().message, "parameter \"other\" is not known; allowed are limit");
    }
}
