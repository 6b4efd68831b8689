//! Mirror pods: the objects on the API server that represent static pods.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::annotations::{CONFIG_HASH, CONFIG_MIRROR};
use crate::deadline::within;
use crate::{NodeGetter, PodExt, PodKey, PodManager, PodUid, Result};

/// Creates and deletes mirror pods on the API server. Answers to the kubelet's `pod.MirrorClient`.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait MirrorClient: Send + Sync {
    /// Creates this mirror pod (see [`mirror_pod_of`]). It is no error if one with the same hash exists.
    async fn create_mirror_pod(&self, mirror: Pod) -> Result<()>;

    /// Deletes the mirror pod of this name at once (grace period 0) if it has this UID. Returns whether it was deleted.
    /// It is no error if the pod is gone or has another UID.
    async fn delete_mirror_pod(&self, key: &PodKey, uid: &PodUid) -> Result<bool>;
}

/// The mirror pod of this static pod: a copy with the static pod's hash in the annotation `kubernetes.io/config.mirror`
/// and the node as its owner.
///
/// The API server gives it a UID of its own.
pub fn mirror_pod_of(pod: &Pod, node: &Node) -> Pod {
    let mut mirror = pod.clone();
    let hash = pod.annotation(CONFIG_HASH).unwrap_or_default().to_owned();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror
}

/// Whether this mirror represents the current version of the static pod (`pod.IsMirrorPodOf`): the same name and the
/// same manifest hash.
pub fn is_mirror_pod_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.name == pod.metadata.name
        && mirror.metadata.namespace == pod.metadata.namespace
        && mirror
            .annotation(CONFIG_MIRROR)
            .is_some_and(|hash| hash == pod.annotation(CONFIG_HASH).unwrap_or_default())
}

/// The time limit of one call about a mirror pod. The static pod may be the API server itself, so its sync must not
/// wait for that.
const MIRROR_CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Keeps mirror pods up to date. By default, without an API server, there are none.
///
/// A failure is logged and retried with the next sync. A static pod runs with or without its mirror.
#[derive(Clone, Default)]
pub struct MirrorPods {
    parts: Option<(Arc<dyn MirrorClient>, Arc<dyn NodeGetter>)>,
}

impl MirrorPods {
    /// Creates mirror pods with `client`; the node owns them.
    pub fn new(client: Arc<dyn MirrorClient>, node: Arc<dyn NodeGetter>) -> Self {
        Self {
            parts: Some((client, node)),
        }
    }

    /// Creates the mirror of a static pod. A mirror that is outdated, is being deleted, or belongs to an earlier run of
    /// the pod is deleted and created again (`tryReconcileMirrorPods`).
    pub(crate) async fn reconcile(&self, pod: &Arc<Pod>, mirror: Option<&Arc<Pod>>, is_former: bool) {
        let Some((client, node)) = self.parts.as_ref().filter(|_| pod.is_static()) else {
            return;
        };
        if let Some(mirror) = mirror
            && ((is_good(mirror, pod) && !is_former) || !delete(&**client, mirror).await)
        {
            return;
        }
        let uid = pod.uid();
        let created = within("create mirror pod", Some(&uid), MIRROR_CALL_DEADLINE, async {
            let node = node.fresh_node().await?;
            if node.metadata.deletion_timestamp.is_some() {
                tracing::info!(pod = %pod.key(), %uid, "No need to create a mirror pod: the node is being deleted");
                return Ok(());
            }
            if node.metadata.uid.as_deref().unwrap_or_default().is_empty() {
                tracing::warn!(pod = %pod.key(), %uid, "No mirror pod is created: the UID of the node is not known");
                return Ok(());
            }
            tracing::info!(pod = %pod.key(), %uid, "Creating a mirror pod for static pod");
            client.create_mirror_pod(mirror_pod_of(pod, &node)).await
        });
        if let Err(error) = created.await {
            tracing::error!(pod = %pod.key(), %uid, %error, "Failed creating a mirror pod");
        }
    }

