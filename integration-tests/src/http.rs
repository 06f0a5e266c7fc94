//! The HTTP/JSON API, as a client without the SDK sees it.

use anyhow::Context as _;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(70);

/// The API for one tenant.
#[derive(Debug, Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    namespace: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The body; null when it is empty, a string when it is not JSON.
    pub body: Value,
    /// The body as it came.
    pub raw: String,
}

impl Answer {
    /// A text of the body, empty when it is not there.
    pub fn text(&self, field: &str) -> &str {
        self.body.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Api {
    /// The API under `base` (`http://host:port/api/harvest`).
    pub fn new(base: &str, namespace: &str) -> Self {
        Self { http: reqwest::Client::new(), base: base.to_owned(), namespace: namespace.to_owned() }
    }

    /// GET.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    /// POST of JSON.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, Some(body.to_string().into_bytes())).await
    }

    /// PATCH of JSON.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::PATCH, path, Some(body.to_string().into_bytes())).await
    }

    /// POST of any bytes.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post_bytes(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// A POST that says how long its body is and sends none of it: what a server may refuse at once. Gives the whole answer as it came.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn declare(&self, path: &str, length: usize) -> anyhow::Result<String> {
        let (host, base) = self.base.trim_start_matches("http://").split_once('/').context("a base with a path")?;
        let mut stream = TcpStream::connect(host).await?;
        let head = format!("POST /{base}{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        let read = async {
            // Until the body of the answer has come: the connection may stay open.
            while !String::from_utf8_lossy(&answer).contains("\r\n\r\n{") || !answer.ends_with(b"}") {
                if stream.read_buf(&mut answer).await? == 0 {
                    break;
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, read).await.context("no answer")??;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    async fn send(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> anyhow::Result<Answer> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method.clone(), &url).header("x-harvest-namespace", &self.namespace).timeout(PATIENCE);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let answer = request.send().await.with_context(|| format!("{method} {url}"))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("the body of {method} {url}"))?;
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone())) };
        Ok(Answer { status, body, raw: text })
    }
}
