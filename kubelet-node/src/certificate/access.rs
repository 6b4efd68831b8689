//! [`ApiServerAccess`]: the connection of a node to its API server.

use std::path::PathBuf;
use std::time::Duration;

use kube_client::{Client, Config};
use kubelet_core::{Clock, Disk, Jitter};
use tokio_util::sync::CancellationToken;

use super::{
    Bootstrap, CertificateFiles, CertificateHandle, CertificateManager, CertificateStore, Connect,
    Connections, blocking, check_node, kubeconfig,
};
use crate::{Error, Finding, LocalNode, PreflightConfig, Result};

/// The kubelet exits after this long without a valid certificate, if the API server answers.
const EXIT_AFTER: Duration = Duration::from_secs(5 * 60);
/// How often the certificate files of a kubeconfig are read if they are not rotated
/// (`CertCallbackRefreshDuration`).
const READ_FILES_EVERY: Duration = Duration::from_secs(5 * 60);

/// The connection of a node to its API server: kubeconfig, certificate, rotation, and the clients that use the
/// newest certificate (`buildKubeletClientConfig`).
///
/// ```no_run
/// # async fn agent() -> kubelet_node::Result<()> {
/// use kubelet_node::certificate::ApiServerAccess;
/// use tokio_util::sync::CancellationToken;
///
/// let access = ApiServerAccess::builder("node-1", "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki")
///     .bootstrap_kubeconfig("/etc/kubernetes/bootstrap-kubelet.conf")
///     .open()
///     .await?;
/// let (client, shutdown) = (access.client(), CancellationToken::new());
/// let running = tokio::spawn(access.run(shutdown.clone()));
/// // … requests of `client` wait until there is a first certificate …
/// # drop((client, running));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ApiServerAccess {
    connections: Connections,
    keeper: Keeper,
}

/// What keeps the node's certificate fresh.
#[derive(Debug)]
enum Keeper {
    Manager(Box<CertificateManager>),
    /// Another program, through files.
    Files(CertificateFiles),
    Nobody,
}

/// Builds an [`ApiServerAccess`].
#[derive(Clone)]
pub struct ApiServerAccessBuilder {
    bootstrap: Bootstrap,
    has_bootstrap: bool,
    rotate: bool,
    exit_after: Duration,
    lifetime: Option<Duration>,
}

impl ApiServerAccess {
    /// Starts a builder with the node's name, its kubeconfig (`--kubeconfig`) and the folder for certificates
    /// (`--cert-dir`).
    pub fn builder(
        node_name: impl Into<String>,
        kubeconfig: impl Into<PathBuf>,
        cert_dir: impl Into<PathBuf>,
    ) -> ApiServerAccessBuilder {
        ApiServerAccessBuilder {
            bootstrap: Bootstrap::new(node_name, PathBuf::new(), kubeconfig, cert_dir),
            has_bootstrap: false,
            rotate: true,
            exit_after: EXIT_AFTER,
            lifetime: None,
        }
    }

    /// A client that uses the newest certificate.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, because the client spawns a task.
    pub fn client(&self) -> Client {
        self.connections.client()
    }

    /// The connections behind these clients. [`apart`](Connections::apart) makes separate ones with the same
    /// identity.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The node's certificate, if it is rotated.
    pub fn certificates(&self) -> Option<CertificateHandle> {
        match &self.keeper {
            Keeper::Manager(manager) => Some(manager.handle()),
            Keeper::Files(_) | Keeper::Nobody => None,
        }
    }

    /// Gets the first certificate if there is none, and rotates it, until `shutdown`. Without rotation it reads
    /// the certificate files every 5 min. The clients work only while this runs.
    ///
    /// # Errors
    ///
    /// As for [`CertificateManager::run`].
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        match self.keeper {
            Keeper::Manager(manager) => return manager.run(shutdown).await,
            Keeper::Files(files) => files.run(shutdown).await,
            Keeper::Nobody => shutdown.cancelled().await,
        }
        Ok(())
    }
}

