//! A TCP proxy whose lines go dead as real ones do: without a reset. Stands before Postgres, Redis, or a frontend.

use anyhow::Context as _;
use harvest_runtime::OwnedTask;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Lines at a time, dead ones too: tests open a few hundred.
const MOST_LINES: usize = 10_000;

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// It works.
    #[default]
    None,
    /// Nothing passes either way, and nobody is told.
    Silent,
    /// What the client sends arrives; what the server says does not.
    AnswersLost,
    /// It is closed as soon as it is opened.
    Refused,
}

/// A running proxy. Its lines end with it.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: OwnedTask<()>,
}

struct Shared {
    /// Where the server is, as `host:port`.
    target: String,
    state: Mutex<State>,
    opened: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Of lines that are opened from now on.
    fault: Fault,
    lines: Vec<Arc<Line>>,
}

/// One connection. Once dead it stays so: what has forgotten a line does not remember it.
#[derive(Debug, Default)]
struct Line {
    requests_lost: AtomicBool,
    answers_lost: AtomicBool,
    cut: CancellationToken,
}

impl Line {
    fn suffer(&self, fault: Fault) {
        match fault {
            Fault::None => {}
            Fault::Silent => {
                self.requests_lost.store(true, Ordering::Relaxed);
                self.answers_lost.store(true, Ordering::Relaxed);
            }
            Fault::AnswersLost => self.answers_lost.store(true, Ordering::Relaxed),
            Fault::Refused => self.cut.cancel(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Listens on a loopback port before the server at `target`, given as `host:port`.
    ///
    /// # Errors
    /// When no port is to be had.
    pub async fn before(target: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a port for the proxy")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { target: target.to_owned(), state: Mutex::default(), opened: AtomicUsize::new(0) });
        let accepting = harvest_runtime::spawn_owned("proxy", accept(listener, shared.clone()));
        Ok(Self { address, shared, _accepting: accepting })
    }

    /// The same before the server of a URL, with the URL that leads through it.
    ///
    /// # Errors
    /// When the URL names no host with a port, or no port is to be had.
    pub async fn before_url(url: &str) -> anyhow::Result<(Self, String)> {
        let (scheme, rest) = url.split_once("://").context("a URL has a scheme")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) = authority.rsplit_once('@').map_or(("", authority), |(login, host)| (login, host));
        anyhow::ensure!(host.contains(':'), "the URL names no port");
        let proxy = Self::before(host).await?;
        let at = if login.is_empty() { String::new() } else { format!("{login}@") };
        let url = format!("{scheme}://{at}{}/{path}", proxy.address);
        Ok((proxy, url))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All lines, and those to come, suffer this.
    pub fn strike(&self, fault: Fault) {
        let mut state = self.shared.state();
        state.fault = fault;
        state.lines.iter().for_each(|line| line.suffer(fault));
    }

    /// The lines that exist suffer this; new ones work.
    pub fn strike_once(&self, fault: Fault) {
        self.strike(fault);
        self.heal();
    }

    /// New lines work again; those that are dead stay so.
    pub fn heal(&self) {
        self.shared.state().fault = Fault::None;
    }

    /// Ends all lines at once, with a reset or an end that both sides see.
    pub fn cut(&self) {
        self.strike_once(Fault::Refused);
    }

    /// How many lines have been opened so far.
    pub fn opened(&self) -> usize {
        self.shared.opened.load(Ordering::Relaxed)
    }

    /// Ends the dead lines at both ends, as keepalive of the operating systems does in the end.
    pub fn bury(&self) {
        let dead = |line: &&Arc<Line>| line.requests_lost.load(Ordering::Relaxed) || line.answers_lost.load(Ordering::Relaxed);
        self.shared.state().lines.iter().filter(dead).for_each(|line| line.cut.cancel());
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.opened.fetch_add(1, Ordering::Relaxed);
        let line = Arc::new(Line::default());
        {
            let mut state = shared.state();
            if state.fault == Fault::Refused || state.lines.len() >= MOST_LINES {
                continue;
            }
            line.suffer(state.fault);
            state.lines.push(line.clone());
        }
        drop(harvest_runtime::spawn("proxied line", carry(client, line, shared.clone())));
    }
}

/// Carries a line until both ends have left or it is cut. On a dead one neither end is told of the other's.
async fn carry(client: TcpStream, line: Arc<Line>, shared: Arc<Shared>) {
    let both = async {
        let server = TcpStream::connect(&shared.target).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, mut to_client), (from_server, mut to_server)) = (client.into_split(), server.into_split());
        // The halves that are written to live until both ends have left: dropping one would tell its end.
        tokio::try_join!(pass(from_client, &mut to_server, &line.requests_lost), pass(from_server, &mut to_client, &line.answers_lost))
    };
    tokio::select! {
        ended = both => if let Err(error) = ended {
            tracing::debug!(%error, "a proxied line broke");
        },
        () = line.cut.cancelled() => {}
    }
    shared.state().lines.retain(|other| !Arc::ptr_eq(other, &line));
}

/// Passes bytes on until the sender ends, and its end; loses all that while `lost`.
async fn pass(mut from: OwnedReadHalf, to: &mut OwnedWriteHalf, lost: &AtomicBool) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        if lost.load(Ordering::Relaxed) {
            match read {
                Ok(1..) => continue,
                Ok(0) | Err(_) => return Ok(()),
            }
        }
        match read? {
            0 => return to.shutdown().await,
            length => to.write_all(&buffer[..length]).await?,
        }
    }
}
