//! The user namespaces of pods with `hostUsers: false` (`pkg/kubelet/userns`).

mod files;
mod host;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Error, PodExt as _, PodUid, Result};
use parking_lot::Mutex;

use crate::config::{HandlerFeatures, NodeSettings, user_namespace_of_host};
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

/// Ranges are assigned in multiples of this many ids (`userNsUnitLength`).
const UNIT_LENGTH: u32 = 65_536;

/// The range of the host's ids for the user namespaces of pods. Each pod gets an equal part. The same range is used for
/// UIDs and GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserNamespaceIds {
    first: u32,
    length: u32,
    per_pod: u32,
}

impl Default for UserNamespaceIds {
    /// 65,536 ids for each pod, from all ids of the host except the first 65,536.
    fn default() -> Self {
        Self {
            first: UNIT_LENGTH,
            length: u32::MAX - UNIT_LENGTH + 1,
            per_pod: UNIT_LENGTH,
        }
    }
}

impl UserNamespaceIds {
    /// `length` ids from `first` on, `per_pod` for each pod.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] if `per_pod` is not a multiple of 65,536, if `first` or `length` is not a multiple of
    /// `per_pod`, or if the range has ids of the host itself: the first `per_pod`.
    pub fn new(first: u32, length: u32, per_pod: u32) -> Result<Self> {
        let mut problems = Vec::new();
        if per_pod == 0 || !per_pod.is_multiple_of(UNIT_LENGTH) {
            problems.push(format!(
                "{per_pod} ids for each user namespace are not a multiple of {UNIT_LENGTH}"
            ));
        } else {
            for (what, number) in [("the first id", first), ("the number of ids", length)] {
                if !number.is_multiple_of(per_pod) {
                    problems.push(format!(
                        "{what} for user namespaces, {number}, is not a multiple of {per_pod}"
                    ));
                }
            }
            if first < per_pod {
                problems.push(format!(
                    "the first id for user namespaces, {first}, is less than {per_pod}"
                ));
            }
        }
        if first.checked_add(length.saturating_sub(1)).is_none() {
            problems.push(format!(
                "the range of {length} ids from {first} on is beyond the largest id"
            ));
        }
        match problems.is_empty() {
            true => Ok(Self {
                first,
                length,
                per_pod,
            }),
            false => Err(Error::Misconfigured { problems }),
        }
    }

    /// For how many pods there are ids.
    pub fn pods(&self) -> u32 {
        self.length / self.per_pod
    }

    fn all(&self) -> Range<u64> {
        u64::from(self.first)..u64::from(self.first) + u64::from(self.length)
    }

    /// The parts for the pods.
    fn parts(self) -> impl Iterator<Item = Range<u64>> {
        let part = move |index: u32| {
            let first = u64::from(self.first) + u64::from(index) * u64::from(self.per_pod);
            first..first + u64::from(self.per_pod)
        };
        (0..self.pods()).map(part)
    }
}

/// Assigns ids to one pod after the other. The assignment is only on disk.
#[derive(Default)]
pub(crate) struct UserNamespaces {
    turn: Arc<Mutex<()>>,
}

impl UserNamespaces {
    async fn get_or_create(&self, node: &NodeSettings, uid: &PodUid) -> Result<v1::UserNamespace, String> {
        let (turn, root_dir, ids) = (self.turn.clone(), node.root_dir.clone(), node.user_namespaces);
        let uid = uid.clone();
        let ids = node.disk.run(move || {
            let _turn = turn.lock();
            files::get_or_create(&root_dir, ids, &uid)
        });
        let ids = ids
            .await
            .map_err(|error| format!("create user namespace: {error}"))?;
        let mapping = v1::IdMapping {
            host_id: ids.host_id,
            container_id: ids.container_id,
            length: ids.length,
        };
        Ok(v1::UserNamespace {
            mode: v1::NamespaceMode::Pod as i32,
            uids: vec![mapping],
            gids: vec![mapping],
        })
    }
}