impl ApiServerAccessBuilder {
    /// The kubeconfig with the credentials to request the first certificate (`--bootstrap-kubeconfig`). It is
    /// read only if the node's own kubeconfig is missing or unusable.
    #[must_use]
    pub fn bootstrap_kubeconfig(mut self, file: impl Into<PathBuf>) -> Self {
        self.bootstrap.bootstrap_kubeconfig = file.into();
        self.has_bootstrap = true;
        self
    }

    /// Whether certificates are rotated (`rotateCertificates`); true by default. Without rotation,
    /// [`open`](Self::open) waits for the first certificate.
    #[must_use]
    pub fn rotate_certificates(mut self, rotate: bool) -> Self {
        self.rotate = rotate;
        self
    }

    /// The requested lifetime of certificates. By default the signer decides.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// How long [`run`](ApiServerAccess::run) continues without a valid certificate while the API server
    /// answers. Default: 5 min, as in the kubelet.
    #[must_use]
    pub fn exit_after(mut self, exit_after: Duration) -> Self {
        self.exit_after = exit_after;
        self
    }

    /// How clients connect. Default: over TCP and TLS.
    #[must_use]
    pub fn connect(mut self, connect: Connect) -> Self {
        self.bootstrap.connect = connect;
        self
    }

    /// The source of the time. Default: the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.bootstrap.clock = clock;
        self
    }

    /// The source of jitter. Default: seeded by the system.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.bootstrap.jitter = jitter;
        self
    }

    /// How file operations run.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.bootstrap.disk = disk;
        self
    }

    /// Reads and checks the kubeconfigs and the certificate (`LoadClientConfig`).
    ///
    /// With a bootstrap kubeconfig, a kubeconfig that is missing, has an expired certificate or belongs to
    /// another node is replaced by a new one. The new one refers to the certificate that will be issued.
    /// Requests of clients wait until then.
    ///
    /// # Errors
    ///
    /// [`Error::Kubeconfig`], [`Error::File`] and [`Error::Certificate`] name the file. Without rotation, also
    /// the errors of [`Bootstrap::run`].
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. The call can be repeated.
    pub async fn open(self) -> Result<ApiServerAccess> {
        if self.rotate {
            return self.open_rotating().await;
        }
        if self.has_bootstrap {
            self.bootstrap.run().await?;
        }
        let Bootstrap {
            disk,
            kubeconfig: file,
            connect,
            clock,
            ..
        } = self.bootstrap;
        let own = kubeconfig::load(disk, &file).await?;
        let (connections, keeper) = match own.files().filter(|_| own.has_no_credentials_but_files()) {
            Some((certificate, key)) => {
                let files = CertificateFiles::open(certificate, key, clock, disk).await?;
                let files = files.read_each(READ_FILES_EVERY);
                let connections = Connections::following(own.config, files.handle(), connect);
                (connections, Keeper::Files(files))
            }
            None => (Connections::fixed(own.config, connect), Keeper::Nobody),
        };
        Ok(ApiServerAccess {
            connections: connections.with_disk(disk),
            keeper,
        })
    }

    /// A client with the current credentials, and whether these are the bootstrap credentials. For a
    /// [`preflight`](crate::preflight()). It requests no certificate and writes nothing.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), without those of [`Bootstrap::run`].
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn look(self) -> Result<(Client, bool)> {
        let bootstrap = self.bootstrap;
        let own = match self.has_bootstrap {
            true => bootstrap.valid_kubeconfig().await?,
            false => Some(kubeconfig::load(bootstrap.disk, &bootstrap.kubeconfig).await?),
        };
        let (loaded, bootstrapping) = match own {
            Some(own) => (own, false),
            None => (
                kubeconfig::load(bootstrap.disk, &bootstrap.bootstrap_kubeconfig).await?,
                true,
            ),
        };
        Ok((bootstrap.client(loaded.config).await?, bootstrapping))
    }

    /// Runs a [`preflight`](crate::preflight()) of the node `local` with the current credentials. With
    /// `server_tls_bootstrap` (`serverTLSBootstrap`) it also checks that the serving certificate exists.
    ///
    /// # Errors
    ///
    /// As for [`look`](Self::look).
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn preflight(self, local: &LocalNode, server_tls_bootstrap: bool) -> Result<Vec<Finding>> {
        let serving = CertificateStore::new(CertificateStore::SERVER, &self.bootstrap.cert_dir);
        let clock = self.bootstrap.clock;
        let pending = self.bootstrap.pending_request().await?;
        let (client, bootstrapping) = self.look().await?;
        let config = PreflightConfig {
            serving_certificate: server_tls_bootstrap.then(|| serving.current_path()),
            certificate_requests: pending.into_iter().filter(|_| bootstrapping).collect(),
            bootstrapping,
            clock,
        };
        Ok(crate::preflight(&client, local, &config).await)
    }

    async fn open_rotating(self) -> Result<ApiServerAccess> {
        let bootstrap = &self.bootstrap;
        let store = CertificateStore::new(CertificateStore::CLIENT, &bootstrap.cert_dir);
        let own = match self.has_bootstrap {
            true => bootstrap.valid_kubeconfig().await?,
            false => Some(kubeconfig::load(bootstrap.disk, &bootstrap.kubeconfig).await?),
        };
        let Some(own) = own else {
            return self.open_anew(store).await;
        };
        let store = match own.files() {
            Some((certificate, key)) => store.or_files(certificate, key),
            None => store,
        };
        let mut manager = self.manager(store);
        if let Some(first) = own.inline()? {
            manager = manager.first(first);
        }
        self.assemble(manager.open().await?, own.config.clone(), own.config)
            .await
    }

    /// Only the bootstrap kubeconfig exists, or only it is usable.
    async fn open_anew(&self, store: CertificateStore) -> Result<ApiServerAccess> {
        let Bootstrap {
            disk,
            node_name,
            kubeconfig: file,
            clock,
            ..
        } = self.bootstrap.clone();
        let loaded = kubeconfig::load(disk, &self.bootstrap.bootstrap_kubeconfig).await?;
        let (cluster, kept) = (loaded.cluster.clone(), store.clone());
        let is_usable = blocking(disk, move || {
            kubeconfig::write(&file, &cluster, &kept.current_path())?;
            let checked = kept.current().and_then(|certificate| {
                check_node(&certificate, &node_name)?;
                Ok(certificate)
            });
            match checked {
                // Requests wait for the first certificate. An expired one must not count as the first one, or
                // requests would be sent without valid credentials.
                Ok(certificate) => Ok(!certificate.is_any_expired(clock.now())),
                Err(Error::NoCertificate { .. }) => Ok(false),
                Err(error) => {
                    tracing::warn!(%error, "the certificate is unusable; requesting a new one with the bootstrap kubeconfig");
                    Ok(false)
                }
            }
        })
        .await?;
        let mut manager = self.manager(store);
        if !is_usable {
            manager = manager.ignore_kept();
        }
        self.assemble(manager.open().await?, loaded.config.clone(), loaded.config)
            .await
    }

    fn manager(&self, store: CertificateStore) -> super::CertificateManagerBuilder {
        let Bootstrap {
            node_name,
            clock,
            jitter,
            disk,
            ..
        } = self.bootstrap.clone();
        let mut manager = CertificateManager::client(&node_name, store)
            .exit_after(self.exit_after)
            .clock(clock)
            .jitter(jitter)
            .disk(disk);
        if let Some(lifetime) = self.lifetime {
            manager = manager.lifetime(lifetime);
        }
        manager
    }

    /// `asking` holds the credentials to request a certificate with while there is none.
    async fn assemble(
        &self,
        manager: CertificateManager,
        asking: Config,
        config: Config,
    ) -> Result<ApiServerAccess> {
        let Bootstrap { connect, disk, .. } = &self.bootstrap;
        let asking = self.bootstrap.client(asking).await?;
        let connections = Connections::following(config, manager.handle(), connect.clone()).with_disk(*disk);
        let manager = manager.request_by(connections.client()).bootstrap_by(asking);
        Ok(ApiServerAccess {
            connections,
            keeper: Keeper::Manager(Box::new(manager)),
        })
    }
}
