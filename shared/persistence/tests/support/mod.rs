//! A proxy between a store and Postgres that knows the protocol's messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does to connections from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Sync messages are kept: the server has executed, and waits.
    HoldSync,
    /// The connection ends before the next Bind reaches the server.
    CutRequest,
    /// The connection ends when the server answers; the answer is lost.
    CutAnswer,
    /// Connections that exist or begin now say nothing any more, without an end, also after this is over.
    Silent,
}

/// A running proxy; ends with the test's runtime.
pub struct Proxy {
    pub url: String,
    fault: Arc<Mutex<Fault>>,
    sent: watch::Receiver<BTreeMap<char, u32>>,
}

impl Proxy {
    /// Listens in front of the server of `url` (`postgres://user@127.0.0.1:port/database`).
    pub async fn before(url: &str) -> Self {
        let address = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let fault = Arc::new(Mutex::new(Fault::None));
        let (count, sent) = watch::channel(BTreeMap::new());
        let shared = fault.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (cut, is_cut) = watch::channel(false);
                tokio::spawn(requests(from_client, to_server, shared.clone(), count.clone(), cut.clone(), is_cut.clone()));
                tokio::spawn(answers(from_server, to_client, shared.clone(), cut, is_cut));
            }
        });
        Self { url: format!("{}?sslmode=disable", url.replace(url.split('@').nth(1).unwrap().split('/').next().unwrap(), &here)), fault, sent }
    }

    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// How many messages of each type the clients have sent.
    pub fn sent(&self) -> BTreeMap<char, u32> {
        self.sent.borrow().clone()
    }

    /// Waits until one more of a type has been sent than in `before`.
    pub async fn one_more(&mut self, kind: char, before: &BTreeMap<char, u32>) {
        let seen = before.get(&kind).copied().unwrap_or(0);
        self.sent.wait_for(|now| now.get(&kind).copied().unwrap_or(0) > seen).await.unwrap();
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fault: Arc<Mutex<Fault>>,
    count: watch::Sender<BTreeMap<char, u32>>,
    cut: watch::Sender<bool>,
    mut is_cut: watch::Receiver<bool>,
) {
    let (mut started, mut silent) = (false, false);
    loop {
        let message = tokio::select! {
            message = read_message(&mut from, started) => message,
            _ = is_cut.wait_for(|cut| *cut) => return,
        };
        let Some((kind, bytes)) = message else { return };
        started = true;
        let fault = *fault.lock().unwrap();
        silent |= fault == Fault::Silent;
        let hold = silent || (fault == Fault::HoldSync && kind == 'S');
        if fault == Fault::CutRequest && kind == 'B' {
            cut.send_replace(true);
            return;
        }
        if !hold && to.write_all(&bytes).await.is_err() {
            return;
        }
        count.send_modify(|count| *count.entry(kind).or_default() += 1);
    }
}

/// The start-up message has no type.
async fn read_message(from: &mut OwnedReadHalf, typed: bool) -> Option<(char, Vec<u8>)> {
    let mut bytes = Vec::new();
    if typed {
        bytes.push(from.read_u8().await.ok()?);
    }
    let length = from.read_u32().await.ok()?;
    bytes.extend(length.to_be_bytes());
    let start = bytes.len();
    bytes.resize(start + usize::try_from(length).unwrap() - 4, 0);
    from.read_exact(&mut bytes[start..]).await.ok()?;
    Some((if typed { char::from(bytes[0]) } else { ' ' }, bytes))
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fault: Arc<Mutex<Fault>>, cut: watch::Sender<bool>, mut is_cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = is_cut.wait_for(|cut| *cut) => return,
        };
        let Ok(length) = read else { return };
        if *fault.lock().unwrap() == Fault::CutAnswer {
            cut.send_replace(true);
        }
        if length == 0 || *cut.borrow() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
