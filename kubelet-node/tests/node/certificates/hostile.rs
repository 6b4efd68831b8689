//! What may be found on disk that should not be.

use std::fs;
use std::path::Path;

use kubelet_core::Disk;
use kubelet_node::certificate::{CertificateManager, CertificateStore};
use kubelet_testing::api_server::ApiServerBuilder;

use super::rig::{NODE, Rig};

const CURRENT: &str = "kubelet-client-current.pem";

/// What is in the folder, and what the error says beside the file's name; empty for none.
type Case = (&'static str, fn(&Path, &str), &'static str, &'static str);

const CASES: [Case; 12] = [
    (
        "nothing",
        |dir, _| fs::remove_file(dir.join(CURRENT)).unwrap(),
        "",
        "",
    ),
    ("a good one", |_, _| {}, "", ""),
    (
        "text",
        |dir, _| write(dir, "not PEM at all"),
        CURRENT,
        "it holds no private key",
    ),
    (
        "an empty file",
        |dir, _| write(dir, ""),
        CURRENT,
        "it holds no private key",
    ),
    (
        "half of it",
        |dir, good| write(dir, &good[..good.len() / 3]),
        CURRENT,
        "it is not PEM",
    ),
    (
        "no key",
        |dir, good| write(dir, &good[..key_at(good)]),
        CURRENT,
        "it holds no private key",
    ),
    (
        "no certificate",
        |dir, good| write(dir, &good[key_at(good)..]),
        CURRENT,
        "it holds no certificate",
    ),
    (
        "a certificate of other bytes",
        |dir, good| {
            let block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
            write(dir, &(block.to_owned() + &good[key_at(good)..]));
        },
        CURRENT,
        "its certificate cannot be read",
    ),
    (
        "another's key",
        |dir, good| {
            let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
            write(dir, &(good[..key_at(good)].to_owned() + &other));
        },
        CURRENT,
        "its private key does not match its certificate",
    ),
    (
        "a link that leads nowhere",
        |dir, _| {
            fs::remove_file(dir.join(CURRENT)).unwrap();
            std::os::unix::fs::symlink(dir.join("gone.pem"), dir.join(CURRENT)).unwrap();
        },
        "",
        "",
    ),
    (
        "a folder",
        |dir, _| {
            fs::remove_file(dir.join(CURRENT)).unwrap();
            fs::create_dir(dir.join(CURRENT)).unwrap();
        },
        CURRENT,
        "directory",
    ),
    (
        "an update that a crash cut short, which is finished",
        |dir, _| fs::rename(dir.join(CURRENT), dir.join("kubelet-client-updated.pem")).unwrap(),
        "",
        "",
    ),
];

fn write(dir: &Path, text: &str) {
    fs::write(dir.join(CURRENT), text).unwrap();
}

fn key_at(text: &str) -> usize {
    text.find("-----BEGIN PRIVATE KEY-----").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_bad_store_is_named() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    let good = good(&rig).await;
    for (what, make, file, problem) in CASES {
        fresh(&rig, &good);
        make(&rig.pki(), &good);
        let store = CertificateStore::new(CertificateStore::CLIENT, rig.pki());
        let opened = CertificateManager::client(NODE, store.clone())
            .clock(rig.clock)
            .disk(Disk::inline())
            .open()
            .await;
        match opened {
            Ok(_) => assert_eq!(file, "", "{what}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!file.is_empty(), "{what}: {error}");
                assert!(error.contains(file) && error.contains(problem), "{what}: {error}");
            }
        }
    }
}

/// With a token at hand none of it stops a node.
#[tokio::test(start_paused = true)]
async fn a_bad_store_is_healed_by_a_bootstrap() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    let good = good(&rig).await;
    for (what, make, ..) in CASES.into_iter().filter(|(what, ..)| *what != "a folder") {
        for with_kubeconfig in [true, false] {
            fresh(&rig, &good);
            make(&rig.pki(), &good);
            if !with_kubeconfig {
                fs::remove_file(rig.kubeconfig()).unwrap();
            }
            // A request that was issued before is found again otherwise.
            let running = rig.run().await;
            if running.certificates.current().is_none() {
                running.next().await;
            }
            assert_eq!(
                rig.store().current().unwrap().common_name(),
                "system:node:node-1",
                "{what}"
            );
            running.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_where_the_link_should_be_is_not_overwritten() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    let good = good(&rig).await;
    fresh(&rig, &good);
    let text = fs::read_to_string(rig.pki().join(CURRENT)).unwrap();
    fs::remove_file(rig.pki().join(CURRENT)).unwrap();
    write(&rig.pki(), &text);
    let now = rig.clock.now();
    let error = rig
        .store()
        .update(good.as_bytes(), good.as_bytes(), now)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(CURRENT) && error.contains("should be a link"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(rig.pki().join(CURRENT)).unwrap(), text);
}

#[tokio::test(start_paused = true)]
async fn another_nodes_certificate_is_refused() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    good(&rig).await;
    let store = rig.store();
    let manager = CertificateManager::client("node-2", store)
        .clock(rig.clock)
        .open()
        .await;
    let error = manager.unwrap_err().to_string();
    assert!(
        error.contains("it belongs to node \"node-1\", but this is node \"node-2\""),
        "{error}"
    );
    assert!(error.contains(CURRENT), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_kubeconfig_is_named() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    for text in [
        "",
        "{",
        "apiVersion: v1\nkind: Config\ncurrent-context: missing\n",
    ] {
        fs::write(rig.kubeconfig(), text).unwrap();
        let error = rig
            .access_without_bootstrap()
            .open()
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("kubeconfig ") && error.contains("kubelet.conf"),
            "{text:?}: {error}"
        );
        // With a token it is replaced.
        rig.access().open().await.unwrap();
    }
    fs::remove_file(rig.kubeconfig()).unwrap();
    fs::write(rig.bootstrap_kubeconfig(), "{").unwrap();
    let error = rig.access().open().await.unwrap_err().to_string();
    assert!(error.contains("bootstrap-kubelet.conf"), "{error}");
}

/// The text of a good certificate and key.
async fn good(rig: &Rig) -> String {
    let running = rig.run().await;
    running.next().await;
    running.end().await;
    fs::read_to_string(rig.pki().join(CURRENT)).unwrap()
}

/// A folder with that one only, and the kubeconfig that leads there.
fn fresh(rig: &Rig, good: &str) {
    fs::remove_dir_all(rig.pki()).unwrap();
    rig.store()
        .update(good.as_bytes(), good.as_bytes(), rig.clock.now())
        .unwrap();
}
