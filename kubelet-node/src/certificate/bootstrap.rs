//! [`Bootstrap`]: the first certificate of a node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_client::{Client, Config};
use kubelet_core::{Clock, Disk, Jitter, files};
use tokio::time::{Instant, timeout, timeout_at};

use super::key::Key;
use super::manager::Progress;
use super::signing_request::{Request, Signer, digested_name, wait_for_certificate};
use super::store::{doing, write_synced};
use super::{Certificate, CertificateStore, CertificateTemplate, Connect, blocking, connect, kubeconfig};
use crate::{Error, Result};

/// `tmpPrivateKeyFile`.
const KEY_FILE: &str = "kubelet-client.key.tmp";
/// How long to wait for the API server to start (`waitForServer`).
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the certificate to be approved and issued.
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Requests the first client certificate of a node with the credentials of a bootstrap kubeconfig, and writes a
/// kubeconfig that refers to it (`bootstrap.LoadClientCert`).
///
/// It is for agents that do not rotate certificates; [`ApiServerAccess`](super::ApiServerAccess) uses it for
/// them. With rotation the [`CertificateManager`](super::CertificateManager) does the same in the background.
#[derive(Clone)]
pub struct Bootstrap {
    pub(crate) node_name: String,
    pub(crate) bootstrap_kubeconfig: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cert_dir: PathBuf,
    pub(crate) connect: Connect,
    pub(crate) clock: Clock,
    pub(crate) jitter: Jitter,
    pub(crate) disk: Disk,
}

impl Bootstrap {
    /// A bootstrap of the node `node_name`. It needs the kubeconfig with the bootstrap credentials
    /// (`--bootstrap-kubeconfig`), the path of the kubeconfig to write (`--kubeconfig`), and the folder for
    /// certificates (`--cert-dir`).
    pub fn new(
        node_name: impl Into<String>,
        bootstrap_kubeconfig: impl Into<PathBuf>,
        kubeconfig: impl Into<PathBuf>,
        cert_dir: impl Into<PathBuf>,
    ) -> Self {
        Bootstrap {
            node_name: node_name.into(),
            bootstrap_kubeconfig: bootstrap_kubeconfig.into(),
            kubeconfig: kubeconfig.into(),
            cert_dir: cert_dir.into(),
            connect: connect(),
            clock: Clock::system(),
            jitter: Jitter::default(),
            disk: Disk::default(),
        }
    }

    /// How clients connect. Default: over TCP and TLS.
    #[must_use]
    pub fn connect(mut self, connect: Connect) -> Self {
        self.connect = connect;
        self
    }

    /// The source of the time. Default: the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The source of jitter. Default: seeded by the system.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// How file operations run.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Returns at once if the kubeconfig exists and its certificate is valid. Otherwise it waits up to a minute
    /// for the API server, requests a certificate, waits up to an hour until it is issued, stores it, and
    /// writes the kubeconfig.
    ///
    /// Meanwhile the key is stored as `kubelet-client.key.tmp`. The name of the request is derived from the
    /// key, so after a restart the same request is found.
    ///
    /// # Errors
    ///
    /// [`Error::Kubeconfig`] if the bootstrap kubeconfig cannot be read; [`Error::Api`] if the request was
    /// refused; [`Error::CertificateDenied`], [`Error::CertificateFailed`] or [`Error::CertificateNotIssued`]
    /// if no certificate was issued; [`Error::File`].
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. The call can be repeated.
    pub async fn run(&self) -> Result<()> {
        if self.valid_kubeconfig().await?.is_some() {
            return Ok(());
        }
        let bootstrap = kubeconfig::load(self.disk, &self.bootstrap_kubeconfig).await?;
        let client = self.client(bootstrap.config.clone()).await?;
        self.wait_for_server(&client).await;
        let store = CertificateStore::new(CertificateStore::CLIENT, &self.cert_dir);
        let progress = Progress::default();
        let first = FirstCertificate {
            client: &client,
            store: &store,
            template: &CertificateTemplate::node_client(&self.node_name),
            lifetime: None,
            clock: self.clock,
            disk: self.disk,
            progress: &progress,
        };
        timeout(CERTIFICATE_TIMEOUT, first.get())
            .await
            .map_err(|_| progress.not_issued(CERTIFICATE_TIMEOUT))??;
        let (file, pem) = (self.kubeconfig.clone(), store.current_path());
        blocking(self.disk, move || {
            kubeconfig::write(&file, &bootstrap.cluster, &pem)
        })
        .await
    }

    /// The kubeconfig, if it exists and has a valid certificate of this node (`isClientConfigStillValid`).
    /// Other problems with it are logged.
    pub(crate) async fn valid_kubeconfig(&self) -> Result<Option<kubeconfig::Loaded>> {
        let file = self.kubeconfig.clone();
        if !blocking(self.disk, move || super::store::exists(&file)).await? {
            return Ok(None);
        }
        let (now, node_name) = (self.clock.now(), self.node_name.clone());
        let loaded = kubeconfig::load(self.disk, &self.kubeconfig).await;
        let checked = blocking(self.disk, move || {
            let loaded = loaded?;
            check_identity(loaded.certificate()?, &loaded.file, &node_name, now)?;
            Ok(loaded)
        })
        .await;
        match checked {
            Ok(loaded) => Ok(Some(loaded)),
            Err(error) => {
                let file = self.kubeconfig.display();
                tracing::warn!(%file, %error, "the kubeconfig is unusable; requesting a certificate with the bootstrap kubeconfig");
                Ok(None)
            }
        }
    }

