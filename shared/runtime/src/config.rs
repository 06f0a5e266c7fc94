//! Typed configuration: defaults from a commented TOML compiled in, then a file, then the environment. Every fault is named, all at once.
//!
//! The default TOML has every key there is: it is the documentation, and a key that is not in it is unknown. `HARVEST_` and the key in
//! capitals, with `__` between table and key, overrides one: `HARVEST_LEASE__TTL_MS=2000` is `lease.ttl_ms`. Lists in the environment
//! are separated by commas.

use config::{Config, File, FileFormat, Map, Value, ValueKind};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read as _;
use std::path::Path;

/// Prefix of the environment variables that override keys.
pub const PREFIX: &str = "HARVEST_";

/// The largest configuration file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A service's configuration.
pub trait Settings: DeserializeOwned {
    /// The commented TOML that names every key with its default.
    const DEFAULTS: &'static str;

    /// Adds what is wrong with the values: ranges, combinations, addresses.
    fn check(&self, faults: &mut Faults);
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
pub struct Faults(Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration has {} fault{}:", self.0.len(), if self.0.len() == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl Faults {
    /// Adds a fault of a key: what was found and what is allowed.
    pub fn add(&mut self, key: &str, fault: impl fmt::Display) {
        self.0.push(format!("{key}: {fault}"));
    }

    /// Adds a fault when `value` is outside `range`.
    pub fn range<T: PartialOrd + fmt::Display>(&mut self, key: &str, value: T, range: std::ops::RangeInclusive<T>) {
        if !range.contains(&value) {
            self.add(key, format_args!("is {value}; allowed are {} to {}", range.start(), range.end()));
        }
    }

    /// Adds a fault when a text that must be given is empty.
    pub fn required(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.add(key, format_args!("must be set (environment: {})", variable(key)));
        }
    }

    /// Adds a fault when the URL of a Postgres, which must be given, is empty or none.
    pub fn postgres_url(&mut self, key: &str, value: &str) {
        self.url(key, value, &["postgres", "postgresql"]);
    }

    /// Adds a fault when the URL of a Redis, which must be given, is empty or none.
    pub fn redis_url(&mut self, key: &str, value: &str) {
        self.url(key, value, &["redis", "rediss", "redis+unix", "unix", "valkey", "valkeys", "valkey+unix"]);
    }

    fn url(&mut self, key: &str, value: &str, schemes: &[&str]) {
        self.required(key, value);
        let scheme = value.split_once("://").map(|(scheme, _)| scheme);
        if !value.is_empty() && scheme.is_none_or(|scheme| !schemes.contains(&scheme)) {
            // Not with the value: it may have a password in it.
            self.add(key, format_args!("is no URL that begins with {}://", schemes.join("://, ")));
        }
    }

    /// The faults so far.
    pub fn list(&self) -> &[String] {
        &self.0
    }
}

/// A configuration with where its values come from.
#[derive(Debug)]
pub struct Loaded<C> {
    /// The values.
    pub settings: C,
    /// Environment variables with our prefix that name no key: other programs' (Kubernetes makes some), or misspelt.
    pub unused_variables: Vec<String>,
    values: BTreeMap<String, (ValueKind, &'static str)>,
}

impl<C> Loaded<C> {
    /// The configuration in force as TOML, each line with its origin. Passwords in URLs are hidden.
    pub fn print(&self) -> String {
        self.values.iter().map(|(key, (value, origin))| format!("{key} = {}  # {origin}\n", toml(value))).collect()
    }
}

/// Reads defaults, `file` and `environment` (names with values), in rising precedence.
///
/// # Errors
/// [`Faults`] naming every unknown key of the file, every value of a wrong type, and everything that [`Settings::check`] finds in the
/// values that can be read (a wrong one counts as its default there). A file that cannot be read is the only fault.
///
/// # Panics
/// When the compiled-in defaults themselves cannot be read: a bug that the crate's tests find.
pub fn load<C: Settings>(file: Option<&Path>, environment: impl IntoIterator<Item = (String, String)>) -> Result<Loaded<C>, Faults> {
    let defaults = parse(C::DEFAULTS).expect("the compiled-in defaults are TOML");
    let mut values: BTreeMap<String, (ValueKind, &'static str)> = defaults.into_iter().map(|(key, value)| (key, (value, "default"))).collect();
    let (mut faults, mut wrong) = (Faults::default(), BTreeSet::new());
    if let Some(path) = file {
        let found = read(path).and_then(|text| parse(&text)).map_err(|error| Faults(vec![format!("{}: {error}", path.display())]))?;
        overlay::<C>(&mut values, found, "file", &mut faults, &mut wrong, None);
    }
    let mut unused_variables = Vec::new();
    let found = environment.into_iter().filter_map(|(name, value)| {
        let key = name.strip_prefix(PREFIX)?.to_ascii_lowercase().replace("__", ".");
        Some((key, ValueKind::String(value)))
    });
    overlay::<C>(&mut values, found.collect(), "environment", &mut faults, &mut wrong, Some(&mut unused_variables));
    let settings = build::<C>(&values, None).map_err(|error| Faults(vec![error]))?;
    let mut checked = Faults::default();
    settings.check(&mut checked);
    // The default in the place of a wrong value is nobody's fault.
    let of_wrong = |fault: &String| fault.split_once(':').is_some_and(|(key, _)| wrong.contains(key));
    faults.0.extend(checked.0.into_iter().filter(|fault| !of_wrong(fault)));
    if faults.0.is_empty() { Ok(Loaded { settings, unused_variables, values }) } else { Err(faults) }
}

/// Reads a configuration file: a regular one of bounded size, since a device or a pipe may never end.
fn read(path: &Path) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let found = std::fs::metadata(path).map_err(text)?;
    if !found.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if found.len() > MAX_FILE_BYTES {
        return Err(format!("has {} bytes; at most {MAX_FILE_BYTES} are allowed", found.len()));
    }
    let mut read = String::new();
    std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut read)).map_err(text)?;
    Ok(read)
}

