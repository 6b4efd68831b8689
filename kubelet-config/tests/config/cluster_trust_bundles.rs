//! The trust bundles of a cluster, by name and by signer.
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubelet_config::ClusterTrustBundleInformer;
use kubelet_core::ClusterTrustBundles;
use kubelet_testing::api_server::{ApiServer, User};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Not a certificate, but whoever reads bundles does not look inside.
fn anchor(content: &str) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", content), lines)
}

fn bundle(name: &str, signer: Option<&str>, color: &str, anchors: &[&str]) -> ClusterTrustBundle {
    let anchors: Vec<String> = anchors.iter().map(|content| anchor(content)).collect();
    let bundle = json!({"metadata": {"name": name, "labels": {"color": color}},
        "spec": {"signerName": signer, "trustBundle": format!("A comment.\n{}", anchors.concat())}});
    serde_json::from_value(bundle).unwrap()
}

fn red() -> LabelSelector {
    LabelSelector {
        match_labels: Some(BTreeMap::from([("color".to_owned(), "red".to_owned())])),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn bundles_are_merged_and_watched_from_the_first_use() {
    const SIGNER: &str = "example.com/roots";
    let server = ApiServer::builder().record_reads().build();
    server
        .create(&bundle("alone", None, "blue", &["b", "a", "b"]))
        .unwrap();
    let of_signer = |name: &str, color: &str, anchors: &[&str]| {
        let name = format!("example.com:roots:{name}");
        server
            .create(&bundle(&name, Some(SIGNER), color, anchors))
            .unwrap()
    };
    of_signer("one", "red", &["x", "y"]);
    of_signer("two", "red", &["y", "z"]);
    of_signer("three", "green", &["q"]);

    let informer = ClusterTrustBundleInformer::new(server.client_as(User::node("one")));
    let (bundles, stop) = (informer.handle(), CancellationToken::new());
    let running = tokio::spawn(informer.run(stop.clone()));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(server.calls().all().len(), 0, "nobody needs one");

    let text = |anchors: &[&str]| {
        anchors
            .iter()
            .map(|content| anchor(content))
            .collect::<String>()
            .into_bytes()
    };
    assert_eq!(bundles.by_name("alone", false).await.unwrap(), text(&["a", "b"]));
    assert_eq!(bundles.by_name("none", true).await.unwrap(), b"");
    let error = bundles.by_name("none", false).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"none\" not found"
    );
    let all = LabelSelector::default();
    let by = |selector: Option<LabelSelector>, allow| {
        let bundles = bundles.clone();
        async move { bundles.by_signer(SIGNER, selector.as_ref(), allow).await }
    };
    assert_eq!(by(Some(red()), false).await.unwrap(), text(&["x", "y", "z"]));
    assert_eq!(by(Some(all), false).await.unwrap(), text(&["q", "x", "y", "z"]));
    assert_eq!(by(None, true).await.unwrap(), b"");
    let error = by(None, false).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "combination of signerName and labelSelector matched zero ClusterTrustBundles"
    );

    // A change is reported once the handle returns it.
    let mut changes = bundles.changes().unwrap();
    assert!(!changes.has_changed().unwrap());
    of_signer("four", "red", &["w"]);
    changes.changed().await.unwrap();
    assert_eq!(by(Some(red()), false).await.unwrap(), text(&["w", "x", "y", "z"]));
    server.delete::<ClusterTrustBundle>("", "alone").unwrap();
    changes.changed().await.unwrap();
    bundles.by_name("alone", false).await.unwrap_err();
    stop.cancel();
    running.await.unwrap();
}
