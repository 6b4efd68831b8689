//! A server that keeps its objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{StreamExt as _, TryStreamExt as _, poll};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube_client::{Api, ResourceExt as _};
use kubelet_apiserver::{ApiServer, Error, FileStorage, Storage, User};
use kubelet_core::Clock;
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{create, pod, pod_of, pods, refusal, version};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An open server, and what writes its changes.
struct Kept {
    server: ApiServer,
    writing: JoinHandle<Result<(), Error>>,
    stop: CancellationToken,
}

impl Kept {
    fn run(server: ApiServer) -> Self {
        let stop = CancellationToken::new();
        let (running, token) = (server.clone(), stop.clone());
        let writing = tokio::spawn(async move { running.run(token).await });
        Self {
            server,
            writing,
            stop,
        }
    }

    async fn on(path: &Path) -> Self {
        let storage = Arc::new(FileStorage::open(path).unwrap());
        Self::run(
            ApiServer::builder()
                .sign_certificates()
                .open(storage)
                .await
                .unwrap(),
        )
    }

    /// Ends without a shutdown, as `kill -9` does.
    async fn kill(self) {
        self.writing.abort();
        drop(self.writing.await);
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api.redb");
    let kept = Kept::on(&file).await;
    let api = pods(&kept.server);
    let first = create(&api, "first").await;
    create(&api, "second").await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"changed": "yes"}}}));
    let changed = api.patch("first", &PatchParams::default(), &patch).await.unwrap();
    api.delete("second", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let names: Api<Namespace> = Api::all(kept.server.client());
    let name = serde_json::from_value(json!({"metadata": {"name": "mine"}})).unwrap();
    names.create(&PostParams::default(), &name).await.unwrap();
    let newest = kept.server.resource_version();
    drop((api, names));
    kept.kill().await;

    let kept = Kept::on(&file).await;
    let api = pods(&kept.server);
    let found = api.get("first").await.unwrap();
    assert_eq!(found, changed);
    assert_eq!(found.uid(), first.uid());
    assert_eq!(refusal(api.get("second").await).0, 404);
    assert!(
        kept.server
            .get::<ServiceAccount>("mine", "default")
            .unwrap()
            .is_some()
    );

    // Versions go on growing, and watches from before begin anew.
    let next = create(&api, "third").await;
    assert!(version(&next).parse::<u64>().unwrap() > newest + 1000);
    for old in [version(&first), version(&changed), newest.to_string()] {
        let params = WatchParams::default().timeout(1);
        let events: Vec<_> = api
            .watch(&params, &old)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert!(
            matches!(&events[..], [WatchEvent::Error(gone)] if gone.code == 410),
            "{old}: {events:?}"
        );
        let exact = ListParams::default()
            .at(&old)
            .matching(kube_client::api::VersionMatch::Exact);
        assert_eq!(refusal(api.list(&exact).await).0, 410);
    }
    kept.stop.cancel();
    kept.writing.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_file_is_for_one_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api.redb");
    let _open = FileStorage::open(&file).unwrap();
    assert!(matches!(FileStorage::open(&file), Err(Error::Storage { .. })));
    assert!(matches!(
        FileStorage::open(dir.path().join("no/such/folder")),
        Err(Error::Storage { .. })
    ));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let other = dir.path().join("other");
    std::fs::write(&other, "something else").unwrap();
    assert!(matches!(FileStorage::open(&other), Err(Error::Storage { .. })));
    // What a killed agent left before its file was whole.
    std::fs::write(dir.path().join("new.redb.new"), vec![0; 4096]).unwrap();
    FileStorage::open(dir.path().join("new.redb")).unwrap();
}

/// A disk that writes when it is told to.
#[derive(Debug, Default)]
struct SlowDisk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<String, Vec<u8>>,
    is_stuck: bool,
    failures: usize,
    /// How many writes have come while it was stuck.
    waiting: usize,
}

impl Storage for SlowDisk {
    fn load(&self) -> Result<Vec<(String, Vec<u8>)>, BoxError> {
        Ok(self.state.lock().entries.clone().into_iter().collect())
    }

    fn write(&self, entries: &BTreeMap<String, Option<Vec<u8>>>) -> Result<(), BoxError> {
        let mut state = self.state.lock();
        state.waiting += usize::from(state.is_stuck);
        self.changed.wait_while(&mut state, |state| state.is_stuck);
        if state.failures > 0 {
            state.failures -= 1;
            return Err("no space left on device".into());
        }
        for (name, value) in entries {
            match value {
                Some(value) => drop(state.entries.insert(name.clone(), value.clone())),
                None => drop(state.entries.remove(name)),
            }
        }
        Ok(())
    }
}

