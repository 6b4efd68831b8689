//! [`ApiServerAccess`]: how a node reaches its API server.

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

/// After so long without a valid certificate, though the API server answers, the kubelet ends.
const EXIT_AFTER: Duration = Duration::from_secs(5 * 60);
/// How often the files of a kubeconfig's certificate are read, where it is not rotated (`CertCallbackRefreshDuration`).
const READ_FILES_EVERY: Duration = Duration::from_secs(5 * 60);

/// How a node reaches its API server: its kubeconfig, its certificate, the rotation of it, and the connections that follow
/// (`buildKubeletClientConfig`).
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
/// // … what the agent asks by `client` waits until there is a first certificate …
/// # drop((client, running));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ApiServerAccess {
    connections: Connections,
    keeper: Keeper,
}

/// Who keeps the node's certificate fresh.
#[derive(Debug)]
enum Keeper {
    Manager(Box<CertificateManager>),
    /// Somebody else, in files.
    Files(CertificateFiles),
    Nobody,
}

/// Sets up an [`ApiServerAccess`].
#[derive(Clone)]
pub struct ApiServerAccessBuilder {
    bootstrap: Bootstrap,
    has_bootstrap: bool,
    rotate: bool,
    exit_after: Duration,
    lifetime: Option<Duration>,
}

impl ApiServerAccess {
    /// Sets up the access of a node: its name, its kubeconfig (`--kubeconfig`), and the folder of its certificates
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

    /// A client that is known by the newest certificate.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime: the client runs a task of its own there.
    pub fn client(&self) -> Client {
        self.connections.client()
    }

    /// The connections of its clients; others of the same identity are made of them by [`apart`](Connections::apart).
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

    /// Gets the first certificate if there is none, and rotates it, until `shutdown`. Without rotation the files of the
    /// certificate are read anew each 5 min. Clients work only as long as this runs.
    ///
    /// # Errors
    ///
    /// As [`CertificateManager::run`].
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time.
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
    /// The kubeconfig with the credentials to ask for the first certificate with (`--bootstrap-kubeconfig`). It is not read as
    /// long as the node's own kubeconfig is good.
    #[must_use]
    pub fn bootstrap_kubeconfig(mut self, file: impl Into<PathBuf>) -> Self {
        self.bootstrap.bootstrap_kubeconfig = file.into();
        self.has_bootstrap = true;
        self
    }

    /// Whether certificates are rotated (`rotateCertificates`): on, unless it is said otherwise. Without it the first
    /// certificate is waited for in [`open`](Self::open).
    #[must_use]
    pub fn rotate_certificates(mut self, rotate: bool) -> Self {
        self.rotate = rotate;
        self
    }

    /// How long certificates are to last; the signer decides, unless it is said.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// How long [`run`](ApiServerAccess::run) goes on without a valid certificate though the API server answers; 5 min as in
    /// the kubelet, unless it is said otherwise.
    #[must_use]
    pub fn exit_after(mut self, exit_after: Duration) -> Self {
        self.exit_after = exit_after;
        self
    }

    /// How clients are made; over TCP and TLS unless it is said otherwise.
    #[must_use]
    pub fn connect(mut self, connect: Connect) -> Self {
        self.bootstrap.connect = connect;
        self
    }

    /// What tells the time; the system's clock unless it is said otherwise.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.bootstrap.clock = clock;
        self
    }

    /// Where jitter comes from; a seed of the system's choice unless it is said otherwise.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.bootstrap.jitter = jitter;
        self
    }

    /// Where file work is done.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.bootstrap.disk = disk;
        self
    }

    /// Reads the kubeconfigs and the certificate, and says what is wrong with them (`LoadClientConfig`).
    ///
    /// With a bootstrap kubeconfig, a kubeconfig that is not there, or whose certificate is over or another node's, is written
    /// anew and leads to the certificate that will be; until then what clients ask waits.
    ///
    /// # Errors
    ///
    /// [`Error::Kubeconfig`], [`Error::File`], [`Error::Certificate`] name the file; without rotation also those of
    /// [`Bootstrap::run`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time, and done again.
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

    /// A client with the credentials that there are now, and whether they are those to bootstrap with: for a
    /// [`preflight`](crate::preflight()). Nothing is asked for and nothing written.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for those of [`Bootstrap::run`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
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

    /// What keeps the node `local` from its cluster, as [`preflight`](crate::preflight()) finds it with the credentials that there
    /// are now. With `server_tls_bootstrap` (`serverTLSBootstrap`) its serving certificate must be there as well.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
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

    /// There is nothing but the bootstrap kubeconfig, or nothing of use.
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
                // Whoever waits for the first certificate must not take one that is over for it, and ask as nobody.
                Ok(certificate) => Ok(!certificate.is_any_expired(clock.now())),
                Err(Error::NoCertificate { .. }) => Ok(false),
                Err(error) => {
                    tracing::warn!(%error, "the certificate is of no use, the node is bootstrapped anew");
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

    /// `asking` are the credentials to ask for a certificate with as long as there is none.
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
