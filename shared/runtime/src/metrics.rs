//! The metric catalogue: every metric of the fleet, with its unit, help and labels, and the registry that `/metrics` shows.
//!
//! Instruments are statics that are called where the fact happens: `WORKFLOW_STARTED.add(1, [workflow_type, queue])`. The number of
//! labels is part of the type, so a wrong number does not compile. Labels are bounded sets; ids of runs are never labels.

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder as _, TextEncoder};
use std::sync::{LazyLock, OnceLock};

mod catalogue;

pub use catalogue::*;

/// Upper bounds of histograms of seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];
/// Upper bounds of histograms of counts.
const COUNTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0, 16384.0];

/// What is known about a metric when the program is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Its OpenTelemetry name; [`Descriptor::prometheus_name`] is what is scraped.
    pub name: &'static str,
    /// UCUM unit: `s`, `By`, or empty for a plain count.
    pub unit: &'static str,
    /// For people.
    pub help: &'static str,
    /// Its label names, in the order of the values given.
    pub labels: &'static [&'static str],
    /// What it measures.
    pub kind: Kind,
}

/// Kinds of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// The present value.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Descriptor {
    /// The name in the text exposition: dots become underscores, `s` adds `_seconds`, `By` adds `_bytes`, a counter adds `_total`.
    pub fn prometheus_name(&self) -> String {
        let mut name = self.name.replace('.', "_");
        for (unit, suffix) in [("s", "_seconds"), ("By", "_bytes")] {
            if self.unit == unit && !name.ends_with(suffix) {
                name.push_str(suffix);
            }
        }
        if self.kind == Kind::Counter {
            name.push_str("_total");
        }
        name
    }
}

struct Registry {
    prometheus: prometheus::Registry,
    provider: SdkMeterProvider,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let prometheus = prometheus::Registry::new();
    let exporter = opentelemetry_prometheus::exporter()
        .with_registry(prometheus.clone())
        .scope_info_enabled(false)
        .without_target_info()
        .build()
        .expect("a new registry has no collector that could collide");
    Registry { prometheus, provider: SdkMeterProvider::builder().with_reader(exporter).build() }
});

/// All metrics that have a value, in the Prometheus text format.
///
/// # Errors
/// When a value cannot be encoded.
pub fn render() -> Result<String, prometheus::Error> {
    let mut text = Vec::new();
    TextEncoder::new().encode(&REGISTRY.prometheus.gather(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn meter() -> opentelemetry::metrics::Meter {
    REGISTRY.provider.meter("harvest")
}

fn attributes<const N: usize>(labels: &'static [&'static str], values: [&str; N]) -> [KeyValue; N] {
    let mut names = labels.iter();
    values.map(|value| KeyValue::new(*names.next().expect("the constructor takes as many names as values"), value.to_owned()))
}

/// A metric that only grows, with `N` labels.
pub struct Counter<const N: usize> {
    descriptor: Descriptor,
    instrument: OnceLock<opentelemetry::metrics::Counter<u64>>,
}

impl<const N: usize> Counter<N> {
    const fn new(name: &'static str, unit: &'static str, labels: &'static [&'static str; N], help: &'static str) -> Self {
        Self { descriptor: Descriptor { name, unit, help, labels, kind: Kind::Counter }, instrument: OnceLock::new() }
    }

    /// Adds `amount` under these label values.
    pub fn add(&self, amount: u64, labels: [&str; N]) {
        let made = || meter().u64_counter(self.descriptor.name).with_unit(self.descriptor.unit).with_description(self.descriptor.help).build();
        self.instrument.get_or_init(made).add(amount, &attributes(self.descriptor.labels, labels));
    }
}

/// A metric that shows the present value, with `N` labels.
pub struct Gauge<const N: usize> {
    descriptor: Descriptor,
    instrument: OnceLock<opentelemetry::metrics::Gauge<f64>>,
}

impl<const N: usize> Gauge<N> {
    const fn new(name: &'static str, unit: &'static str, labels: &'static [&'static str; N], help: &'static str) -> Self {
        Self { descriptor: Descriptor { name, unit, help, labels, kind: Kind::Gauge }, instrument: OnceLock::new() }
    }

    /// Sets the value under these label values.
    pub fn set(&self, value: f64, labels: [&str; N]) {
        let made = || meter().f64_gauge(self.descriptor.name).with_unit(self.descriptor.unit).with_description(self.descriptor.help).build();
        self.instrument.get_or_init(made).record(value, &attributes(self.descriptor.labels, labels));
    }

    /// Sets a count; above 2^53 the nearest representable one.
    pub fn set_count(&self, value: u64, labels: [&str; N]) {
        let (high, low) = (value >> 32, value & u64::from(u32::MAX));
        let half = |part: u64| f64::from(u32::try_from(part).expect("32 bits"));
        self.set(half(high) * 4_294_967_296.0 + half(low), labels);
    }
}

