//! The endpoints of the server, one file each.

pub(crate) mod checkpoint;
pub(crate) mod container_logs;
pub(crate) mod debug_flags;
pub(crate) mod encoded_pods;
pub(crate) mod healthz;
pub(crate) mod log_options;
pub(crate) mod metrics;
pub(crate) mod pods;
pub(crate) mod pprof;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod zpages;

use kubelet_core::PodKey;

/// The parts of a path below the root of its endpoint: `/exec/NAMESPACE/POD[/UID]/CONTAINER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerPath {
    pub(crate) pod: PodKey,
    pub(crate) uid: Option<String>,
    pub(crate) container: String,
}

impl ContainerPath {
    /// The parts of a path; `None` if there are too few or too many.
    pub(crate) fn parse(path: &str, with_uid: bool) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
        let (namespace, name, uid, container) = match *parts {
            [namespace, name, container] => (namespace, name, None, container),
            [namespace, name, uid, container] if with_uid => (namespace, name, Some(uid), container),
            _ => return None,
        };
        Some(Self {
            pod: PodKey::new(namespace, name),
            uid: uid.map(str::to_owned),
            container: container.to_owned(),
        })
    }
}

/// The values of a parameter of the query, decoded.
pub(crate) fn parameters<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let pairs = query
        .split('&')
        .filter(|pair| !pair.contains(';') && has_valid_escapes(pair));
    let pairs = pairs.flat_map(|pair| form_urlencoded::parse(pair.as_bytes()));
    pairs
        .filter(move |(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// Go drops a parameter with an escape that is not valid.
fn has_valid_escapes(pair: &str) -> bool {
    pair.split('%').skip(1).all(|rest| {
        rest.as_bytes()
            .get(..2)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The first value of a parameter of the query.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    parameters(query, name).next()
}
