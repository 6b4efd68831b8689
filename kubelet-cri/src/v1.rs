//! The messages of CRI v1 (protobuf package `runtime.v1`) as of Kubernetes 1.36.
//!
//! The names are those of the protocol in Rust's spelling: `PodSandboxState.SANDBOX_READY` is
//! [`PodSandboxState::SandboxReady`], and the field `CDI_devices` is `cdi_devices`. A field with an enum is an `i32`, so
//! that an unknown number is preserved. Read it with the getter of the same name (`status.state()`), and write it with
//! `as i32`. Maps are `BTreeMap`s, so that equal messages have equal bytes.

use std::fmt;

#[rustfmt::skip]
#[allow(missing_docs, clippy::all)]
mod messages;

#[cfg(feature = "client")]
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_client;

#[cfg(feature = "server")]
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_server;

pub use messages::*;

/// The largest message either way, in bytes: the kubelet's `maxMsgSize`.
#[cfg(any(feature = "client", feature = "server"))]
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Prints which credentials are set, never their values: requests are logged.
impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = |value: &str| if value.is_empty() { "" } else { "[REDACTED]" };
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &secret(&self.password))
            .field("auth", &secret(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &secret(&self.identity_token))
            .field("registry_token", &secret(&self.registry_token))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_printed() {
        let request = PullImageRequest {
            auth: Some(AuthConfig {
                username: "joe".into(),
                password: "secret-1".into(),
                auth: "secret-2".into(),
                identity_token: "secret-3".into(),
                registry_token: "secret-4".into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let text = format!("{request:?}");
        assert!(text.contains("joe") && !text.contains("secret"), "{text}");
    }
}
