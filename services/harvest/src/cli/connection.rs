//! A connection to a frontend.

use super::Global;
use super::error::CliError;
use super::output::Output;
use anyhow::Context as _;
use harvest_proto::v1::admin_service_client::AdminServiceClient;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_rpc::{ChannelOptions, Error, MAX_MESSAGE_BYTES, client, deadline, retry_until};
use harvest_runtime::{IdSource as _, SystemIds};
use std::cell::Cell;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::codegen::http::Uri;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// How long a server may take to show that it speaks HTTP/1.1.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// A client of the public service.
pub type Workflows = WorkflowServiceClient<Channel>;
/// A client of the operators' service.
pub type Admin = AdminServiceClient<Channel>;

/// A connection to a frontend.
pub struct Connection {
    channel: Channel,
    address: String,
    /// The tenant.
    pub namespace: String,
    /// How results are shown.
    pub output: Output,
    timeout: Duration,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// [`CliError`] when nobody listens there.
    pub async fn open(global: &Global) -> Result<Self, CliError> {
        let options = ChannelOptions { connect_timeout: global.timeout, ..ChannelOptions::default() };
        let endpoint = client::endpoint(&global.address, &options).map_err(|error| CliError::Usage(format!("--address: {}", error.message)))?;
        let channel = endpoint.connect().await.with_context(|| format!("no frontend answers at {} (--address, HARVEST_ADDRESS)", global.address))?;
        Ok(Self { channel, address: global.address.clone(), namespace: global.namespace.clone(), output: global.output, timeout: global.timeout })
    }

    /// Calls the public service, again while it is unavailable. `extra` is a wait that the call itself asks for.
    ///
    /// # Errors
    /// The fleet's refusal.
    pub async fn workflows<M: Clone, T, F>(&self, extra: Duration, message: M, send: impl Fn(Workflows, Request<M>) -> F) -> Result<T, CliError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let client = Workflows::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES);
        self.call(extra, message, |request| send(client.clone(), request)).await
    }

    /// Calls the operators' service, again while it is unavailable.
    ///
    /// # Errors
    /// The fleet's refusal.
    pub async fn admin<M: Clone, T, F>(&self, extra: Duration, message: M, send: impl Fn(Admin, Request<M>) -> F) -> Result<T, CliError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let client = Admin::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        self.call(extra, message, |request| send(client.clone(), request)).await
    }

    #[expect(clippy::disallowed_methods, reason = "deadlines of calls are counted on the runtime's own clock")]
    async fn call<M: Clone, T, F>(&self, extra: Duration, message: M, send: impl Fn(Request<M>) -> F) -> Result<T, CliError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.timeout + extra;
        let looked = Cell::new(false);
        let answer = retry_until(deadline, || async {
            let status = match send(deadline::request(message.clone(), deadline)).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            // A frontend gives its reasons as details; what has none comes from the transport, or from a server of another kind.
            if status.details().is_empty() && !looked.replace(true) && speaks_http1(&self.address).await {
                let message = format!("{} does not speak gRPC but HTTP/1.1; --address is where a frontend's gRPC listens, port 7233 unless set", self.address);
                return Err(Error::invalid("--address", message));
            }
            Err(Error::from(status))
        });
        Ok(answer.await?)
    }

    /// The request id of a mutating call: the one that was asked for, else a new one, which the call's own repetitions share.
    pub fn request_id(&self, asked: Option<String>) -> String {
        asked.unwrap_or_else(|| SystemIds.process_id())
    }
}

/// Whether HTTP/1.1 is answered at an address, which no gRPC server does.
async fn speaks_http1(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let Some(host) = uri.host() else { return false };
    let answer = async {
        let mut stream = TcpStream::connect(format!("{host}:{}", uri.port_u16().unwrap_or(80))).await?;
        stream.write_all(format!("HEAD / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut begin = [0; 5];
        stream.read_exact(&mut begin).await.map(|_| begin)
    };
    matches!(tokio::time::timeout(LOOK_TIMEOUT, answer).await, Ok(Ok(begin)) if begin == *b"HTTP/")
}
