//! The last answer of a source, kept on disk and used again while the source is silent.
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kubelet_config::{CheckpointSource, PodConfig, PodSource, SourceStatus, SourceUpdate};
use kubelet_core::{Clock, Disk, PodExt};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Far longer than any pause of the source.
const GUARD: Duration = Duration::from_secs(3600);

/// A source whose words the test says.
struct Said(mpsc::Receiver<SourceUpdate>);

impl PodSource for Said {
    fn name(&self) -> &str {
        "api"
    }

    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        ReceiverStream::new(self.0).boxed()
    }
}

struct Source {
    say: mpsc::Sender<SourceUpdate>,
    problem: BoxStream<'static, SourceUpdate>,
}

fn checkpointed(path: &Path) -> (mpsc::Sender<SourceUpdate>, CheckpointSource) {
    let (say, said) = mpsc::channel(10);
    let source = CheckpointSource::new(Said(said), path)
        .clock(Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()))
        .disk(Disk::inline());
    (say, source)
}

impl Source {
    fn new(path: &Path) -> Self {
        let (say, source) = checkpointed(path);
        let problem = Box::new(source).updates();
        Self { say, problem }
    }

    async fn say(&mut self, word: SourceUpdate) {
        self.say.send(word).await.unwrap();
    }

    /// `Snapshot(a:image,b:image)`
    async fn next(&mut self) -> String {
        let brief = |pod: &Pod| {
            let image = pod.spec.as_ref().unwrap().containers[0].image.as_deref();
            format!("{}:{}", pod.key().name, image.unwrap_or_default())
        };
        match timeout(GUARD, self.problem.next())
            .await
            .expect("a word")
            .expect("no end")
        {
            SourceUpdate::Snapshot(pods) => {
                let pods: Vec<_> = pods.iter().map(|pod| brief(pod)).collect();
                format!("Snapshot({})", pods.join(","))
            }
            SourceUpdate::Applied(pod) => format!("Applied({})", brief(&pod)),
            SourceUpdate::Deleted(uid) => format!("Deleted({uid})"),
            SourceUpdate::Unavailable { message } => format!("Unavailable({message})"),
            SourceUpdate::Available => "Available".into(),
            SourceUpdate::Problem { item, message } => format!("Problem({item}: {message})"),
            other => panic!("{other:?}"),
        }
    }

    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_secs(300), self.problem.next())
            .await
            .is_err()
    }

    /// Says it, hears it, and lets it be written.
    async fn keep(&mut self, word: SourceUpdate) {
        self.say(word).await;
        self.next().await;
        assert!(self.is_silent().await);
    }
}