/// Lays `found` over the values. A key that is not there yet is unknown: noted in `unused` when given, else a fault. A value that cannot be
/// read is a fault too, and its key `wrong`.
fn overlay<C: Settings>(
    values: &mut BTreeMap<String, (ValueKind, &'static str)>,
    found: Vec<(String, ValueKind)>,
    origin: &'static str,
    faults: &mut Faults,
    wrong: &mut BTreeSet<String>,
    mut unused: Option<&mut Vec<String>>,
) {
    for (key, value) in found {
        let Some((default, _)) = values.get(&key) else {
            match &mut unused {
                Some(unused) => unused.push(variable(&key)),
                None => faults.add(&key, "is not a key of this service"),
            }
            continue;
        };
        let value = match (default, value) {
            (ValueKind::Array(_), ValueKind::String(text)) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                ValueKind::Array(items.map(|item| Value::new(None, item)).collect())
            }
            (_, value) => value,
        };
        // One value alone over the defaults, so that each bad one is named.
        match build::<C>(values, Some((&key, &value))) {
            Ok(_) => _ = values.insert(key, (value, origin)),
            Err(error) => {
                let name = if origin == "environment" { variable(&key) } else { key.clone() };
                faults.add(&name, error);
                wrong.insert(key);
            }
        }
    }
}

fn build<C: Settings>(values: &BTreeMap<String, (ValueKind, &'static str)>, over: Option<(&str, &ValueKind)>) -> Result<C, String> {
    let mut builder = Config::builder();
    for (key, (value, _)) in values {
        let value = over.filter(|(changed, _)| *changed == key).map_or(value, |(_, value)| value);
        builder = builder.set_override(key, Value::new(None, value.clone())).map_err(|error| error.to_string())?;
    }
    builder.build().and_then(Config::try_deserialize).map_err(|error| error.to_string())
}

/// Reads TOML into dotted keys.
fn parse(text: &str) -> Result<Vec<(String, ValueKind)>, String> {
    let config = Config::builder().add_source(File::from_str(text, FileFormat::Toml)).build().map_err(|error| error.to_string())?;
    let table: Map<String, Value> = config.try_deserialize().map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    flatten("", table, &mut found);
    Ok(found)
}

fn flatten(prefix: &str, table: Map<String, Value>, found: &mut Vec<(String, ValueKind)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value.kind {
            ValueKind::Table(inner) => flatten(&key, inner, found),
            kind => found.push((key, kind)),
        }
    }
}

/// The environment variable of a key.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"))
}

