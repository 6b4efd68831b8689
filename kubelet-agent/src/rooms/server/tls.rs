//! The serving certificate of the node's API: requested from the cluster, from files, or self-signed.

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_node::certificate::{CertificateManager, CertificateStore, self_signed_serving_certificate};
use kubelet_server::{CertificateFiles, ServingCertificate, TlsSettings};

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::rooms::cluster::ClusterRoom;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(super) fn check(settings: &Settings, in_cluster: bool, problems: &mut Problems) {
    if settings.configuration.server_tls_bootstrap && !in_cluster {
        problems.add("serverTLSBootstrap", "serverTLSBootstrap needs --kubeconfig");
    }
    let config = &settings.configuration;
    let tls = TlsSettings::new(Arc::new(ServingCertificate::new()));
    problems.note("tlsMinVersion", tls.min_version(&config.tls_min_version));
    let suites = &config.tls_cipher_suites;
    problems.note("tlsCipherSuites", TlsSettings::check_cipher_suites(suites));
    let curves = &config.tls_curve_preferences;
    problems.note(
        "tlsCurvePreferences",
        TlsSettings::check_curve_preferences(curves),
    );
}

/// Notes a certificate that cannot be read, and a folder in which none can be made.
pub(super) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let (settings, config) = (inspection.settings, &inspection.settings.configuration);
    if config.server_tls_bootstrap {
        return inspection
            .writes("--cert-dir", &settings.cert_dir, problems)
            .await;
    }
    if !config.tls_cert_file.is_empty() {
        let (chain, key) = (config.tls_cert_file.clone(), config.tls_private_key_file.clone());
        let read = CertificateFiles::new().serving(chain.into(), key.into()).await;
        return problems.note("tlsCertFile", read);
    }
    let pair = ["kubelet.crt", "kubelet.key"].map(|file| settings.cert_dir.join(file));
    let [certificate, key] = pair.clone();
    let there = inspection
        .look(move || Ok((certificate.exists(), key.exists())))
        .await;
    let [certificate, key] = pair;
    match there.unwrap_or_default() {
        (false, false) => {
            inspection
                .writes("--cert-dir", &settings.cert_dir, problems)
                .await
        }
        (true, true) => {
            let read = CertificateFiles::new().serving(certificate, key).await;
            problems.note("--cert-dir", read);
        }
        (has_certificate, _) => {
            let (there, missing) = if has_certificate {
                (certificate, key)
            } else {
                (key, certificate)
            };
            let what = format!("{}: {} is missing beside it", there.display(), missing.display());
            problems.add("--cert-dir", what);
        }
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
