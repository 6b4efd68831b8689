//! `/debug/flags/v`: sets how much the agent logs (`routes.StringFlagPutHandler`).

use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;

use crate::BoxError;
use crate::body::{self, Body};

/// The longest accepted value, in bytes.
const MAX_VALUE: usize = 256;

/// Sets how much the agent logs (the kubelet's flag `-v`). The value is `4`, or any other text that your agent understands.
pub trait LogVerbosity: Send + Sync {
    /// Sets it and returns the answer: `successfully set klog.logging.verbosity to 4`.
    ///
    /// # Errors
    ///
    /// If the value is not valid. The client receives the message with status 400.
    fn set(&self, value: &str) -> Result<String, String>;
}

/// The answer to `/debug/flags/v`.
pub(crate) async fn serve(verbosity: &dyn LogVerbosity, method: &Method, sent: Body) -> Response<Body> {
    let plain = |status, text: String| {
        let text = format!("{text}\n");
        let response = body::answer(status, HeaderValue::from_static("text/plain"), text);
        body::with(response, http::header::X_CONTENT_TYPE_OPTIONS, "nosniff")
    };
    if method != Method::PUT {
        return plain(StatusCode::NOT_ACCEPTABLE, "unsupported http method".into());
    }
    let value = match read(sent).await {
        Ok(value) => value,
        Err(error) => {
            return plain(
                StatusCode::BAD_REQUEST,
                format!("error reading request body: {error}"),
            );
        }
    };
    match verbosity.set(String::from_utf8_lossy(&value).trim()) {
        Ok(answer) => body::answer(StatusCode::OK, HeaderValue::from_static("text/plain"), answer),
        Err(error) => plain(StatusCode::BAD_REQUEST, error),
    }
}

async fn read(mut sent: Body) -> Result<Vec<u8>, BoxError> {
    let mut value = Vec::new();
    while let Some(frame) = sent.frame().await {
        value.extend_from_slice(frame?.data_ref().map_or(&[], |data| data));
        if value.len() > MAX_VALUE {
            return Err("request body too large".into());
        }
    }
    Ok(value)
}
