//! A node without a certificate, and an API server that may give it one.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Config};
use kubelet_core::{Clock, Disk, Jitter};
use kubelet_node::Result;
use kubelet_node::certificate::{
    ApiServerAccess, ApiServerAccessBuilder, Bootstrap, Certificate, CertificateHandle, CertificateStore,
    Connect,
};
use kubelet_testing::api_server::ApiServerBuilder;
use kubelet_testing::{ApiServer, User};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NODE: &str = "node-1";

pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) clock: Clock,
    pub(crate) server: ApiServer,
}

/// An access that runs.
pub(crate) struct Running {
    pub(crate) certificates: CertificateHandle,
    pub(crate) client: kube_client::Client,
    shutdown: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Rig {
    pub(crate) fn new(server: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = server(ApiServer::builder().clock(clock).record_reads()).build();
        let rig = Rig {
            dir: tempfile::tempdir().unwrap(),
            clock,
            server,
        };
        rig.write_bootstrap_kubeconfig("good");
        rig
    }

    pub(crate) fn write_bootstrap_kubeconfig(&self, token: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://10.0.0.1:6443'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n"
        );
        fs::write(self.bootstrap_kubeconfig(), text).unwrap();
    }

    pub(crate) fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.dir.path().join("bootstrap-kubelet.conf")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubelet.conf")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.dir.path().join("pki")
    }

    pub(crate) fn store(&self) -> CertificateStore {
        CertificateStore::new(CertificateStore::CLIENT, self.pki())
    }

    /// Clients that the server knows by the certificate or token of their configuration.
    pub(crate) fn connect(&self) -> Connect {
        let server = self.server.clone();
        Arc::new(move |config: Config| {
            let user = match identity(&config) {
                Some(certificate) => {
                    let mut groups = certificate.organizations().to_vec();
                    groups.push("system:authenticated".into());
                    User {
                        name: certificate.common_name().into(),
                        groups,
                    }
                }
                None if json!(config.auth_info)["token"] == "good" => User::bootstrapper("abcdef"),
                None => User {
                    name: "system:anonymous".into(),
                    groups: vec!["system:unauthenticated".into()],
                },
            };
            Ok(server.client_as(user))
        })
    }

    /// With a bootstrap kubeconfig.
    pub(crate) fn access(&self) -> ApiServerAccessBuilder {
        self.access_without_bootstrap()
            .bootstrap_kubeconfig(self.bootstrap_kubeconfig())
    }

    pub(crate) fn access_without_bootstrap(&self) -> ApiServerAccessBuilder {
        ApiServerAccess::builder(NODE, self.kubeconfig(), self.pki())
            .connect(self.connect())
            .clock(self.clock)
            .jitter(Jitter::from_seed(1))
            .disk(Disk::inline())
    }

    pub(crate) fn bootstrap(&self) -> Bootstrap {
        Bootstrap::new(NODE, self.bootstrap_kubeconfig(), self.kubeconfig(), self.pki())
            .connect(self.connect())
            .clock(self.clock)
            .jitter(Jitter::from_seed(1))
            .disk(Disk::inline())
    }

    pub(crate) async fn run(&self) -> Running {
        Running::start(self.access().open().await.unwrap())
    }

    pub(crate) fn requests(&self) -> Vec<CertificateSigningRequest> {
        self.server.list().unwrap()
    }

    /// The only request.
    pub(crate) fn request(&self) -> CertificateSigningRequest {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    pub(crate) async fn decide(&self, request: &CertificateSigningRequest, decision: &str) {
        let requests: Api<CertificateSigningRequest> = Api::all(self.server.client());
        let condition =
            json!({"type": decision, "status": "True", "reason": "Somebody", "message": "said so"});
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let name = request.metadata.name.as_deref().unwrap();
        let params = PatchParams::default();
        match decision {
            "Failed" => requests.patch_status(name, &params, &patch).await.unwrap(),
            _ => requests.patch_approval(name, &params, &patch).await.unwrap(),
        };
    }

    pub(crate) async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

fn identity(config: &Config) -> Option<Certificate> {
    let user = json!(config.auth_info);
    let text = |field: &str| user[field].as_str().map(str::to_owned);
    let data = |field: &str| text(field).map(|text| STANDARD.decode(text).unwrap());
    let file = |field: &str| text(field).and_then(|file| fs::read(file).ok());
    let chain = data("client-certificate-data").or_else(|| file("client-certificate"))?;
    let key = data("client-key-data").or_else(|| file("client-key"))?;
    Some(Certificate::from_pem(&chain, &key, None).unwrap())
}

impl Running {
    pub(crate) fn start(access: ApiServerAccess) -> Self {
        let shutdown = CancellationToken::new();
        Running {
            certificates: access.certificates().unwrap(),
            client: access.client(),
            task: tokio::spawn(access.run(shutdown.clone())),
            shutdown,
        }
    }

    /// The next certificate.
    pub(crate) async fn next(&self) -> Arc<Certificate> {
        let mut newest = self.certificates.subscribe();
        newest.changed().await.unwrap();
        newest.borrow().clone().unwrap()
    }

    pub(crate) async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Result<()> {
        self.task.await.unwrap()
    }
}
