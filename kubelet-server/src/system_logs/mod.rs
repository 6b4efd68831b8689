//! The logs of the node itself: files below `/var/log`, and the node log query.
//!
//! [`SystemLogs`] answers what comes to `/logs/` of a node. It serves files and folders as the kubelet does: folders as a page
//! of links, files with `Range` and `If-Modified-Since`. Symbolic links are followed, wherever they lead, as in the kubelet:
//! `/var/log/containers` consists of them.
//!
//! With [`SystemLogs::journal`], requests with a query (`?query=kubelet&tailLines=10`) get the lines of services from the
//! journal, or a service's file below `/var/log`. A query reads no more than 30 seconds. If the client goes away before,
//! `journalctl` is killed.
//!
//! ```
//! use kubelet_server::system_logs::SystemLogs;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), http::Error> {
//! let root = std::env::temp_dir();
//! let logs = SystemLogs::new(root).journal(true);
//! let (request, ()) = http::Request::get("/logs/").body(())?.into_parts();
//! let response = logs.serve("", &request).await;
//! assert_eq!(response.status(), 200);
//! # Ok(())
//! # }
//! ```

mod conditions;
mod content;
mod files;
mod journal;
mod pattern;
mod query;
mod within;

use std::path::PathBuf;

use crate::body::{self, Body};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};

use self::query::Query;

/// Serves the logs of a node.
#[derive(Clone, Debug)]
pub struct SystemLogs {
    root: PathBuf,
    journal: bool,
    command: PathBuf,
}

impl SystemLogs {
    /// Serves the files below a folder: `/var/log` on a node.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            journal: false,
            command: PathBuf::from("journalctl"),
        }
    }

    /// Whether the node log query is answered: `enableSystemLogQuery` and the gate `NodeLogQuery` of a kubelet. Without it,
    /// parameters of a request are ignored.
    pub fn journal(mut self, journal: bool) -> Self {
        self.journal = journal;
        self
    }

    /// The program that reads the journal, `journalctl` of the `PATH` by default.
    pub fn journal_command(mut self, command: impl Into<PathBuf>) -> Self {
        self.command = command.into();
        self
    }

    /// Answers a request for the logs. `logpath` is the decoded path after `/logs/`; of the request only headers, method and
    /// query count.
    ///
    /// # Cancel safety
    ///
    /// The future and the body of the answer may be dropped at any time. Dropping them kills `journalctl`.
    pub async fn serve(&self, logpath: &str, request: &Parts) -> Response<Body> {
        if self.journal {
            let query = match Query::parse(request.uri.query().unwrap_or_default()) {
                Ok(query) => query,
                Err(message) => return plain(StatusCode::BAD_REQUEST, message),
            };
            if let Some(query) = query {
                if !matches!(logpath, "" | "/") {
                    let message = "path not allowed in query mode".to_owned();
                    return plain(StatusCode::NOT_ACCEPTABLE, message);
                }
                if let Err(message) = query.validate(&self.root).await {
                    return plain(StatusCode::NOT_ACCEPTABLE, message);
                }
                return match query.file() {
                    Some(file) => files::serve(&self.root, file, request).await,
                    None => journal::serve(self.root.clone(), self.command.clone(), query, request),
                };
            }
        }
        files::serve(&self.root, logpath, request).await
    }
}

/// An error as Go's `http.Error` writes it.
fn plain(status: StatusCode, mut message: String) -> Response<Body> {
    message.push('\n');
    let mut response = Response::new(body::full(message));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests;