impl SlowDisk {
    fn set_stuck(&self, is_stuck: bool) {
        self.state.lock().is_stuck = is_stuck;
        self.changed.notify_all();
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_or_shown_before_it_is_written() {
    let disk = Arc::new(SlowDisk::default());
    let kept = Kept::run(ApiServer::builder().open(disk.clone()).await.unwrap());
    let api = pods(&kept.server);
    let maps: Api<ConfigMap> = Api::default_namespaced(kept.server.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "gone"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let before = version(&create(&api, "a").await);
    let mut watch = api.watch(&WatchParams::default(), &before).await.unwrap().boxed();

    disk.set_stuck(true);
    let (params, second) = (PostParams::default(), pod("b"));
    let mut creating = pin!(api.create(&params, &second));
    while kept.server.get::<Pod>("default", "b").unwrap().is_none() {
        assert!(poll!(creating.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(poll!(creating.as_mut()).is_pending());
    assert!(poll!(watch.next()).is_pending());
    // Nor does anybody else see it, not even in an error.
    let list = ListParams::default();
    let mut getting = pin!(api.get("b"));
    let mut listing = pin!(api.list(&list));
    let mut again = pin!(api.create(&params, &second));
    kept.server.delete::<ConfigMap>("default", "gone").unwrap();
    let mut gone = pin!(maps.get("gone"));
    // A watch from now on has it, and gets it once.
    let now = kept.server.resource_version().to_string();
    let watching = WatchParams::default();
    let mut later = pin!(api.watch(&watching, &now));
    let mut all = pin!(api.watch(&watching, "0"));
    for _ in 0..100 {
        assert!(poll!(getting.as_mut()).is_pending());
        assert!(poll!(listing.as_mut()).is_pending());
        assert!(poll!(again.as_mut()).is_pending());
        assert!(poll!(gone.as_mut()).is_pending());
        assert!(poll!(later.as_mut()).is_pending());
        assert!(poll!(all.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }

    // The disk fails for a while, and nothing is lost.
    disk.state.lock().failures = 1;
    disk.set_stuck(false);
    creating.await.unwrap();
    let mut later = later.await.unwrap().boxed();
    let mut all = all.await.unwrap().boxed();
    assert_eq!(getting.await.unwrap().name_any(), "b");
    assert_eq!(listing.await.unwrap().items.len(), 2);
    assert_eq!(refusal(again.await).0, 409);
    assert_eq!(refusal(gone.await).0, 404);
    create(&api, "c").await;
    let mut next = async |expected: &str| match watch.try_next().await.unwrap() {
        Some(WatchEvent::Added(pod)) => assert_eq!(pod.name_any(), expected),
        other => panic!("{other:?}"),
    };
    next("b").await;
    next("c").await;
    assert!(matches!(later.try_next().await.unwrap(), Some(WatchEvent::Added(pod)) if pod.name_any() == "c"));
    for expected in ["a", "b", "c"] {
        let event = all.try_next().await.unwrap();
        assert!(
            matches!(&event, Some(WatchEvent::Added(pod)) if pod.name_any() == expected),
            "{event:?}"
        );
    }
    assert!(disk.state.lock().entries.contains_key("pods/default/c"));
}

#[tokio::test]
async fn a_writer_that_was_dropped_loses_nothing() {
    let disk = Arc::new(SlowDisk::default());
    let kept = Kept::run(ApiServer::builder().open(disk.clone()).await.unwrap());
    let (server, api) = (kept.server.clone(), pods(&kept.server));
    create(&api, "a").await;
    disk.set_stuck(true);
    let creating = tokio::spawn(async move { create(&api, "b").await });
    // The batch is with the disk.
    while disk.state.lock().waiting == 0 {
        tokio::task::yield_now().await;
    }
    kept.kill().await;
    let kept = Kept::run(server);
    disk.state.lock().failures = 1;
    disk.set_stuck(false);
    creating.await.unwrap();
    assert!(disk.state.lock().entries.contains_key("pods/default/b"));
    drop(kept);
}

#[tokio::test]
async fn a_revision_is_used_once_although_nothing_was_written() {
    let disk = Arc::new(SlowDisk::default());
    let mut newest = 0;
    for _ in 0..3 {
        let server = ApiServer::builder().open(disk.clone()).await.unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "lost"}})).unwrap();
        let first = server.create(&map).unwrap().metadata.resource_version.unwrap();
        let first: u64 = first.parse().unwrap();
        assert!(newest < first, "{newest} {first}");
        newest = server.resource_version();
    }
}

#[tokio::test]
async fn writes_what_is_left_when_it_ends() {
    let disk = Arc::new(SlowDisk::default());
    let kept = Kept::run(ApiServer::builder().open(disk.clone()).await.unwrap());
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "late"}})).unwrap();
    kept.server.create(&map).unwrap();
    kept.stop.cancel();
    kept.writing.await.unwrap().unwrap();
    assert!(disk.state.lock().entries.contains_key("configmaps/default/late"));
}

