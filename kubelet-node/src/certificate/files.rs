//! [`CertificateFiles`]: a certificate in files that another program keeps fresh.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Clock, Disk};
use tokio_util::sync::CancellationToken;

use super::store::doing;
use super::{Certificate, CertificateHandle, blocking};
use crate::Result;

/// How often the files are read (`FileRefreshDuration`).
const PERIOD: Duration = Duration::from_secs(60);

/// A serving certificate in files: `tlsCertFile` and `tlsPrivateKeyFile`, or the [self-signed
/// one](super::self_signed_serving_certificate). The files are read every minute
/// (`NewKubeletServerCertificateDynamicFileManager`).
///
/// As in the kubelet, the [handle](Self::handle) returns the certificate even after it has expired.
pub struct CertificateFiles {
    handle: CertificateHandle,
    certificate: PathBuf,
    key: PathBuf,
    texts: Texts,
    disk: Disk,
    period: Duration,
}

/// The content of the files.
#[derive(PartialEq)]
struct Texts {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) or [`Error::Certificate`](crate::Error::Certificate) name the file
    /// that cannot be read or is invalid.
    pub async fn open(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        clock: Clock,
        disk: Disk,
    ) -> Result<Self> {
        let (certificate, key) = (certificate.into(), key.into());
        let texts = read(disk, &certificate, &key).await?;
        let newest = texts.certificate(&certificate)?;
        Ok(CertificateFiles {
            handle: CertificateHandle::of_files(Arc::new(newest), clock),
            certificate,
            key,
            texts,
            disk,
            period: PERIOD,
        })
    }

    pub(crate) fn read_each(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// A handle to the newest certificate.
    pub fn handle(&self) -> CertificateHandle {
        self.handle.clone()
    }

    /// Reads the files every minute until `shutdown`. Invalid content, for example while the files are being
    /// replaced, is logged; the last valid certificate stays in use.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.period) => {}
            }
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "cannot read the certificate files; keeping the last certificate");
            }
        }
    }

    async fn refresh(&mut self) -> Result<()> {
        let texts = read(self.disk, &self.certificate, &self.key).await?;
        if texts == self.texts {
            return Ok(());
        }
        let new = texts.certificate(&self.certificate)?;
        let file = self.certificate.display();
        tracing::info!(%file, not_after = %new.not_after(), "read a new certificate");
        self.handle.replace(Arc::new(new));
        self.texts = texts;
        Ok(())
    }
}

kubelet_core::impl_debug!(CertificateFiles: handle, certificate, key);

async fn read(disk: Disk, certificate: &Path, key: &Path) -> Result<Texts> {
    let (certificate, key) = (certificate.to_owned(), key.to_owned());
    let read = |path: &Path| fs::read(path).map_err(doing("read", path));
    blocking(disk, move || {
        Ok(Texts {
            chain: read(&certificate)?,
            key: read(&key)?,
        })
    })
    .await
}

impl Texts {
    fn certificate(&self, file: &Path) -> Result<Certificate> {
        Certificate::from_pem(&self.chain, &self.key, Some(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::self_signed_serving_certificate;

    #[tokio::test(start_paused = true)]
    async fn are_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (clock, disk) = (
            Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
            Disk::inline(),
        );
        let missing = CertificateFiles::open(path("kubelet.crt"), path("kubelet.key"), clock, disk).await;
        assert!(missing.unwrap_err().to_string().contains("kubelet.crt"));

        self_signed_serving_certificate(dir.path(), "one", clock, disk)
            .await
            .unwrap();
        let other = self_signed_serving_certificate(path("other"), "two", clock, disk)
            .await
            .unwrap();
        let files = CertificateFiles::open(path("kubelet.crt"), path("kubelet.key"), clock, disk)
            .await
            .unwrap();
        let (handle, shutdown) = (files.handle(), CancellationToken::new());
        let running = tokio::spawn(files.run(shutdown.clone()));
        let mut newest = handle.subscribe();

        // Only one of the files is new: the old certificate stays in use.
        fs::write(path("kubelet.crt"), other.chain_pem()).unwrap();
        tokio::time::sleep(PERIOD * 3).await;
        assert_eq!(handle.current().unwrap().dns_names(), ["one"]);
        assert!(!newest.has_changed().unwrap());
        fs::write(path("kubelet.key"), other.key_pem()).unwrap();
        newest.changed().await.unwrap();
        assert_eq!(handle.current().unwrap().dns_names(), ["two"]);

        shutdown.cancel();
        running.await.unwrap();
        // It is returned even after it has expired.
        tokio::time::sleep(Duration::from_secs(366 * 24 * 3600)).await;
        assert!(handle.current().unwrap().is_expired(clock.now()));
    }
}
