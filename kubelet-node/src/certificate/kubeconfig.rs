//! Reads and writes a node's kubeconfig.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube_client::Config;
use kube_client::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kubelet_core::Disk;
use secrecy::ExposeSecret;
use serde_json::json;

use super::store::{doing, read_pair, write_synced};
use super::{Certificate, blocking};
use crate::machine::go_architecture;
use crate::{Error, Result};

/// The content of a kubeconfig's current context.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) file: PathBuf,
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
}

/// Reads a kubeconfig (`loadRESTClientConfig`).
///
/// # Errors
///
/// [`Error::Kubeconfig`] names the file.
pub(crate) async fn load(disk: Disk, file: &Path) -> Result<Loaded> {
    let bad = |problem: String| Error::Kubeconfig {
        file: file.to_owned(),
        problem,
    };
    let path = file.to_owned();
    let (kubeconfig, cluster) = blocking(disk, move || {
        let bad = |error: KubeconfigError| Error::Kubeconfig {
            file: path.clone(),
            problem: without_its_text(&error),
        };
        let mut kubeconfig = Kubeconfig::read_from(&path).map_err(bad)?;
        let cluster = current_cluster(&mut kubeconfig).cloned().unwrap_or_default();
        // Otherwise it would be read later, where that blocks other tasks.
        if let Some(cluster) = current_cluster(&mut kubeconfig)
            && let Some(authority) = authority_file(cluster)
        {
            let text = fs::read(&authority).map_err(doing("read", &authority))?;
            cluster.certificate_authority_data = Some(STANDARD.encode(text));
        }
        Ok((kubeconfig, cluster))
    })
    .await?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| bad(error.to_string()))?;
    // The file is read again every minute (`ReloadCAFiles`).
    config.root_cert_file = authority_file(&cluster);
    config.headers.push((USER_AGENT, user_agent()));
    Ok(Loaded {
        file: file.to_owned(),
        config,
        cluster,
    })
}

/// The kubelet's user agent (`rest.DefaultKubernetesUserAgent`). The API server derives the field manager from
/// it.
fn user_agent() -> HeaderValue {
    let agent = format!("kubelet/v1.36 ({}/{})", std::env::consts::OS, go_architecture());
    HeaderValue::try_from(agent).unwrap_or(HeaderValue::from_static("kubelet/v1.36"))
}

/// The problem with a kubeconfig, without quoting the file: it holds tokens and keys.
fn without_its_text(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(_) => "it is not a kubeconfig in YAML".to_owned(),
        other => other.to_string(),
    }
}

fn current_cluster(kubeconfig: &mut Kubeconfig) -> Option<&mut Cluster> {
    let current = kubeconfig.current_context.as_deref()?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|named| named.name == current)?
        .context
        .as_ref()?;
    kubeconfig
        .clusters
        .iter_mut()
        .find(|named| named.name == context.cluster)?
        .cluster
        .as_mut()
}

/// The file with the cluster's CA, unless the kubeconfig contains the CA.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    let is_needed = cluster.certificate_authority_data.is_none();
    let file = cluster.certificate_authority.as_ref().filter(|_| is_needed)?;
    Some(file.into())
}

impl Loaded {
    fn user(&self) -> &AuthInfo {
        &self.config.auth_info
    }

    /// The files of the certificate and the key, if the kubeconfig names any.
    pub(crate) fn files(&self) -> Option<(PathBuf, PathBuf)> {
        let user = self.user();
        Some((
            user.client_certificate.as_ref()?.into(),
            user.client_key.as_ref()?.into(),
        ))
    }

    /// Whether these files are the only credentials.
    pub(crate) fn has_no_credentials_but_files(&self) -> bool {
        let rest = AuthInfo {
            client_certificate: None,
            client_key: None,
            ..self.user().clone()
        };
        json!(rest) == json!(AuthInfo::default())
    }

    /// The certificate and key that the kubeconfig itself contains. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] names the kubeconfig.
    pub(crate) fn inline(&self) -> Result<Option<Certificate>> {
        let user = self.user();
        let (Some(chain), Some(key)) = (&user.client_certificate_data, &user.client_key_data) else {
            return Ok(None);
        };
        let decode = |field: &str, text: &str| {
            STANDARD.decode(text.trim()).map_err(|error| Error::Certificate {
                file: self.file.clone(),
                problem: format!("its {field} is not base64: {error}"),
            })
        };
        let chain = decode("client-certificate-data", chain)?;
        let key = decode("client-key-data", key.expose_secret())?;
        Certificate::from_pem(&chain, &key, Some(&self.file)).map(Some)
    }

    /// The certificate, from the kubeconfig or from files. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`], [`Error::File`].
    pub(crate) fn certificate(&self) -> Result<Option<Certificate>> {
        if let Some(certificate) = self.inline()? {
            return Ok(Some(certificate));
        }
        self.files()
            .map(|(chain, key)| read_pair(&chain, &key))
            .transpose()
    }
}