/// A distribution, with `N` labels.
pub struct Histogram<const N: usize> {
    descriptor: Descriptor,
    bounds: &'static [f64],
    instrument: OnceLock<opentelemetry::metrics::Histogram<f64>>,
}

impl<const N: usize> Histogram<N> {
    const fn new(name: &'static str, unit: &'static str, bounds: &'static [f64], labels: &'static [&'static str; N], help: &'static str) -> Self {
        Self { descriptor: Descriptor { name, unit, help, labels, kind: Kind::Histogram }, bounds, instrument: OnceLock::new() }
    }

    /// Adds one measured value under these label values.
    pub fn record(&self, value: f64, labels: [&str; N]) {
        let made = || {
            let meter = meter();
            let builder = meter.f64_histogram(self.descriptor.name).with_unit(self.descriptor.unit).with_description(self.descriptor.help);
            builder.with_boundaries(self.bounds.to_vec()).build()
        };
        self.instrument.get_or_init(made).record(value, &attributes(self.descriptor.labels, labels));
    }

    /// Adds one measured time.
    pub fn record_duration(&self, span: std::time::Duration, labels: [&str; N]) {
        self.record(span.as_secs_f64(), labels);
    }
}

/// Gives a metric some value, so that a test sees all of them scraped.
#[cfg(test)]
trait Emit {
    fn emit(&self);
}

#[cfg(test)]
impl<const N: usize> Emit for Counter<N> {
    fn emit(&self) {
        self.add(1, ["x"; N]);
    }
}

#[cfg(test)]
impl<const N: usize> Emit for Gauge<N> {
    fn emit(&self) {
        self.set(1.0, ["x"; N]);
    }
}

#[cfg(test)]
impl<const N: usize> Emit for Histogram<N> {
    fn emit(&self) {
        self.record(1.0, ["x"; N]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_fact_is_scraped_under_its_prometheus_name_with_its_labels() {
        WORKFLOW_STARTED.add(2, ["order", "orders"]);
        ENGINE_COMMIT_DURATION.record(0.003, []);
        CONFIG_VERSION.set_count((1 << 33) + 5, ["history"]);
        let text = render().unwrap();
        assert!(text.contains("harvest_workflow_started_total{queue=\"orders\",workflow=\"order\"} 2"), "{text}");
        assert!(text.contains("harvest_engine_commit_duration_seconds_bucket{le=\"0.005\"} 1"), "{text}");
        assert!(text.contains("harvest_config_version{service=\"history\"} 8589934597"), "{text}");
        assert!(!text.contains("otel_scope"), "{text}");
    }

    #[test]
    fn every_metric_is_scraped_under_the_name_that_the_catalogue_gives() {
        emit_all();
        let text = render().unwrap();
        for metric in catalogue() {
            assert!(text.contains(&format!("# TYPE {} ", metric.prometheus_name())), "{} is not scraped as {}", metric.name, metric.prometheus_name());
        }
    }

    #[test]
    fn names_are_unique_and_every_metric_has_help() {
        let mut names: Vec<_> = catalogue().iter().map(Descriptor::prometheus_name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(catalogue().iter().all(|metric| !metric.help.is_empty() && metric.name.starts_with("harvest.")));
    }
}