    /// Creates the mirrors of static pods whose first sync was before the node was registered
    /// (`fastStaticPodsRegistration`). The next sync may be more than a minute later, and until then the scheduler does not count them.
    pub(crate) async fn reconcile_once_registered(self, pods: PodManager) {
        let Some((_, node)) = &self.parts else { return };
        node.registered().await;
        let desired = pods.pods();
        join_all(desired.iter().map(async |pod| {
            self.reconcile(pod, pods.mirror_of(pod).as_ref(), false).await;
        }))
        .await;
    }

    /// Whether [`reconcile`](Self::reconcile) would change anything.
    pub(crate) fn lacks(&self, pod: &Pod, mirror: Option<&Arc<Pod>>) -> bool {
        self.parts.is_some() && pod.is_static() && !mirror.is_some_and(|mirror| is_good(mirror, pod))
    }

    /// Deletes the mirrors of removed static pods, and reconciles the others.
    pub(crate) async fn tend(self, orphans: Vec<Arc<Pod>>, lacking: Vec<(Arc<Pod>, Option<Arc<Pod>>)>) {
        if let Some((client, _)) = &self.parts {
            join_all(orphans.iter().map(|mirror| delete(&**client, mirror))).await;
        }
        let lacking = lacking.iter();
        join_all(lacking.map(|(pod, mirror)| self.reconcile(pod, mirror.as_ref(), false))).await;
    }
}

/// It represents the current static pod and is not being deleted.
fn is_good(mirror: &Pod, pod: &Pod) -> bool {
    !mirror.is_deleting() && is_mirror_pod_of(mirror, pod)
}

async fn delete(client: &dyn MirrorClient, mirror: &Pod) -> bool {
    let (key, uid) = (mirror.key(), mirror.uid());
    tracing::info!(pod = %key, %uid, "Deleting a mirror pod");
    let deleted = client.delete_mirror_pod(&key, &uid);
    let deleted = within("delete mirror pod", Some(&uid), MIRROR_CALL_DEADLINE, deleted).await;
    deleted.unwrap_or_else(|error| {
        tracing::error!(pod = %key, %uid, %error, "Failed deleting a mirror pod");
        false
    })
}

