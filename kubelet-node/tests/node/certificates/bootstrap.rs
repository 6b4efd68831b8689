//! From a token to a certificate.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::Node;
use kube_client::Api;
use kube_client::api::PostParams;
use kubelet_core::Disk;
use kubelet_node::certificate::self_signed_serving_certificate;
use kubelet_node::{Error, Finding, LocalNode, MachineInfo, NodeConfig};
use kubelet_testing::api_server::ApiServerBuilder;
use kubelet_testing::eventually;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::rig::{NODE, Rig, Running};

#[tokio::test(start_paused = true)]
async fn a_token_becomes_a_certificate() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    let running = rig.run().await;
    assert!(running.certificates.current().is_none());
    let certificate = running.next().await;
    assert_eq!(certificate.common_name(), "system:node:node-1");
    assert_eq!(certificate.organizations(), ["system:nodes"]);

    let request = rig.request();
    let name = request.metadata.name.unwrap();
    assert!(
        name.starts_with("node-csr-") && name.len() == "node-csr-".len() + 43,
        "{name}"
    );
    assert_eq!(
        request.spec.signer_name,
        "kubernetes.io/kube-apiserver-client-kubelet"
    );
    assert_eq!(request.spec.usages.unwrap(), ["digital signature", "client auth"]);
    assert_eq!(request.spec.username.unwrap(), "system:bootstrap:abcdef");
    assert_eq!(request.spec.expiration_seconds, None);
    let create = format!("create certificatesigningrequests {name}");
    rig.server
        .calls()
        .assert_exactly([&*create, "list certificatesigningrequests"]);

    // What is on disk is what a kubelet leaves.
    let current = rig.pki().join("kubelet-client-current.pem");
    let file = rig.pki().join("kubelet-client-2026-01-01-00-00-00.pem");
    assert_eq!(fs::read_link(&current).unwrap(), file);
    assert_eq!(certificate.file(), Some(&*file));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut left: Vec<_> = fs::read_dir(rig.pki())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, [file.file_name().unwrap(), current.file_name().unwrap()]);
    let kubeconfig = fs::read_to_string(rig.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains(&format!("client-certificate: \"{}\"", current.display())),
        "{kubeconfig}"
    );
    assert!(
        kubeconfig.contains("server: \"https://10.0.0.1:6443\""),
        "{kubeconfig}"
    );

    // The client is the node now.
    let nodes: Api<Node> = Api::all(running.client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    running.end().await;

    // The next start needs no bootstrap kubeconfig, and sends no request.
    fs::remove_file(rig.bootstrap_kubeconfig()).unwrap();
    rig.server.calls().clear();
    let running = rig.run().await;
    assert_eq!(
        running.certificates.current().unwrap().chain_pem(),
        certificate.chain_pem()
    );
    rig.sleep(3600).await;
    rig.server.calls().assert_exactly([""; 0]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_before_the_first_certificate_waits_for_it() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    let running = rig.run().await;
    let nodes: Api<Node> = Api::all(running.client.clone());
    let asked = tokio::spawn(async move {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
        nodes.create(&PostParams::default(), &node).await
    });
    eventually!(running.certificates.pending(), |pending| pending.is_some());
    rig.sleep(60).await;
    assert!(!asked.is_finished());
    rig.decide(&rig.request(), "Approved").await;
    asked.await.unwrap().unwrap();
    let calls = rig.server.calls().all();
    let unknown = calls.iter().filter(|call| call.user == "system:anonymous");
    assert_eq!(unknown.count(), 0, "{calls:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_preflight_finds_the_request_that_waits() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    let local = LocalNode::builder(NodeConfig::new(NODE), MachineInfo::new(2, 4 << 30)).build();
    let waiting = async || {
        let findings = rig.access().preflight(&local, false).await.unwrap();
        findings.into_iter().find_map(|finding| match finding {
            Finding::CertificatePending { name, .. } | Finding::CertificateRefused { name, .. } => Some(name),
            _ => None,
        })
    };
    assert_eq!(waiting().await, None);
    let running = rig.run().await;
    eventually!(running.certificates.pending(), |pending| pending.is_some());
    assert_eq!(waiting().await, rig.request().metadata.name);
    running.end().await;
    assert_eq!(waiting().await, rig.request().metadata.name);
    rig.decide(&rig.request(), "Denied").await;
    assert_eq!(waiting().await, rig.request().metadata.name);
    fs::write(rig.pki().join("kubelet-client.key.tmp"), "no key").unwrap();
    assert_eq!(waiting().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_the_request_it_made() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    for _ in 0..3 {
        let running = rig.run().await;
        eventually!(running.certificates.pending(), |pending| pending.is_some());
        running.end().await;
    }
    let running = rig.run().await;
    eventually!(running.certificates.pending(), |pending| pending.is_some());
    let pending = running.certificates.pending().unwrap();
    let request = rig.request();
    assert_eq!(Some(pending.name), request.metadata.name);
    rig.sleep(20 * 60).await;
    assert!(
        running
            .certificates
            .last_error()
            .unwrap()
            .contains("was not approved and issued within 900s")
    );
    rig.decide(&request, "Approved").await;
    let certificate = running.next().await;
    assert!(certificate.not_before() < rig.clock.now());
    assert_eq!(running.certificates.pending(), None);
    assert_eq!(running.certificates.last_error(), None);
    rig.request();
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_and_stays_until_the_request_is_deleted() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    let running = rig.run().await;
    eventually!(running.certificates.pending(), |pending| pending.is_some());
    let request = rig.request();
    rig.decide(&request, "Denied").await;
    rig.sleep(600).await;
    let error = running.certificates.last_error().unwrap();
    assert!(
        error.ends_with("is denied, reason: Somebody, message: said so"),
        "{error}"
    );
    assert_eq!(rig.request().metadata.uid, request.metadata.uid);

    let name = request.metadata.name.unwrap();
    rig.server
        .delete::<k8s_openapi::api::certificates::v1::CertificateSigningRequest>("", &name)
        .unwrap();
    eventually!(rig.requests().len(), |requests| *requests == 1);
    let again = rig.request();
    assert_eq!(again.metadata.name, Some(name), "the key is the same");
    rig.decide(&again, "Approved").await;
    running.next().await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_is_left_behind() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    let running = rig.run().await;
    eventually!(running.certificates.pending(), |pending| pending.is_some());
    let failed = rig.request();
    rig.decide(&failed, "Failed").await;
    eventually!(rig.requests().len(), |requests| *requests == 2);
    let other = rig
        .requests()
        .into_iter()
        .find(|r| r.metadata.name != failed.metadata.name)
        .unwrap();
    rig.decide(&other, "Approved").await;
    running.next().await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_ends_the_agent_after_five_minutes() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    rig.write_bootstrap_kubeconfig("bad");
    let started = rig.clock.now();
    let error = rig.run().await.ended().await.unwrap_err();
    let Error::NoValidCertificate { last_error, .. } = &error else {
        panic!("{error}")
    };
    assert!(
        last_error.contains("create certificatesigningrequest") && last_error.contains("forbidden"),
        "{error}"
    );
    let lived = rig.clock.now().duration_since(started).as_secs();
    assert!((300..=320).contains(&lived), "{lived} s");
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_it_goes_on() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    rig.server.stop();
    let running = rig.run().await;
    rig.sleep(3600).await;
    assert!(running.certificates.last_error().is_some());
    rig.server.restart(kubelet_testing::api_server::Memory::Kept);
    running.next().await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_over_is_asked_for_anew() {
    let rig = Rig::new(|server| {
        server
            .sign_certificates()
            .signing_duration(std::time::Duration::from_secs(3600))
    });
    let running = rig.run().await;
    let first = running.next().await;
    running.end().await;
    rig.sleep(2 * 3600).await;
    let running = rig.run().await;
    assert!(running.certificates.current().is_none());
    // Who asks at once waits for the new one.
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
    let nodes: Api<Node> = Api::all(running.client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let second = running.certificates.current().unwrap();
    assert!(second.not_after() > first.not_after());
    assert_eq!(rig.requests().len(), 2);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_rotation_the_first_certificate_is_waited_for() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    rig.bootstrap().run().await.unwrap();
    let first = rig.store().current().unwrap();
    assert!(rig.kubeconfig().exists());
    // It is good: nothing is done.
    rig.bootstrap().run().await.unwrap();
    assert_eq!(rig.store().current().unwrap().chain_pem(), first.chain_pem());
    rig.request();

    let access = rig.access().rotate_certificates(false).open().await.unwrap();
    assert!(access.certificates().is_none());
    let nodes: Api<Node> = Api::all(access.client());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_rotation_its_files_are_read_anew() {
    let rig = Rig::new(|server| server.sign_certificates().record_reads());
    rig.bootstrap().run().await.unwrap();
    let access = rig.access().rotate_certificates(false).open().await.unwrap();
    let (client, shutdown) = (access.client(), CancellationToken::new());
    let running = tokio::spawn(access.run(shutdown.clone()));
    let nodes: Api<Node> = Api::all(client);
    let asks = async || {
        let _ = nodes.get(NODE).await;
        rig.server.calls().all().last().unwrap().user.clone()
    };
    assert_eq!(asks().await, format!("system:node:{NODE}"));

    // Somebody puts another certificate there, of whatever name.
    let pem = rig.store().current_path();
    let other = self_signed_serving_certificate(rig.pki(), "other", rig.clock, Disk::inline());
    let other = other.await.unwrap();
    fs::write(&pem, format!("{}{}", other.chain_pem(), other.key_pem())).unwrap();
    assert_eq!(asks().await, format!("system:node:{NODE}"));
    rig.sleep(301).await;
    assert!(asks().await.starts_with("other@"), "{}", asks().await);

    // Half of one is none.
    fs::write(&pem, other.chain_pem()).unwrap();
    rig.sleep(301).await;
    assert!(asks().await.starts_with("other@"), "{}", asks().await);
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_rotation_what_became_of_it_is_told() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    let error = rig.bootstrap().run().await.unwrap_err();
    assert!(
        matches!(&error, Error::CertificateNotIssued { name, waited }
        if name.starts_with("node-csr-") && waited.as_secs() == 3600),
        "{error}"
    );
    rig.decide(&rig.request(), "Denied").await;
    let error = rig.bootstrap().run().await.unwrap_err();
    assert!(
        matches!(&error, Error::CertificateDenied { reason, .. } if reason == "Somebody"),
        "{error}"
    );
    rig.write_bootstrap_kubeconfig("bad");
    let error = rig.bootstrap().run().await.unwrap_err();
    assert!(matches!(&error, Error::Api { .. }), "{error}");
    assert!(!rig.kubeconfig().exists());
}

#[tokio::test(start_paused = true)]
async fn an_administrators_kubeconfig_is_left_at_once() {
    let rig = Rig::new(ApiServerBuilder::sign_certificates);
    let running = rig.run().await;
    let certificate = running.next().await;
    running.end().await;
    // A kubeconfig with a certificate and key in it.
    fs::remove_dir_all(rig.pki()).unwrap();
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let kubeconfig = fs::read_to_string(rig.bootstrap_kubeconfig()).unwrap().replace(
        "{token: good}",
        &format!(
            "{{client-certificate-data: {}, client-key-data: {}}}",
            encode(certificate.chain_pem()),
            encode(certificate.key_pem())
        ),
    );
    fs::write(rig.kubeconfig(), kubeconfig).unwrap();
    let access = rig.access_without_bootstrap().open().await.unwrap();
    let running = Running::start(access);
    assert_eq!(
        running.certificates.current().unwrap().chain_pem(),
        certificate.chain_pem()
    );
    let next = running.next().await;
    assert_ne!(next.chain_pem(), certificate.chain_pem());
    assert_eq!(rig.store().current().unwrap().chain_pem(), next.chain_pem());
    running.end().await;
}
