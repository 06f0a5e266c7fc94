//! A connection to a frontend.

use super::Global;
use super::error::CliError;
use super::output::Output;
use anyhow::Context as _;
use harvest_proto::v1::admin_service_client::AdminServiceClient;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_rpc::{ChannelOptions, Error, MAX_MESSAGE_BYTES, client, deadline, retry_until};
use harvest_runtime::{IdSource as _, SystemIds};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// A client of the public service.
pub type Workflows = WorkflowServiceClient<Channel>;
/// A client of the operators' service.
pub type Admin = AdminServiceClient<Channel>;

/// A connection to a frontend.
pub struct Connection {
    channel: Channel,
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
        Ok(Self { channel, namespace: global.namespace.clone(), output: global.output, timeout: global.timeout })
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
        let answer = retry_until(deadline, || async {
            let answer = send(deadline::request(message.clone(), deadline)).await;
            answer.map(Response::into_inner).map_err(Error::from)
        });
        Ok(answer.await?)
    }

    /// The request id of a mutating call: the one that was asked for, else a new one, which the call's own repetitions share.
    pub fn request_id(&self, asked: Option<String>) -> String {
        asked.unwrap_or_else(|| SystemIds.process_id())
    }
}