#[tokio::test]
async fn ends_while_the_disk_fails_and_names_what_is_lost() {
    let disk = Arc::new(SlowDisk::default());
    let kept = Kept::run(ApiServer::builder().open(disk.clone()).await.unwrap());
    create(&pods(&kept.server), "a").await;
    disk.state.lock().failures = usize::MAX;
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "late"}})).unwrap();
    kept.server.create(&map).unwrap();
    kept.stop.cancel();
    let error = kept.writing.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "storage does not have the last changes of configmaps/default/late: no space left on device"
    );
    // The next one writes it.
    disk.state.lock().failures = 0;
    kept.stop.cancel();
    kept.server.run(kept.stop).await.unwrap();
    assert!(disk.state.lock().entries.contains_key("configmaps/default/late"));
}

#[tokio::test(start_paused = true)]
async fn old_events_are_removed() {
    let start = Timestamp::constant(1_767_225_600, 0);
    let disk = Arc::new(SlowDisk::default());
    let builder = ApiServer::builder().clock(Clock::starting_at(start));
    let kept = Kept::run(builder.open(disk.clone()).await.unwrap());
    let event = |name: &str, last: &str| -> Event {
        let about = json!({"namespace": "default", "name": "web", "kind": "Pod"});
        let event = json!({"metadata": {"name": name, "namespace": "default"}, "involvedObject": about, "lastTimestamp": last});
        serde_json::from_value(event).unwrap()
    };
    kept.server.create(&event("old", "2026-01-01T00:00:00Z")).unwrap();
    kept.server
        .create(&event("recurs", "2026-01-01T01:00:00Z"))
        .unwrap();
    let names = || {
        kept.server
            .list::<Event>()
            .unwrap()
            .iter()
            .map(|event| event.name_any())
            .collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(59 * 60)).await;
    assert_eq!(names(), ["old", "recurs"]);
    tokio::time::sleep(Duration::from_secs(3 * 60)).await;
    assert_eq!(names(), ["recurs"]);
}

#[tokio::test]
async fn keeps_its_authority_and_signs_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api.redb");
    let kept = Kept::on(&file).await;
    let authority = kept.server.certificate_authority().unwrap().to_owned();
    let token = kept.server.token_for(User::admin());
    assert_ne!(token, kept.server.token_for(User::node("one")));
    kept.kill().await;
    let kept = Kept::on(&file).await;
    assert_eq!(kept.server.certificate_authority(), Some(authority.as_str()));
    assert_eq!(kept.server.token_for(User::admin()), token);
    let other = Kept::on(&dir.path().join("other.redb")).await;
    assert_ne!(other.server.certificate_authority(), Some(authority.as_str()));
    assert_ne!(other.server.token_for(User::admin()), token);
    let map = kept
        .server
        .get::<ConfigMap>("default", "kube-root-ca.crt")
        .unwrap()
        .unwrap();
    assert_eq!(map.data.unwrap()["ca.crt"], authority);

    let accounts: Api<ServiceAccount> = Api::default_namespaced(kept.server.client());
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let granted = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap();
    let token = granted.status.unwrap().token.unwrap();
    let reviews: Api<TokenReview> = Api::all(kept.server.client());
    let accepts = async |token: &str| {
        let review = serde_json::from_value(json!({"spec": {"token": token}})).unwrap();
        let review = reviews.create(&PostParams::default(), &review).await.unwrap();
        review.status.unwrap().authenticated.unwrap_or_default()
    };
    assert!(accepts(&token).await);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    let changed = URL_SAFE_NO_PAD.encode(claims.replace(":default:default", ":kube-system:default"));
    for forged in [
        format!("{header}.{changed}.{signature}"),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode("unsigned")),
        format!("{signed}."),
        signed.to_owned(),
    ] {
        assert!(!accepts(&forged).await, "{forged}");
    }
}

#[tokio::test]
async fn binds_pods_to_the_only_node() {
    let server = ApiServer::builder()
        .bind_pods_to("one")
        .without_account_tokens()
        .build();
    let api = pods(&server);
    create(&api, "web").await;
    let web = api.get("web").await.unwrap();
    let spec = web.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("one"));
    assert!(spec.volumes.unwrap_or_default().is_empty());
    let conditions = web.status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
    );

    let mut gated = pod_of(json!({"metadata": {"name": "gated"}}));
    gated.spec.as_mut().unwrap().scheduling_gates =
        serde_json::from_value(json!([{"name": "example.com/wait"}])).unwrap();
    api.create(&PostParams::default(), &gated).await.unwrap();
    assert_eq!(api.get("gated").await.unwrap().spec.unwrap().node_name, None);
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    api.patch("gated", &PatchParams::default(), &open).await.unwrap();
    assert_eq!(
        api.get("gated").await.unwrap().spec.unwrap().node_name.as_deref(),
        Some("one")
    );
}
