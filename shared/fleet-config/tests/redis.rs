//! The Redis bus against a private `redis-server` that is killed and started again.

#![allow(clippy::unwrap_used)] // a test may panic

use harvest_fleet_config::{Bus as _, BusEvent, Message, RedisBus, Version};
use harvest_runtime::SystemClock;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

/// A server on a unix socket in its own folder, killed when dropped.
struct Redis {
    child: Child,
}

impl Redis {
    fn start(folder: &std::path::Path) -> Self {
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(folder.join("redis.sock"))
            .current_dir(folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed");
        Self { child }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn next(events: &mut Receiver<BusEvent>) -> BusEvent {
    tokio::time::timeout(Duration::from_secs(20), events.recv()).await.expect("an event within 20 s").expect("the bus lives")
}

#[tokio::test]
async fn messages_reach_other_processes_and_the_subscription_survives_a_restart_of_redis() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("redis+unix://{}", folder.path().join("redis.sock").display());
    let stop = CancellationToken::new();
    let bus = || RedisBus::start(&url, "test", Arc::new(SystemClock::new()), stop.clone()).unwrap();
    // Redis is not there yet: starting is no error.
    let (sender, receiver) = (bus(), bus());
    let mut events = receiver.subscribe();
    assert!(sender.publish(&Message::RegistryChanged).await.is_err());

    for number in 1..=2 {
        let redis = Redis::start(folder.path());
        assert_eq!(next(&mut events).await, BusEvent::Connected);
        let beacon = Message::Beacon { version: Version { generation: 1, number } };
        let deadline = tokio::time::timeout(Duration::from_secs(20), async { while sender.publish(&beacon).await.is_err() {} });
        deadline.await.expect("published within 20 s");
        assert_eq!(next(&mut events).await, BusEvent::Message(beacon));
        drop(redis);
    }
    stop.cancel();
}
