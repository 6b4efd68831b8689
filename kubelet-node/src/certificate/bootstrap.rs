//! [`Bootstrap`]: the first certificate of a node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_client::{Client, Config};
use kubelet_core::{Clock, Disk, Jitter};
use tokio::time::{Instant, timeout, timeout_at};

use super::key::Key;
use super::manager::Progress;
use super::signing_request::{Request, Signer, digested_name, wait_for_certificate};
use super::store::{doing, write_synced};
use super::{Certificate, CertificateStore, CertificateTemplate, Connect, blocking, connect, kubeconfig};
use crate::{Error, Result};

/// `tmpPrivateKeyFile`.
const KEY_FILE: &str = "kubelet-client.key.tmp";
/// How long the API server has to come up (`waitForServer`).
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a request has to be approved and issued.
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Gets a node its first client certificate with the credentials of a bootstrap kubeconfig, and writes the kubeconfig that
/// leads to it (`bootstrap.LoadClientCert`).
///
/// It is for agents that do not rotate certificates; [`ApiServerAccess`](super::ApiServerAccess) uses it for them, and has the
/// [`CertificateManager`](super::CertificateManager) do it in the background for the others.
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
    /// The bootstrap of a node: the kubeconfig with the low-rights credentials (`--bootstrap-kubeconfig`), the one to write
    /// (`--kubeconfig`), and the folder of certificates (`--cert-dir`).
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

    /// How clients are made; over TCP and TLS unless it is said otherwise.
    #[must_use]
    pub fn connect(mut self, connect: Connect) -> Self {
        self.connect = connect;
        self
    }

    /// What tells the time; the system's clock unless it is said otherwise.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where jitter comes from; a seed of the system's choice unless it is said otherwise.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Where file work is done.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Does nothing if the kubeconfig is there and its certificate valid. Else it waits up to a minute for the API server,
    /// asks for a certificate, waits up to an hour until it is issued, keeps it, and writes the kubeconfig.
    ///
    /// The key is kept as `kubelet-client.key.tmp` meanwhile, and the request is named after it: who is restarted finds
    /// the request that was made before.
    ///
    /// # Errors
    ///
    /// [`Error::Kubeconfig`] if the bootstrap kubeconfig cannot be read, [`Error::Api`] if the request was refused,
    /// [`Error::CertificateDenied`] and [`Error::CertificateFailed`] if that became of it, [`Error::CertificateNotIssued`] if
    /// nothing became of it, [`Error::File`].
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time, and run again.
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

    /// The kubeconfig, if it is there and its certificate is this node's and valid (`isClientConfigStillValid`). What is wrong
    /// with it otherwise is logged.
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
                tracing::warn!(%file, %error, "the kubeconfig is of no use, the node is bootstrapped anew");
                Ok(None)
            }
        }
    }

    /// The name of the request that was made before and waits for its certificate, as its key tells it.
    pub(crate) async fn pending_request(&self) -> Result<Option<String>> {
        let path = self.cert_dir.join(KEY_FILE);
        let template = CertificateTemplate::node_client(&self.node_name);
        blocking(self.disk, move || match std::fs::read(&path) {
            // One that cannot be read is not that of any request.
            Ok(text) => Ok(Key::from_pem(&text)
                .ok()
                .map(|key| digested_name(&key, &template, Signer::Client))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(doing("read", &path)(error)),
        })
        .await
    }

    /// Makes a client, which may read the files that its configuration names.
    pub(crate) async fn client(&self, config: Config) -> Result<Client> {
        let what = format!("make a client for {}", config.cluster_url);
        let connect = self.connect.clone();
        blocking(self.disk, move || {
            connect(config).map_err(|error| Error::api(what, error))
        })
        .await
    }

    /// Until the API server answers, and no longer than a minute: the request tells what is wrong.
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
                    Err(_) => tracing::info!("the API server does not answer yet, within a second"),
                }
                tokio::time::sleep(self.jitter.apply(Duration::from_secs(2), 0.2)).await;
            }
        };
        if timeout_at(deadline, answers).await.is_err() {
            tracing::warn!(
                "the API server did not answer for a minute; the certificate is asked for all the same"
            );
        }
    }
}

/// Whether a kubeconfig's certificate makes its user this node, now.
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
        certificate.ok_or_else(|| bad(kubeconfig, "it names no client certificate with its key".into()))?;
    let file = certificate.file().unwrap_or(kubeconfig);
    if certificate.is_any_expired(now) {
        return Err(bad(
            file,
            format!("its certificate was valid until {}", certificate.not_after()),
        ));
    }
    super::check_node(&certificate, node_name)
}

/// The request that a node without a certificate makes, over restarts.
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
    /// Gets the certificate and keeps it. A request that is of no use any more is left behind with its key, once.
    pub(crate) async fn get(&self) -> Result<Certificate> {
        match self.attempt().await {
            Err(error @ (Error::SigningRequest { .. } | Error::CertificateFailed { .. })) => {
                self.drop_key().await?;
                tracing::warn!(%error, "another key is made, and another request");
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
        blocking(self.disk, move || match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(doing("remove", &path)(error)),
            _ => Ok(()),
        })
        .await
    }
}

/// The key of a request that was made before, or a new one (`LoadOrGenerateKeyFile`).
fn kept_key(path: &Path) -> Result<Key> {
    match std::fs::read(path) {
        Ok(text) => match Key::from_pem(&text) {
            Ok(key) => return Ok(key),
            Err(problem) => {
                tracing::warn!(file = %path.display(), problem, "the key of the node's request is of no use, another is made");
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