fn toml(value: &ValueKind) -> String {
    match value {
        ValueKind::String(text) => quote(&hide_password(text)),
        ValueKind::Array(items) => format!("[{}]", items.iter().map(|item| toml(&item.kind)).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A JSON string is a TOML basic string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `scheme://user:password@host` without the password.
pub fn hide_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once('@').and_then(|(credentials, _)| credentials.split_once(':').map(|(user, _)| (user, credentials.len()))) {
        Some((user, length)) => format!("{scheme}://{user}:***{}", &rest[length..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        database_url: String,
        queues: Vec<String>,
        lease: Lease,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Lease {
        ttl_ms: u64,
        renew: bool,
    }

    impl Settings for Sample {
        const DEFAULTS: &'static str = "database_url = \"\" # where\nqueues = [\"a\"]\n[lease]\nttl_ms = 2000\nrenew = true\n";

        fn check(&self, faults: &mut Faults) {
            faults.range("lease.ttl_ms", self.lease.ttl_ms, 100..=60_000);
            faults.postgres_url("database_url", &self.database_url);
        }
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn the_environment_beats_the_file_which_beats_the_defaults() {
        let file = file("[lease]\nttl_ms = 5000\nrenew = false\n");
        let environment = [("HARVEST_LEASE__TTL_MS", "700"), ("HARVEST_DATABASE_URL", "postgres://u:p@h/d"), ("HARVEST_QUEUES", "x, y"), ("PATH", "/bin")];
        let loaded = load::<Sample>(Some(file.path()), variables(&environment)).unwrap();
        assert_eq!((loaded.settings.lease.ttl_ms, loaded.settings.lease.renew), (700, false));
        assert_eq!(loaded.settings.queues, ["x", "y"]);
        let text = loaded.print();
        assert!(text.contains("lease.ttl_ms = \"700\"  # environment") || text.contains("lease.ttl_ms = 700  # environment"), "{text}");
        assert!(text.contains("lease.renew = false  # file"), "{text}");
        assert!(text.contains("database_url = \"postgres://u:***@h/d\"  # environment"), "{text}");
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let file = file("colour = 1\n[lease]\nrenew = \"perhaps\"\nttl = 4\n");
        let faults = load::<Sample>(Some(file.path()), variables(&[("HARVEST_LEASE__TTL_MS", "soon")])).unwrap_err();
        let text = faults.to_string();
        assert!(text.starts_with("the configuration has 5 faults:"), "{text}");
        for part in ["colour: is not a key", "lease.ttl: is not a key", "lease.renew: ", "HARVEST_LEASE__TTL_MS: ", "database_url: must be set"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let faults = load::<Sample>(None, variables(&[("HARVEST_LEASE__TTL_MS", "3")])).unwrap_err();
        assert_eq!(faults.list(), ["lease.ttl_ms: is 3; allowed are 100 to 60000", "database_url: must be set (environment: HARVEST_DATABASE_URL)"]);
    }

    #[test]
    fn a_variable_that_names_no_key_is_reported_and_does_no_harm() {
        let loaded = load::<Sample>(None, variables(&[("HARVEST_DATABASE_URL", "postgresql://h"), ("HARVEST_FRONTEND_SERVICE_HOST", "10.0.0.1")])).unwrap();
        assert_eq!(loaded.unused_variables, ["HARVEST_FRONTEND_SERVICE_HOST"]);
    }

    #[test]
    fn a_database_url_that_is_none_is_a_fault() {
        for url in ["nonsense", "localhost:5432/db", "http://h/db", "postgres:h", "postgres"] {
            let faults = load::<Sample>(None, variables(&[("HARVEST_DATABASE_URL", url)])).unwrap_err();
            assert_eq!(faults.list(), ["database_url: is no URL that begins with postgres://, postgresql://"], "{url}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_once() {
        let file = file("[lease]\nttl_ms = \"soon\"\n");
        let faults = load::<Sample>(Some(file.path()), variables(&[("HARVEST_DATABASE_URL", "postgres://h"), ("HARVEST_LEASE__TTL_MS", "3")])).unwrap_err();
        assert!(matches!(faults.list(), [fault] if fault.starts_with("lease.ttl_ms: invalid type")), "{faults}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_not_read() {
        for (path, fault) in [("/dev/zero", "/dev/zero: is not a regular file"), ("/", "/: is not a regular file")] {
            assert_eq!(load::<Sample>(Some(Path::new(path)), []).unwrap_err().list(), [fault]);
        }
        let large = file(&"#".repeat(1024 * 1024 + 1));
        let faults = load::<Sample>(Some(large.path()), []).unwrap_err();
        assert!(faults.to_string().contains("has 1048577 bytes; at most 1048576 are allowed"), "{faults}");
    }

    #[test]
    fn a_missing_file_is_a_fault_with_its_path() {
        assert!(load::<Sample>(Some(Path::new("/nonexistent.toml")), []).unwrap_err().to_string().contains("/nonexistent.toml"));
    }

    #[test]
    fn only_the_password_of_a_url_is_hidden() {
        assert_eq!(hide_password("redis://h:6379/0"), "redis://h:6379/0");
        assert_eq!(hide_password("postgres://user:s3:c@h:5432/d"), "postgres://user:***@h:5432/d");
        assert_eq!(hide_password("plain text"), "plain text");
    }
}
