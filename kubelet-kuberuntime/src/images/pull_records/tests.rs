use std::time::Duration;

use tokio::time::advance;

use super::super::Login;
use super::super::keyring::{Coordinates, Source};
use super::*;
use crate::counted::Counted;

async fn records(dir: &Path) -> PullRecords {
    let clock = Clock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
    PullRecords::load(dir, Default::default(), clock, Disk::inline()).await
}

fn files_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

async fn pull(records: &PullRecords, image: &str, image_ref: &str) {
    let pulling = records.begin(image).await.unwrap();
    pulling.ended(Some((image_ref, None))).await;
}

#[tokio::test(start_paused = true)]
async fn intents_and_records_are_files() {
    let dir = tempfile::tempdir().unwrap();
    let (pulling, pulled) = (
        dir.path().join("image_manager/pulling"),
        dir.path().join("image_manager/pulled"),
    );
    let records = records(dir.path()).await;
    assert!(
        !dir.path().join("image_manager").exists(),
        "nothing is written before a pull"
    );

    let (one, two) = (
        records.begin("a:1").await.unwrap(),
        records.begin("a:1").await.unwrap(),
    );
    // The kubelet's name of the file: the hash of `a:1`.
    let intent = "sha256-2b2c40a6706d9e5f320d553628313833e3668d8b0c8f5b0a25a2ca7d926df6d4";
    assert!(pulling.join(intent).is_file());
    assert_eq!(files_in(&pulling), 1);
    one.ended(None).await;
    assert_eq!(files_in(&pulling), 1, "the other pull is still recorded");
    two.ended(Some(("sha256:1", None))).await;
    assert_eq!((files_in(&pulling), files_in(&pulled)), (0, 1));
    assert_eq!(records.check("a:2", "sha256:1"), Known::Usable);
    assert_eq!(records.check("b:1", "sha256:1"), Known::MustPull);
    assert_eq!(
        records.check("b:1", "sha256:2"),
        Known::Usable,
        "it was not pulled"
    );

    let next = self::records(dir.path()).await;
    assert_eq!(next.check("b:1", "sha256:1"), Known::MustPull);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_lets_nobody_in() {
    let dir = tempfile::tempdir().unwrap();
    pull(&records(dir.path()).await, "a:1", "sha256:1").await;
    let pulled = dir.path().join("image_manager/pulled");
    std::fs::write(pulled.join(files::file_name("sha256:1")), "{").unwrap();
    let records = records(dir.path()).await;
    assert_eq!(records.check("a:1", "sha256:1"), Known::MustPull);
    pull(&records, "a:1", "sha256:1").await;
    assert_eq!(records.check("a:1", "sha256:1"), Known::Usable);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(dir.path()).await;
    pull(&records, "a:1", "sha256:1").await;
    pull(&records, "b:1", "sha256:2").await;
    advance(Duration::from_secs(1)).await;
    let began = Instant::now();
    advance(Duration::from_secs(1)).await;
    pull(&records, "c:1", "sha256:3").await;
    records
        .prune(&HashSet::from(["sha256:2".to_owned()]), began)
        .await;
    let left = |image_ref| records.shared.state.lock().pulled.contains_key(image_ref);
    assert_eq!(
        ["sha256:1", "sha256:2", "sha256:3"].map(left),
        [false, true, true],
        "an image that was pulled after the list is not in it"
    );
    assert_eq!(files_in(&dir.path().join("image_manager/pulled")), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_down_is_not_pulled() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("image_manager"), "a file").unwrap();
    let records = records(dir.path()).await;
    let refused = records.begin("a:1").await.err().unwrap();
    assert!(
        refused.starts_with("failed to record image pull intent: "),
        "{refused}"
    );
    assert!(!records.has_intents());
}

fn of_account(name: &str, uid: &str) -> Credentials {
    let account = Coordinates {
        uid: uid.into(),
        namespace: "ns".into(),
        name: name.into(),
    };
    Credentials {
        login: Login::default(),
        source: Some(Arc::new(Source::ServiceAccount(account))),
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_that_a_service_account_pulled_is_for_its_pods() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(dir.path()).await;
    for account in [of_account("builder", "1"), of_account("admin", "3")] {
        let pulling = records.begin("a:1").await.unwrap();
        pulling.ended(Some(("sha256:1", Some(&account)))).await;
    }
    for records in [records, self::records(dir.path()).await] {
        assert_eq!(records.check("a:1", "sha256:1"), Known::WithCredentials);
        // Tokens and the logins that come from them change.
        for (account, known) in [
            (of_account("builder", "1"), true),
            (of_account("admin", "3"), true),
            (of_account("builder", "2"), false),
            (of_account("other", "4"), false),
        ] {
            let matches = records.matches("a:1", "sha256:1", std::slice::from_ref(&account));
            assert_eq!(matches.await, known, "{account:?}");
        }
        assert!(!records.matches("a:1", "sha256:1", &[]).await);
        let mapping = &records.shared.state.lock().pulled["sha256:1"]
            .record
            .credential_mapping;
        let names = mapping["a"].kubernetes_service_accounts.iter();
        assert_eq!(
            Vec::from_iter(names.map(|it| it.name.as_str())),
            ["admin", "builder"]
        );
    }
}

#[test]
fn files_and_checks_are_counted() {
    let counted = Counted::of("kubelet_imagemanager_", async {
        let dir = tempfile::tempdir().unwrap();
        let records = records(dir.path()).await;
        pull(&records, "a:1", "sha256:1").await;
        pull(&records, "b:1", "sha256:2").await;
        let under_way = records.begin("c:1").await.unwrap();
        records.check("a:1", "sha256:1");
        records.check("b:1", "sha256:1");
        records.check("b:1", "sha256:1");
        records.check("d:1", "sha256:4");
        drop(under_way);
    });
    let expected = [
        ("image_mustpull_checks_total credentialPolicyAllowed", 1),
        ("image_mustpull_checks_total credentialRecordFound", 1),
        ("image_mustpull_checks_total mustAuthenticate", 2),
        ("ondisk_pulledrecords", 2),
        ("ondisk_pullintents", 1),
    ];
    assert_eq!(
        counted,
        expected.map(|(metric, count)| (metric.to_owned(), count))
    );
}