    /// The name of an earlier request that still waits for its certificate, derived from its key.
    pub(crate) async fn pending_request(&self) -> Result<Option<String>> {
        let path = self.cert_dir.join(KEY_FILE);
        let template = CertificateTemplate::node_client(&self.node_name);
        blocking(self.disk, move || {
            let text = files::read(&path).map_err(doing("read", &path))?;
            // An unreadable key belongs to no request.
            let key = text.and_then(|text| Key::from_pem(&text).ok());
            Ok(key.map(|key| digested_name(&key, &template, Signer::Client)))
        })
        .await
    }

    /// Makes a client. This may read the files that its configuration names.
    pub(crate) async fn client(&self, config: Config) -> Result<Client> {
        let what = format!("make a client for {}", config.cluster_url);
        let connect = self.connect.clone();
        blocking(self.disk, move || {
            connect(config).map_err(|error| Error::api(what, error))
        })
        .await
    }

    /// Waits for the API server, at most a minute. The request afterwards returns the error.
    async fn wait_for_server(&self, client: &Client) {
        let deadline = Instant::now() + SERVER_TIMEOUT;
        let answers = async {
            loop {
                let health = async {
                    let request = http::Request::get("/healthz")
                        .body(Vec::new())
                        .map_err(kube_client::Error::HttpError)?;
                    client.request_text(request).await
                };
                match timeout(Duration::from_secs(1), health).await {
                    Ok(Ok(_)) => return,
                    Ok(Err(error)) => tracing::info!(%error, "the API server does not answer yet"),
                    Err(_) => tracing::info!("the API server did not answer within a second; trying again"),
                }
                tokio::time::sleep(self.jitter.apply(Duration::from_secs(2), 0.2)).await;
            }
        };
        if timeout_at(deadline, answers).await.is_err() {
            tracing::warn!("the API server did not answer for a minute; requesting the certificate anyway");
        }
    }
}

/// Checks that the kubeconfig has a valid certificate of this node.
fn check_identity(
    certificate: Option<Certificate>,
    kubeconfig: &Path,
    node_name: &str,
    now: Timestamp,
) -> Result<()> {
    let bad = |file: &Path, problem| Error::Certificate {
        file: file.to_owned(),
        problem,
    };
    let certificate =
        certificate.ok_or_else(|| bad(kubeconfig, "it names no client certificate with key".into()))?;
    let file = certificate.file().unwrap_or(kubeconfig);
    if certificate.is_any_expired(now) {
        return Err(bad(
            file,
            format!("its certificate expired at {}", certificate.not_after()),
        ));
    }
    super::check_node(&certificate, node_name)
}

/// The request of a node without a certificate. It is the same after a restart.
pub(crate) struct FirstCertificate<'a> {
    pub(crate) client: &'a Client,
    pub(crate) store: &'a CertificateStore,
    pub(crate) template: &'a CertificateTemplate,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    pub(crate) progress: &'a Progress,
}

impl FirstCertificate<'_> {
    /// Gets the certificate and stores it. If the existing request is unusable, makes a new key and a new
    /// request, once.
    pub(crate) async fn get(&self) -> Result<Certificate> {
        match self.attempt().await {
            Err(error @ (Error::SigningRequest { .. } | Error::CertificateFailed { .. })) => {
                self.drop_key().await?;
                tracing::warn!(%error, "making a new key and a new request");
                self.attempt().await
            }
            done => done,
        }
    }

    async fn attempt(&self) -> Result<Certificate> {
        let path = self.key_path();
        let key = blocking(self.disk, move || kept_key(&path)).await?;
        let name = digested_name(&key, self.template, Signer::Client);
        let request = Request {
            signer: Signer::Client,
            key: &key,
            template: self.template,
            name: Some(name),
            lifetime: self.lifetime,
        };
        let requested = request.submit(self.client, self.clock.now()).await?;
        self.progress.requested(&requested.name, self.clock.now());
        let chain = wait_for_certificate(self.client, &requested).await?;
        let (store, key_pem, now) = (self.store.clone(), key.to_pem(), self.clock.now());
        let certificate = blocking(self.disk, move || store.update(&chain, key_pem.as_bytes(), now)).await?;
        self.drop_key().await?;
        Ok(certificate)
    }

    fn key_path(&self) -> PathBuf {
        self.store.dir().join(KEY_FILE)
    }

    async fn drop_key(&self) -> Result<()> {
        let path = self.key_path();
        blocking(self.disk, move || {
            files::remove(&path).map_err(doing("remove", &path))
        })
        .await
    }
}

/// The key of the earlier request, or a new one (`LoadOrGenerateKeyFile`).
fn kept_key(path: &Path) -> Result<Key> {
    match std::fs::read(path) {
        Ok(text) => match Key::from_pem(&text) {
            Ok(key) => return Ok(key),
            Err(problem) => {
                tracing::warn!(file = %path.display(), problem, "the key of the node's request is unusable; making a new one");
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(doing("read", path)(error)),
    }
    let key = Key::generate().map_err(|problem| Error::Certificate {
        file: path.to_owned(),
        problem,
    })?;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(doing("make", dir))?;
    }
    write_synced(path, &key.to_pem()).map_err(doing("write", path))?;
    Ok(key)
}