fn pod(name: &str, image: &str) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2025-01-01T00:00:00Z", "labels": {}},
        "spec": {"containers": [{"name": "c", "image": image, "resources": {"limits": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn snapshot(pods: &[&Arc<Pod>]) -> SourceUpdate {
    SourceUpdate::Snapshot(pods.iter().copied().cloned().collect())
}

fn away() -> SourceUpdate {
    SourceUpdate::Unavailable {
        message: "no route".into(),
    }
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on/demand/api");
    (folder, path)
}

#[tokio::test(start_paused = true)]
async fn the_last_pods_are_restored_when_the_source_is_silent_or_unavailable() {
    let (_folder, path) = place();
    let mut first = Source::new(&path);
    first.say(away()).await;
    assert_eq!(
        first.next().await,
        "Unavailable(no route)",
        "there is nothing to restore"
    );
    let (a, b) = (pod("a", "1"), pod("b", "1"));
    first.keep(snapshot(&[&a, &b])).await;
    first.keep(SourceUpdate::Applied(pod("c", "1"))).await;
    first.keep(SourceUpdate::Applied(pod("a", "2"))).await;
    first.keep(SourceUpdate::Deleted("uid-b".into())).await;
    first.keep(SourceUpdate::Deleted("uid-unknown".into())).await;
    drop(first);

    let expected = "Snapshot(a:2,c:1)";
    for silent in [true, false] {
        let mut again = Source::new(&path);
        let start = Instant::now();
        if !silent {
            again.say(away()).await;
        }
        assert_eq!(again.next().await, expected);
        let waited = start.elapsed() >= Duration::from_secs(10);
        assert_eq!(waited, silent, "{:?}", start.elapsed());
        let why = again.next().await;
        assert!(
            why.contains("2026-01-01T00:") && why.contains("made/on/demand/api"),
            "{why}"
        );
        assert_eq!(why.contains("no route"), !silent, "{why}");
        // From here on the source's own words.
        again.say(away()).await;
        assert_eq!(again.next().await, "Unavailable(no route)");
        again.say(SourceUpdate::Available).await;
        assert_eq!(again.next().await, "Available");
        assert!(again.is_silent().await);
    }

    // A source that speaks is not spoken for.
    let mut again = Source::new(&path);
    again.keep(snapshot(&[&b])).await;
    drop(again);
    let mut again = Source::new(&path);
    assert_eq!(again.next().await, "Snapshot(b:1)");
    again.next().await;
    // Its first snapshot replaces what was restored.
    again.say(snapshot(&[])).await;
    assert_eq!(again.next().await, "Snapshot()");
    assert!(again.is_silent().await);
    drop(again.say);
    while again.problem.next().await.is_some() {}
    let mut again = Source::new(&path);
    assert_eq!(again.next().await, "Snapshot()", "no pods are an answer too");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_is_spoken_for_and_the_last_word_is_kept() {
    let (_folder, path) = place();
    let Source { say, mut problem } = Source::new(&path);
    for image in ["1", "2", "3"] {
        say.send(snapshot(&[&pod("a", image)])).await.unwrap();
    }
    drop(say);
    assert_eq!(problem.by_ref().count().await, 3);
    let Source { say, problem } = Source::new(&path);
    drop(say);
    let problem: Vec<_> = problem.collect().await;
    let [SourceUpdate::Snapshot(pods), SourceUpdate::Unavailable { .. }] = &problem[..] else {
        panic!("{problem:?}")
    };
    assert_eq!(**pods, [pod("a", "3")], "field for field");
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_written_once() {
    let (_folder, path) = place();
    let mut source = Source::new(&path);
    source.keep(snapshot(&[&pod("a", "0")])).await;
    let written = || fs::read_to_string(&path).unwrap();
    for image in 1..50 {
        source
            .say(SourceUpdate::Applied(pod("a", &image.to_string())))
            .await;
        source.next().await;
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert!(!written().contains("\"image\":\"48\""), "too often");
    assert!(source.is_silent().await);
    assert!(written().contains("\"image\":\"49\""));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_used_is_set_aside_and_said() {
    let (_folder, path) = place();
    let mut source = Source::new(&path);
    source.keep(snapshot(&[&pod("a", "1")])).await;
    drop(source);
    let good = fs::read(&path).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let cases: [(Vec<u8>, &str, &str); 11] = [
        (Vec::new(), "corrupt", "no first line"),
        (b"\n".into(), "corrupt", "first line"),
        (b"null\n".into(), "corrupt", "first line"),
        (vec![0xff; 1 << 20], "corrupt", "no first line"),
        (deep.into_bytes(), "corrupt", "no first line"),
        (
            b"{\"format\":\"other\",\"version\":1}\n".into(),
            "corrupt",
            "format is \"other\"",
        ),
        (
            b"{\"format\":\"pod-checkpoint\",\"version\":2,\"new\":{}}\n?".into(),
            "newer",
            "version is 2",
        ),
        (good[..good.len() - 1].into(), "corrupt", "bytes of"),
        (flipped, "corrupt", "checksum"),
        (
            text.replacen("\"api\"", "\"file\"", 1).into_bytes(),
            "foreign",
            "source \"file\"",
        ),
        (
            text.replacen("fnv128a:", "md5:", 1).into_bytes(),
            "corrupt",
            "checksum",
        ),
    ];
    for (content, suffix, message) in cases {
        fs::write(&path, &content).unwrap();
        let mut source = Source::new(&path);
        let problem = source.next().await;
        assert!(
            problem.starts_with(&format!("Problem({}", path.display())),
            "{problem}"
        );
        assert!(problem.contains(message), "{message}: {problem}");
        let aside = PathBuf::from(format!("{}.{suffix}", path.display()));
        assert_eq!(fs::read(&aside).unwrap(), content, "nothing is lost");
        fs::remove_file(aside).unwrap();
        assert!(!path.exists());
        source.say(away()).await;
        assert_eq!(source.next().await, "Unavailable(no route)");
        // And all goes on.
        source.keep(snapshot(&[&pod("b", "1")])).await;
        assert!(path.exists());
    }
    // What is no file at all.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let mut source = Source::new(&path);
    assert!(source.next().await.contains("not a regular file"));
    assert!(path.with_extension("corrupt").is_dir());
}

#[tokio::test(start_paused = true)]
async fn a_failing_disk_is_reported_once_and_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("file");
    fs::write(&occupied, "").unwrap();
    let path = occupied.join("checkpoint");
    let mut source = Source::new(&path);
    assert!(source.next().await.contains("Not a directory"));
    source.say(snapshot(&[&pod("a", "1")])).await;
    assert_eq!(source.next().await, "Snapshot(a:1)");
    let problem = source.next().await;
    assert!(problem.contains("cannot be saved"), "{problem}");
    source.say(snapshot(&[&pod("a", "2")])).await;
    assert_eq!(source.next().await, "Snapshot(a:2)");
    assert!(source.is_silent().await);
    // It is tried until it works.
    fs::remove_file(&occupied).unwrap();
    assert!(source.is_silent().await);
    assert!(path.exists());
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn only_its_owner_can_read_it_and_no_link_leads_astray() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let (folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, format!("{}.tmp", path.display())).unwrap();
    let mut source = Source::new(&path);
    source.keep(snapshot(&[&pod("a", "1")])).await;
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "nothing is left over"
    );
}

#[tokio::test(start_paused = true)]
async fn merged_the_restored_pods_are_the_sources_and_stale() {
    let (_folder, path) = place();
    let mut source = Source::new(&path);
    source.keep(snapshot(&[&pod("a", "1"), &pod("b", "1")])).await;
    drop(source);

    let (say, source) = checkpointed(&path);
    let config = PodConfig::builder().source(source).build().unwrap();
    let handle = config.handle();
    let (tx, mut updates) = mpsc::channel(50);
    let running = tokio::spawn(config.run(tx, CancellationToken::new()));
    let mut brief = async || {
        let update = timeout(GUARD, updates.recv()).await.unwrap().unwrap();
        let uids: Vec<_> = update.pods.iter().map(|pod| pod.uid_str().to_owned()).collect();
        format!("{} {:?}({})", update.source, update.op, uids.join(","))
    };
    assert_eq!(brief().await, "api Add(uid-a,uid-b)");
    say.send(snapshot(&[&pod("a", "1"), &pod("c", "1")]))
        .await
        .unwrap();
    assert_eq!(
        brief().await,
        "api Remove(uid-b)",
        "what the source no longer has"
    );
    assert_eq!(
        brief().await,
        "api Add(uid-c)",
        "and nothing of the one that is the same"
    );
    assert_eq!(handle.source_status("api"), SourceStatus::Ready);
    say.send(away()).await.unwrap();
    drop(say);
    running.abort();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// However a file is damaged: it is set aside or, where the damage is in nothing that counts, restored.
    #[test]
    fn no_damage_is_more_than_a_problem(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_folder, path) = place();
            let mut source = Source::new(&path);
            source.keep(snapshot(&[&pod("a", "1")])).await;
            drop(source);
            let mut content = fs::read(&path).unwrap();
            let at = at.index(content.len());
            if cut { content.truncate(at) } else { content[at] = byte }
            let same = !cut && content == fs::read(&path).unwrap();
            fs::write(&path, content).unwrap();
            let mut source = Source::new(&path);
            let problem = source.next().await;
            let whole = problem == "Snapshot(a:1)";
            assert!(whole || problem.starts_with("Problem("), "{problem}");
            assert!(whole || !same);
        });
    }

    /// Whatever a file holds.
    #[test]
    fn no_content_is_more_than_a_problem(header in arbitrary_json(), rest in ".{0,200}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_folder, path) = place();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("{header}\n{rest}")).unwrap();
            let problem = Source::new(&path).next().await;
            assert!(problem.starts_with("Problem("), "{problem}");
        });
    }
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let field = prop_oneof![
        Just("format"),
        Just("version"),
        Just("source"),
        Just("saved"),
        Just("length"),
        Just("checksum")
    ];
    let value = prop_oneof![
        any::<i64>().prop_map(Value::from),
        Just(json!("pod-checkpoint")),
        Just(json!("api")),
        Just(json!(1)),
        Just(Value::Null),
        Just(json!([])),
    ];
    prop::collection::vec((field, value), 0..7).prop_map(|fields| {
        fields
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    })
}
