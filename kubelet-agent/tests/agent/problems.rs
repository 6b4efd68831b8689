//! What cannot work is reported at once, and together.

use std::sync::Arc;

use kubelet_agent::{Error, NodeAgent, Settings};
use kubelet_config::credential_provider::{CredentialProvider, ServiceAccountTokenAttributes};
use kubelet_config::kubelet_configuration::GoDuration;
use kubelet_core::Clock;
use kubelet_testing::MemoryRuntime;

async fn problems(settings: Settings) -> Vec<String> {
    let runtime = Arc::new(MemoryRuntime::new(Clock::system()));
    match NodeAgent::builder(settings).containers(runtime).build().await {
        Err(Error::Misconfigured { problems }) => problems,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn all_problems_are_reported_together() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("agent");
    let mut settings = Settings::new(&root);
    settings.node_name = " ".to_owned();
    settings.configuration.allowed_unsafe_sysctls = vec!["not a sysctl".to_owned()];
    settings.configuration.static_pod_url = "not a url".to_owned();
    let mut expected = vec![
        "hostname",
        "not a sysctl",
        if cfg!(feature = "http") {
            "not a url"
        } else {
            "staticPodURL"
        },
    ];
    settings.configuration.container_log_max_size = "much".to_owned();
    expected.push("containerLogMaxSize");
    settings.configuration.enable_server = true;
    if cfg!(feature = "server") {
        settings.configuration.address = "here".to_owned();
        settings.configuration.authorization.mode = "Sometimes".to_owned();
        expected.extend([
            "address \"here\"",
            "cannot use webhook authentication",
            "unknown authorization mode Sometimes",
        ]);
    } else {
        expected.push("enableServer needs the feature `server`");
    }
    settings.configuration.healthz_port = 70_000;
    expected.push("healthzPort");
    let mut plugin = CredentialProvider {
        name: "plugin".to_owned(),
        match_images: vec!["registry.example".to_owned()],
        default_cache_duration: Some(GoDuration::default()),
        api_version: "credentialprovider.kubelet.k8s.io/v1".to_owned(),
        ..CredentialProvider::default()
    };
    plugin.token_attributes = Some(ServiceAccountTokenAttributes {
        service_account_token_audience: "registry.example".to_owned(),
        cache_type: "Pod".to_owned(),
        require_service_account: Some(true),
        ..ServiceAccountTokenAttributes::default()
    });
    settings.credential_providers.push(("/bin/sh".into(), plugin));
    expected.push("tokenAttributes.cacheType");
    let found = problems(settings).await;
    for words in &expected {
        assert!(
            found.iter().any(|problem| problem.contains(words)),
            "{words}: {found:#?}"
        );
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    assert!(!root.exists(), "nothing was done before");
}

#[tokio::test(start_paused = true)]
async fn an_agent_needs_a_source() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Arc::new(MemoryRuntime::new(Clock::system()));
    let built = NodeAgent::builder(Settings::new(folder.path()))
        .containers(runtime)
        .build()
        .await;
    let error = built.unwrap_err().to_string();
    assert!(error.contains("no pod sources"), "{error}");
}