/// Writes the kubeconfig of a node whose certificate and key are in `pem` (`writeKubeconfigFromBootstrapping`).
/// Blocks.
///
/// # Errors
///
/// [`Error::File`] names the file.
pub(crate) fn write(file: &Path, cluster: &Cluster, pem: &Path) -> Result<()> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(doing("make", dir))?;
    }
    let pem = std::path::absolute(pem).map_err(doing("find", pem))?;
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    write_synced(&new, &text(cluster, &pem)).map_err(doing("write", &new))?;
    fs::rename(&new, file).map_err(doing("write", file))
}

/// As YAML, with strings quoted as in JSON.
fn text(cluster: &Cluster, pem: &Path) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut fields = String::new();
    let mut field = |name: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            // Writing to a string cannot fail.
            let _ = writeln!(fields, "    {name}: {}", quoted(value));
        }
    };
    match &cluster.certificate_authority {
        Some(file) => field("certificate-authority", Some(file)),
        None => field(
            "certificate-authority-data",
            cluster.certificate_authority_data.as_deref(),
        ),
    }
    field("proxy-url", cluster.proxy_url.as_deref());
    field("server", cluster.server.as_deref());
    field("tls-server-name", cluster.tls_server_name.as_deref());
    if cluster.insecure_skip_tls_verify == Some(true) {
        fields.push_str("    insecure-skip-tls-verify: true\n");
    }
    let pem = quoted(&pem.to_string_lossy());
    format!(
        "apiVersion: v1\n\
         clusters:\n\
         - cluster:\n\
         {fields}  \
           name: default-cluster\n\
         contexts:\n\
         - context:\n    \
             cluster: default-cluster\n    \
             namespace: default\n    \
             user: default-auth\n  \
           name: default-context\n\
         current-context: default-context\n\
         kind: Config\n\
         users:\n\
         - name: default-auth\n  \
           user:\n    \
             client-certificate: {pem}\n    \
             client-key: {pem}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn is_read_again_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("etc/kubernetes/kubelet.conf");
        let cluster = Cluster {
            server: Some("https://10.0.0.1:6443".into()),
            tls_server_name: Some("kubernetes".into()),
            insecure_skip_tls_verify: Some(true),
            ..Cluster::default()
        };
        write(&file, &cluster, Path::new("/pki/a \"b\"-current.pem")).unwrap();
        let loaded = load(Disk::inline(), &file).await.unwrap();
        assert_eq!(loaded.config.cluster_url, "https://10.0.0.1:6443/");
        assert_eq!(loaded.config.tls_server_name.as_deref(), Some("kubernetes"));
        assert!(loaded.config.accept_invalid_certs);
        assert_eq!(loaded.config.default_namespace, "default");
        let agent = loaded.config.headers.iter().find(|(name, _)| *name == USER_AGENT);
        assert!(
            agent
                .unwrap()
                .1
                .to_str()
                .unwrap()
                .starts_with("kubelet/v1.36 (linux/")
        );
        let pem = PathBuf::from("/pki/a \"b\"-current.pem");
        assert_eq!(loaded.files(), Some((pem.clone(), pem)));
        assert!(loaded.inline().unwrap().is_none());
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn its_authority_may_be_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, authority) = (dir.path().join("kubelet.conf"), dir.path().join("kubelet.crt"));
        let cluster = Cluster {
            server: Some("https://10.0.0.1:6443".into()),
            certificate_authority: Some(authority.display().to_string()),
            ..Cluster::default()
        };
        write(&file, &cluster, Path::new("/pki/current.pem")).unwrap();
        let error = load(Disk::inline(), &file).await.unwrap_err();
        assert!(error.to_string().contains("kubelet.crt"), "{error}");

        let (clock, disk) = (kubelet_core::Clock::system(), Disk::inline());
        let made = crate::certificate::self_signed_serving_certificate(dir.path(), "a", clock, disk);
        made.await.unwrap();
        let loaded = load(disk, &file).await.unwrap();
        assert_eq!(loaded.config.root_cert.as_ref().map(Vec::len), Some(2));
        assert_eq!(loaded.config.root_cert_file.as_ref(), Some(&authority));
        assert_eq!(
            loaded.cluster.certificate_authority_data, None,
            "the new kubeconfig names the file"
        );
        assert!(loaded.has_no_credentials_but_files());
    }

    #[tokio::test]
    async fn a_bad_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubelet.conf");
        let error = load(Disk::default(), &file).await.unwrap_err();
        assert!(error.to_string().contains("kubelet.conf"), "{error}");
        fs::write(&file, "apiVersion: v1\nkind: Config\ncurrent-context: x\n").unwrap();
        let error = load(Disk::default(), &file).await.unwrap_err();
        assert!(error.to_string().contains("kubelet.conf"), "{error}");
    }
}
