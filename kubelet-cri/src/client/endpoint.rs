//! Where a runtime listens.

use std::fmt;
use std::path::PathBuf;

use crate::error::Error;

/// A parsed endpoint; prints as the full URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuntimeEndpoint {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
}

impl RuntimeEndpoint {
    /// Takes `unix:///path`, an absolute path, or `tcp://host:port`.
    pub(super) fn parse(endpoint: &str) -> Result<Self, Error> {
        let refuse = |message: &str| {
            Err(Error::InvalidEndpoint {
                endpoint: endpoint.to_string(),
                message: message.to_string(),
            })
        };
        let (scheme, rest) = match endpoint.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None if endpoint.starts_with('/') => ("unix", endpoint),
            None if endpoint.is_empty() => return refuse("it is empty"),
            None => return refuse("expected unix:///path, an absolute path or tcp://host:port"),
        };
        match scheme {
            "unix" => unix(rest).or_else(refuse),
            "tcp" => tcp(rest).or_else(refuse),
            other => refuse(&format!(
                "the protocol {other:?} is not supported; use unix or tcp"
            )),
        }
    }

    /// What goes into the `:authority` of requests. For a socket it is what grpc-go sends, as some servers refuse
    /// a path there.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Unix(_) => "localhost",
            Self::Tcp(address) => address,
        }
    }
}

/// The longest path of a socket, by the size of `sockaddr_un`.
const MAX_SOCKET_PATH: usize = 107;

fn unix(path: &str) -> Result<RuntimeEndpoint, &'static str> {
    if !path.starts_with('/') {
        Err("the path of the socket must be absolute, as in unix:///run/containerd/containerd.sock")
    } else if path.ends_with('/') {
        Err("the path names a directory, not a socket")
    } else if path.contains('\0') {
        Err("the path holds a NUL byte")
    } else if path.len() > MAX_SOCKET_PATH {
        Err("the path is longer than the 107 bytes that a socket may have")
    } else {
        Ok(RuntimeEndpoint::Unix(path.into()))
    }
}

fn tcp(address: &str) -> Result<RuntimeEndpoint, &'static str> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err("the port is missing");
    };
    if host.is_empty() {
        Err("the host is missing")
    } else if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        Err("the port is not a number from 1 to 65535")
    } else if host.contains(['/', '@', ' ']) || (host.contains(':') && !is_bracketed(host)) {
        Err("the host is not valid; an IPv6 address needs brackets")
    } else {
        Ok(RuntimeEndpoint::Tcp(address.to_string()))
    }
}

fn is_bracketed(host: &str) -> bool {
    host.starts_with('[') && host.ends_with(']')
}

impl fmt::Display for RuntimeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (given, printed) in [
            (
                "unix:///run/containerd/containerd.sock",
                "unix:///run/containerd/containerd.sock",
            ),
            ("/run/crio/crio.sock", "unix:///run/crio/crio.sock"),
            ("tcp://127.0.0.1:1234", "tcp://127.0.0.1:1234"),
            ("tcp://[::1]:1234", "tcp://[::1]:1234"),
            ("tcp://runtime.example:1", "tcp://runtime.example:1"),
        ] {
            assert_eq!(RuntimeEndpoint::parse(given).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn what_is_none_is_named() {
        for (given, why) in [
            ("", "empty"),
            ("run/containerd.sock", "absolute path"),
            ("unix://run/containerd.sock", "must be absolute"),
            ("unix:///run/", "directory"),
            ("http://localhost:80", "\"http\" is not supported"),
            ("npipe:////./pipe/containerd", "\"npipe\" is not supported"),
            ("tcp://localhost", "port is missing"),
            ("tcp://:80", "host is missing"),
            ("tcp://localhost:http", "not a number"),
            ("tcp://localhost:0", "not a number"),
            ("tcp://::1:80", "brackets"),
        ] {
            let error = RuntimeEndpoint::parse(given).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(why) && text.contains(&format!("{given:?}")),
                "{text}"
            );
        }
    }
}
