//! The simulated network as the services see it.

use harvest_rpc::network::{Doing, Duplex, Listener, Network, Transport};
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use turmoil::net::{TcpListener, TcpStream};

/// The network of the host that uses it.
pub fn network() -> Network {
    Network::over(Arc::new(Turmoil))
}

struct Turmoil;

impl Transport for Turmoil {
    fn bind(&self, listen: SocketAddr) -> Doing<'_, Box<dyn Listener>> {
        Box::pin(async move {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, listen.port())).await?;
            let address = listener.local_addr()?;
            Ok(Box::new(Accepting { address, next: accept(listener) }) as Box<dyn Listener>)
        })
    }

    fn connect(&self, host: &str, port: u16) -> Doing<'static, Box<dyn Duplex>> {
        let host = host.to_owned();
        Box::pin(async move { Ok(Box::new(TcpStream::connect((host, port)).await?) as Box<dyn Duplex>) })
    }
}

type Accept = Pin<Box<dyn Future<Output = (io::Result<TcpStream>, TcpListener)> + Send>>;

fn accept(listener: TcpListener) -> Accept {
    Box::pin(async move { (listener.accept().await.map(|(stream, _)| stream), listener) })
}

struct Accepting {
    address: SocketAddr,
    next: Accept,
}

impl Listener for Accepting {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Duplex>>> {
        let (accepted, listener) = ready!(self.next.as_mut().poll(context));
        self.next = accept(listener);
        Poll::Ready(accepted.map(|stream| Box::new(stream) as Box<dyn Duplex>))
    }
}
