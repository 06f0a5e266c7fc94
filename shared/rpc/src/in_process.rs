//! A network within one process: what the services of one process send each other needs no socket.

use crate::network::{Doing, Duplex, Listener, Transport};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// The host of every address here; nobody can be reached at it from elsewhere.
const HOST: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// Connections that wait to be accepted.
const BACKLOG: usize = 64;
/// Bytes on their way, in each direction of a connection.
const PIPE_BYTES: usize = 256 * 1024;

type Door = mpsc::Sender<Box<dyn Duplex>>;

/// The transport. Its ports are its own; other hosts are reached by TCP.
#[derive(Default)]
pub struct InProcess {
    doors: Arc<Mutex<BTreeMap<u16, Door>>>,
}

impl InProcess {
    fn doors(&self) -> MutexGuard<'_, BTreeMap<u16, Door>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, port: u16) -> io::Result<Accepting> {
        let mut doors = self.doors();
        doors.retain(|_, door| !door.is_closed());
        let port = if port == 0 { (1..=u16::MAX).find(|port| !doors.contains_key(port)).ok_or(io::ErrorKind::AddrNotAvailable)? } else { port };
        if doors.contains_key(&port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (door, connections) = mpsc::channel(BACKLOG);
        doors.insert(port, door);
        Ok(Accepting { address: SocketAddr::from((HOST, port)), connections })
    }
}

impl Transport for InProcess {
    fn bind(&self, listen: SocketAddr) -> Doing<'_, Box<dyn Listener>> {
        let listening = self.listen(listen.port());
        Box::pin(async move { Ok(Box::new(listening?) as Box<dyn Listener>) })
    }

    fn connect(&self, host: &str, port: u16) -> Doing<'static, Box<dyn Duplex>> {
        if host != HOST.to_string() {
            let host = host.to_owned();
            return Box::pin(async move {
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            });
        }
        let door = self.doors().get(&port).cloned();
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            door.ok_or_else(refused)?.send(Box::new(far)).await.map_err(|_| refused())?;
            Ok(Box::new(near) as Box<dyn Duplex>)
        })
    }
}

/// The connections of one port.
struct Accepting {
    address: SocketAddr,
    connections: mpsc::Receiver<Box<dyn Duplex>>,
}

impl Listener for Accepting {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Duplex>>> {
        match self.connections.poll_recv(context) {
            Poll::Ready(Some(connection)) => Poll::Ready(Ok(connection)),
            // Without its door nobody can come any more.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Channels;
    use crate::network::Network;
    use crate::server::Server;
    use tokio_util::sync::CancellationToken;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    async fn check(channels: &Channels, address: &str) -> Result<(), tonic::Status> {
        let mut client = HealthClient::new(channels.get(address).unwrap());
        client.check(HealthCheckRequest { service: String::new() }).await.map(drop)
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "servers of the test")]
    async fn services_of_one_process_reach_each_other_without_sockets_and_the_world_by_tcp() {
        let inside = Network::over(Arc::new(InProcess::default()));
        let shutdown = CancellationToken::new();
        let (first, second) =
            (Server::bind_on(&inside, "127.0.0.1:0".parse().unwrap()).await.unwrap(), Server::bind_on(&inside, "127.0.0.1:0".parse().unwrap()).await.unwrap());
        let outside = Server::bind_on(&inside.clone().listening_on_tcp(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addresses = [first.address(), second.address(), outside.address()].map(|address| format!("http://{address}"));
        assert_eq!(addresses[..2], ["http://0.0.0.0:1", "http://0.0.0.0:2"]);
        let serving = [first, second, outside].map(|server| tokio::spawn(server.serve(shutdown.clone())));
        let (near, far) = (Channels::on(inside), Channels::on(Network::tcp()));
        for address in &addresses {
            check(&near, address).await.unwrap();
        }
        check(&far, &addresses[2]).await.unwrap();
        check(&far, &addresses[0]).await.unwrap_err();
        check(&near, "http://0.0.0.0:9").await.unwrap_err();
        shutdown.cancel();
        for server in serving {
            server.await.unwrap().unwrap();
        }
        for address in &addresses {
            check(&near, address).await.unwrap_err();
        }
    }

    #[test]
    fn a_port_is_had_by_one_listener_until_it_is_dropped() {
        let network = InProcess::default();
        let first = network.listen(7).unwrap();
        assert_eq!(network.listen(7).err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        drop(first);
        network.listen(7).unwrap();
    }
}
