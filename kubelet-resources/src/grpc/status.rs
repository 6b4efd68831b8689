//! How an error of a call is written.

use tonic::{Code, Status};

/// As grpc-go prints it, so that messages are those of the kubelet.
pub(crate) fn describe(status: &Status) -> String {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}