impl CriRuntime {
    /// The host's user namespace, or the pod's own with its ids, which are assigned now if needed
    /// (`GetOrCreateUserNamespaceMappings`).
    pub(crate) async fn user_namespace(
        &self,
        pod: &Pod,
        handler: &Result<String, String>,
    ) -> Result<v1::UserNamespace, String> {
        if !has_user_namespace(pod) {
            return Ok(user_namespace_of_host());
        }
        let handler = handler.as_deref().map_err(String::clone)?;
        // Requests the features from the runtime if they are not known yet.
        self.handler_features(handler).await;
        let refusal = refuses_user_namespace(handler, self.handlers.lock().as_ref());
        match refusal {
            Some(refusal) => Err(refusal),
            None => self.user_namespaces.get_or_create(&self.node, &pod.uid()).await,
        }
    }
}

/// Whether the pod has its own user namespace.
pub(crate) fn has_user_namespace(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .is_some_and(|spec| spec.host_users == Some(false))
}

/// Why a pod with this handler cannot have a user namespace (`HandlerSupportsUserNamespaces`).
pub(crate) fn refuses_user_namespace(
    handler: &str,
    handlers: Option<&HashMap<String, HandlerFeatures>>,
) -> Option<String> {
    // An old runtime reports no handlers.
    let handlers = handlers.filter(|handlers| !handlers.is_empty());
    let found = handlers.map(|handlers| handlers.get(handler));
    if let Some(Some(HandlerFeatures {
        user_namespaces: true,
        ..
    })) = found
    {
        return None;
    }
    let who = match handler.is_empty() {
        true => "runtime".to_owned(),
        false => format!("RuntimeClass handler {handler:?}"),
    };
    let unknown = match found {
        Some(None) => format!(": the handler {handler:?} is not known"),
        _ => String::new(),
    };
    Some(format!(
        "can't set `spec.hostUsers: false`, {who} does not support user namespaces{unknown}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_multiples_and_never_the_hosts_own() {
        const K64: u32 = UNIT_LENGTH;
        for (first, length, per_pod, pods) in [
            (K64, 4 * K64, K64, Some(4)),
            (2 * K64, 8 * K64, 2 * K64, Some(4)),
            (K64, u32::MAX - K64 + 1, K64, Some(65_535)),
            (u32::MAX - K64 + 1, K64, K64, Some(1)),
            (0, 4 * K64, K64, None),
            (K64, 4 * K64, 2 * K64, None),
            (K64 + 1, 4 * K64, K64, None),
            (K64, 4 * K64 + 1, K64, None),
            (K64, 4 * K64, K64 - 1, None),
            (K64, 4 * K64, 0, None),
            (2 * K64, u32::MAX - K64 + 1, K64, None),
        ] {
            let ids = UserNamespaceIds::new(first, length, per_pod);
            assert_eq!(
                ids.as_ref().ok().map(UserNamespaceIds::pods),
                pods,
                "{first} {length} {per_pod}: {ids:?}"
            );
        }
        assert_eq!(
            UserNamespaceIds::default(),
            UserNamespaceIds::new(K64, u32::MAX - K64 + 1, K64).unwrap()
        );
    }

    #[test]
    fn a_handler_must_say_that_it_can() {
        let features = |user_namespaces| HandlerFeatures {
            user_namespaces,
            ..Default::default()
        };
        let handlers = HashMap::from([
            (String::new(), features(true)),
            ("old".to_owned(), features(false)),
            ("new".to_owned(), features(true)),
        ]);
        let none = HashMap::new();
        const CANNOT: &str = "can't set `spec.hostUsers: false`, ";
        for (handler, handlers, refusal) in [
            ("", Some(&handlers), None),
            ("new", Some(&handlers), None),
            (
                "old",
                Some(&handlers),
                Some("RuntimeClass handler \"old\" does not support user namespaces"),
            ),
            (
                "other",
                Some(&handlers),
                Some(
                    "RuntimeClass handler \"other\" does not support user namespaces: the handler \"other\" is not known",
                ),
            ),
            ("", Some(&none), Some("runtime does not support user namespaces")),
            ("", None, Some("runtime does not support user namespaces")),
        ] {
            let refusal = refusal.map(|refusal| format!("{CANNOT}{refusal}"));
            assert_eq!(refuses_user_namespace(handler, handlers), refusal, "{handler}");
        }
    }
}
