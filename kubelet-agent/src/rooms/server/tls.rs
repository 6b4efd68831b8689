//! The serving certificate of the node's API: requested from the cluster, from files, or self-signed.

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_node::certificate::{CertificateManager, CertificateStore, self_signed_serving_certificate};
use kubelet_server::{CertificateFiles, ServingCertificate, TlsSettings};

use crate::context::Context;
use crate::error::{Problems, Result};
use crate::rooms::cluster::ClusterRoom;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(super) fn check(settings: &Settings, in_cluster: bool, problems: &mut Problems) {
    if settings.configuration.server_tls_bootstrap && !in_cluster {
        problems.add("serverTLSBootstrap needs --kubeconfig");
    }
}

/// The TLS of the server, and the files that are read again when they change.
pub(super) async fn settings(
    context: &Context,
    cluster: &ClusterRoom,
    files: CertificateFiles,
    tasks: &mut Tasks,
) -> Result<(TlsSettings, CertificateFiles)> {
    let config = &context.settings.configuration;
    let (tls, files) = if config.server_tls_bootstrap || config.tls_cert_file.is_empty() {
        (issued(context, cluster, tasks).await?, files)
    } else {
        let pair = (
            PathBuf::from(&config.tls_cert_file),
            PathBuf::from(&config.tls_private_key_file),
        );
        let (files, certificate) = files.serving(pair.0, pair.1).await?;
        (TlsSettings::new(Arc::new(certificate)), files)
    };
    Ok((
        tls.min_version(&config.tls_min_version)?
            .cipher_suites(&config.tls_cipher_suites)?
            .curve_preferences(&config.tls_curve_preferences)?,
        files,
    ))
}

/// A certificate that the cluster signs, or one that is self-signed.
async fn issued(context: &Context, cluster: &ClusterRoom, tasks: &mut Tasks) -> Result<TlsSettings> {
    let settings = &*context.settings;
    let config = &settings.configuration;
    let addresses = cluster.node().map(|node| node.addresses());
    if config.server_tls_bootstrap
        && let (Some(addresses), Some(client)) = (addresses, cluster.client())
    {
        let mut store = CertificateStore::new(CertificateStore::SERVER, &settings.cert_dir);
        if !config.tls_cert_file.is_empty() {
            store = store.or_files(&config.tls_cert_file, &config.tls_private_key_file);
        }
        let manager = CertificateManager::serving(&context.node_name, store, addresses)
            .open()
            .await?;
        let manager = manager.request_by(client.clone());
        let tls = TlsSettings::new(Arc::new(manager.handle()));
        tasks.add_fallible("serving certificate", |shutdown| async move {
            Ok(manager.run(shutdown).await?)
        });
        return Ok(tls);
    }
    let host = settings.hostname()?;
    let pair =
        self_signed_serving_certificate(&settings.cert_dir, &host, context.clock, context.disk).await?;
    let certificate = ServingCertificate::new();
    certificate.set(pair.certified_key());
    Ok(TlsSettings::new(Arc::new(certificate)))
}