impl std::fmt::Debug for MirrorPods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorPods").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{API_SOURCE, CONFIG_SOURCE, FILE_SOURCE};
    use crate::{Error, FixedNode};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use parking_lot::Mutex;

    /// Notes what it was asked; each flag makes one kind of call go wrong.
    #[derive(Default)]
    struct Server {
        calls: Mutex<Vec<String>>,
        not_there: bool,
        refuses: bool,
        hangs: bool,
    }

    #[async_trait]
    impl MirrorClient for Server {
        async fn create_mirror_pod(&self, mirror: Pod) -> Result<()> {
            let hash = mirror.annotation(CONFIG_MIRROR).unwrap_or_default();
            self.calls.lock().push(format!("create {} {hash}", mirror.key()));
            match self.refuses {
                true => Err(Error::runtime("create", std::io::Error::other("refused"))),
                false => Ok(()),
            }
        }

        async fn delete_mirror_pod(&self, key: &PodKey, uid: &PodUid) -> Result<bool> {
            self.calls.lock().push(format!("delete {key} {uid}"));
            if self.hangs {
                std::future::pending::<()>().await;
            }
            match self.refuses {
                true => Err(Error::runtime("delete", std::io::Error::other("refused"))),
                false => Ok(!self.not_there),
            }
        }
    }

    fn pod(uid: &str, annotations: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.name = Some("web".into());
        pod.metadata.uid = Some(uid.into());
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pod.metadata.annotations = Some(annotations.collect());
        pod
    }

    fn static_pod(hash: &str) -> Arc<Pod> {
        Arc::new(pod("s", &[(CONFIG_SOURCE, FILE_SOURCE), (CONFIG_HASH, hash)]))
    }

    fn mirror(hash: &str) -> Pod {
        pod("m", &[(CONFIG_SOURCE, API_SOURCE), (CONFIG_MIRROR, hash)])
    }

    fn node(uid: &str, deleting: bool) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some("node-1".into());
        node.metadata.uid = Some(uid.into());
        node.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        Arc::new(node)
    }

    async fn reconciled(server: Server, node: Arc<Node>, pod: &Arc<Pod>, mirror: Option<Pod>) -> Vec<String> {
        // What the status manager says of one is an annotation here.
        let is_former = mirror
            .as_ref()
            .is_some_and(|mirror| mirror.annotation("former").is_some());
        let server = Arc::new(server);
        let mirrors = MirrorPods::new(server.clone(), Arc::new(FixedNode::new(node)));
        let mirror = mirror.map(Arc::new);
        mirrors.reconcile(pod, mirror.as_ref(), is_former).await;
        std::mem::take(&mut *server.calls.lock())
    }

    #[tokio::test(start_paused = true)]
    async fn a_mirror_is_made_when_it_is_missing_outdated_or_being_deleted() {
        let deleting = || {
            let mut mirror = mirror("1");
            mirror.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            mirror
        };
        let foreign = pod("m", &[(CONFIG_SOURCE, API_SOURCE)]);
        let former = pod(
            "m",
            &[(CONFIG_SOURCE, API_SOURCE), (CONFIG_MIRROR, "1"), ("former", "")],
        );
        let (create, delete) = ("create ns/web 1", "delete ns/web m");
        let cases: [(&str, Option<Pod>, Server, &[&str]); 9] = [
            ("missing", None, Server::default(), &[create]),
            ("good", Some(mirror("1")), Server::default(), &[]),
            (
                "outdated",
                Some(mirror("0")),
                Server::default(),
                &[delete, create],
            ),
            (
                "being deleted",
                Some(deleting()),
                Server::default(),
                &[delete, create],
            ),
            (
                "not a mirror",
                Some(foreign),
                Server::default(),
                &[delete, create],
            ),
            (
                "of a former life",
                Some(former),
                Server::default(),
                &[delete, create],
            ),
            (
                "outdated and gone",
                Some(mirror("0")),
                Server {
                    not_there: true,
                    ..Server::default()
                },
                &[delete],
            ),
            (
                "outdated, and the server is away",
                Some(mirror("0")),
                Server {
                    refuses: true,
                    ..Server::default()
                },
                &[delete],
            ),
            (
                "outdated, and the server hangs",
                Some(mirror("0")),
                Server {
                    hangs: true,
                    ..Server::default()
                },
                &[delete],
            ),
        ];
        for (case, mirror, server, expected) in cases {
            let calls = reconciled(server, node("n", false), &static_pod("1"), mirror).await;
            assert_eq!(calls, expected, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_mirror_is_made_without_a_node_to_own_it_or_of_a_pod_of_the_api_server() {
        for node in [node("", false), node("n", true)] {
            assert!(
                reconciled(Server::default(), node, &static_pod("1"), None)
                    .await
                    .is_empty()
            );
        }
        let of_api = Arc::new(pod("p", &[(CONFIG_SOURCE, API_SOURCE)]));
        assert!(
            reconciled(Server::default(), node("n", false), &of_api, None)
                .await
                .is_empty()
        );
        MirrorPods::default()
            .reconcile(&static_pod("1"), None, false)
            .await;
    }

    #[test]
    fn a_mirror_bears_the_hash_and_belongs_to_the_node() {
        let made = mirror_pod_of(&static_pod("abc"), &node("n-uid", false));
        assert!(made.is_mirror() && is_mirror_pod_of(&made, &static_pod("abc")));
        assert!(!is_mirror_pod_of(&made, &static_pod("abd")));
        let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
        let owner = (
            &*owner.api_version,
            &*owner.kind,
            &*owner.name,
            &*owner.uid,
            owner.controller,
        );
        assert_eq!(owner, ("v1", "Node", "node-1", "n-uid", Some(true)));
        assert_eq!(made.annotation(CONFIG_HASH), Some("abc"), "the others stay");
    }
}
