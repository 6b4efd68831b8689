//! Finds the credentials of registries for an image (`DockerKeyring`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_core::Disk;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::docker_config::{DockerConfig, Login, parse_config_json, parse_dockercfg};
use super::registry_url::{location_key, urls_match};
use crate::config::go_string;
use kubelet_cri::v1;

/// The name of Docker Hub in configurations (`defaultRegistryHost`).
const DEFAULT_REGISTRY_HOST: &str = "index.docker.io";
/// How long the node's own credentials are cached (`NewDefaultDockerKeyring`).
const NODE_CONFIG_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The object that credentials come from (`CredentialSource`). Credentials without a source are for every pod of the
/// node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A pull secret.
    Secret(Coordinates),
    /// The service account whose token a credential provider plugin got.
    ServiceAccount(Coordinates),
}

/// Names an object of the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Coordinates {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Coordinates {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// Credentials, and where they come from (`TrackedAuthConfig`).
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) login: Login,
    pub(super) source: Option<Arc<Source>>,
}

impl Credentials {
    pub(super) fn auth_config(&self) -> v1::AuthConfig {
        v1::AuthConfig {
            username: self.login.username.clone(),
            password: self.login.password.clone(),
            ..Default::default()
        }
    }

    /// The hash identifies the credentials without storing them (`hashAuthConfig`).
    pub(super) fn hash(&self) -> String {
        let Login {
            username,
            password,
            email,
        } = &self.login;
        let fields = [("username", username), ("password", password), ("email", email)];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let fields: Vec<String> = fields
            .map(|(name, value)| format!("{:?}:{}", name, go_string(value)))
            .collect();
        hex(&Sha256::digest(format!("{{{}}}", fields.join(","))))
    }
}

kubelet_core::impl_debug!(Credentials: source);

/// As Go prints bytes with `%x`.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Credentials by location (`BasicDockerKeyring`).
#[derive(Default)]
pub(crate) struct Keyring {
    by_location: BTreeMap<String, Vec<Credentials>>,
}

impl Keyring {
    /// The credentials of a pod's pull secrets. Secrets of other types are skipped (`MakeDockerKeyring`).
    ///
    /// # Errors
    ///
    /// The first secret that cannot be read, and why.
    pub(super) fn of_secrets(secrets: &[Arc<Secret>]) -> Result<Self, String> {
        let mut keyring = Self::default();
        for secret in secrets {
            let data = |key: &str| {
                let value = secret.data.as_ref()?.get(key)?;
                Some(value.0.as_slice()).filter(|value| !value.is_empty())
            };
            let parsed = match secret.type_.as_deref() {
                Some("kubernetes.io/dockerconfigjson") => data(".dockerconfigjson").map(parse_config_json),
                Some("kubernetes.io/dockercfg") => data(".dockercfg").map(parse_dockercfg),
                _ => None,
            };
            let Some(parsed) = parsed else { continue };
            let coordinates = Coordinates::of(&secret.metadata);
            let config = parsed.map_err(|problem| {
                format!("secret {}/{}: {problem}", coordinates.namespace, coordinates.name)
            })?;
            keyring.add(Some(Arc::new(Source::Secret(coordinates))), config);
        }
        Ok(keyring)
    }

    /// Adds credentials. A location that is not a URL is logged and skipped.
    pub(crate) fn add(&mut self, source: Option<Arc<Source>>, config: DockerConfig) {
        for (location, login) in config {
            let Some(key) = location_key(&location) else {
                tracing::warn!(location, "skipping credentials: their location is not a URL");
                continue;
            };
            self.by_location.entry(key).or_default().push(Credentials {
                login,
                source: source.clone(),
            });
        }
    }

    /// All credentials that match the image, longest location first (`Lookup`). `repository` is the full image name
    /// without tag and digest.
    pub(super) fn lookup(&self, repository: &str) -> Vec<Credentials> {
        let locations = self.by_location.iter().rev();
        let found: Vec<Credentials> = locations
            .filter(|(location, _)| urls_match(location, repository))
            .flat_map(|(_, credentials)| credentials.iter().cloned())
            .collect();
        if found.is_empty()
            && is_of_default_registry(repository)
            && let Some(credentials) = self.by_location.get(DEFAULT_REGISTRY_HOST)
        {
            return credentials.clone();
        }
        found
    }
}

/// `isDefaultRegistryMatch`
fn is_of_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("docker.io" | DEFAULT_REGISTRY_HOST, _)) => true,
        Some((first, _)) => !first.is_empty() && !first.contains(['.', ':']),
    }
}

/// The credentials that the node itself has in files (`NewDefaultDockerKeyring`).
pub(super) struct NodeKeyring {
    files: Vec<PathBuf>,
    disk: Disk,
    read: Mutex<Option<(Instant, Arc<Keyring>)>>,
}

impl NodeKeyring {
    pub(super) fn new(files: Vec<PathBuf>, disk: Disk) -> Self {
        Self {
            files,
            disk,
            read: Mutex::default(),
        }
    }

    /// The kubelet's places for these files.
    pub(super) fn default_files(root_dir: &Path) -> Vec<PathBuf> {
        let home = std::env::home_dir();
        let json = home.iter().map(|home| home.join(".docker"));
        let json = [root_dir.to_owned()]
            .into_iter()
            .chain(json)
            .chain(["/.docker".into()]);
        let cfg = [root_dir.to_owned()].into_iter().chain(home.clone());
        let cfg = cfg.chain(["/".into()]);
        json.map(|dir| dir.join("config.json"))
            .chain(cfg.map(|dir| dir.join(".dockercfg")))
            .collect()
    }

    /// The credentials of the files, cached for a few minutes.
    pub(super) async fn keyring(&self) -> Arc<Keyring> {
        if let Some((at, keyring)) = &*self.read.lock()
            && at.elapsed() < NODE_CONFIG_LIFETIME
        {
            return keyring.clone();
        }
        let files = self.files.clone();
        let read = self
            .disk
            .run(move || Ok(files.iter().find_map(|file| read(file))));
        let mut keyring = Keyring::default();
        if let Ok(Some(config)) = read.await {
            keyring.add(None, config);
        }
        let keyring = Arc::new(keyring);
        *self.read.lock() = Some((Instant::now(), keyring.clone()));
        keyring
    }
}

/// `None` if the file does not exist, or if it is invalid, which is logged.
fn read(file: &Path) -> Option<DockerConfig> {
    let config = match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => Err(error.to_string()),
        Ok(json) if file.ends_with(".dockercfg") => parse_dockercfg(&json),
        Ok(json) => parse_config_json(&json),
    };
    config
        .inspect_err(|problem| {
            tracing::warn!(file = %file.display(), problem, "cannot read the node's credentials for registries");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(name: &str, type_: &str, key: &str, json: &str) -> Arc<Secret> {
        let mut secret = Secret {
            type_: Some(type_.into()),
            data: Some([(key.to_owned(), ByteString(json.into()))].into()),
            ..Default::default()
        };
        secret.metadata.name = Some(name.into());
        secret.metadata.namespace = Some("ns".into());
        secret.metadata.uid = Some(format!("uid-of-{name}"));
        Arc::new(secret)
    }

    fn json_secret(name: &str, json: &str) -> Arc<Secret> {
        let json = format!(r#"{{"auths": {json}}}"#);
        secret(name, "kubernetes.io/dockerconfigjson", ".dockerconfigjson", &json)
    }

    fn users(keyring: &Keyring, repository: &str) -> Vec<String> {
        let found = keyring.lookup(repository).into_iter();
        found.map(|credentials| credentials.login.username).collect()
    }

    #[test]
    fn the_longest_location_comes_first() {
        let secrets = [
            json_secret(
                "one",
                r#"{"r.io": {"username": "a"}, "r.io/team": {"username": "b"}, "r*.io": {"username": "c"}}"#,
            ),
            secret(
                "two",
                "kubernetes.io/dockercfg",
                ".dockercfg",
                r#"{"https://r.io/v2/": {"username": "d"}}"#,
            ),
            secret("other", "Opaque", ".dockerconfigjson", "no JSON"),
            json_secret("hub", r#"{"https://index.docker.io/v1/": {"username": "hub"}}"#),
        ];
        let keyring = Keyring::of_secrets(&secrets).unwrap();
        let cases: [(&str, &[&str]); 6] = [
            ("r.io/team/app", &["b", "a", "d", "c"]),
            ("r.io/app", &["a", "d", "c"]),
            ("rq.io/app", &["c"]),
            ("docker.io/library/busybox", &["hub"]),
            ("index.docker.io/library/busybox", &["hub"]),
            ("q.example/app", &[]),
        ];
        for (repository, expected) in cases {
            assert_eq!(users(&keyring, repository), expected, "{repository}");
        }
        let source = keyring.lookup("rq.io/app")[0].source.clone();
        let coordinates = Coordinates::of(&secrets[0].metadata);
        assert_eq!(coordinates.uid, "uid-of-one");
        assert_eq!(source.as_deref(), Some(&Source::Secret(coordinates)));
    }

    #[test]
    fn a_secret_that_cannot_be_read_is_named() {
        let secrets = [json_secret("good", "{}"), json_secret("bad", "[]")];
        let problem = Keyring::of_secrets(&secrets).err();
        assert_eq!(
            problem.as_deref(),
            Some("secret ns/bad: the Docker configuration is not an object")
        );
    }

    #[test]
    fn credentials_are_known_by_the_kubelets_hash() {
        let credentials = |username: &str, password: &str, email: &str| Credentials {
            login: Login {
                username: username.into(),
                password: password.into(),
                email: email.into(),
            },
            source: None,
        };
        // `printf '{"username":"u","password":"p"}' | sha256sum`
        assert_eq!(
            credentials("u", "p", "").hash(),
            hex(&Sha256::digest(br#"{"username":"u","password":"p"}"#))
        );
        assert_eq!(
            credentials("u", "<p>", "e").hash(),
            hex(&Sha256::digest(
                br#"{"username":"u","password":"\u003cp\u003e","email":"e"}"#
            ))
        );
        assert_eq!(credentials("", "", "").hash(), hex(&Sha256::digest(b"{}")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_nodes_own_are_read_again_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let (json, cfg) = (dir.path().join("config.json"), dir.path().join(".dockercfg"));
        std::fs::write(&cfg, r#"{"r.io": {"username": "old"}}"#).unwrap();
        let node = NodeKeyring::new(vec![json.clone(), cfg], Disk::inline());
        assert_eq!(users(&*node.keyring().await, "r.io/a"), ["old"]);
        std::fs::write(&json, r#"{"auths": {"r.io": {"username": "new"}}}"#).unwrap();
        assert_eq!(users(&*node.keyring().await, "r.io/a"), ["old"]);
        tokio::time::advance(NODE_CONFIG_LIFETIME).await;
        assert_eq!(users(&*node.keyring().await, "r.io/a"), ["new"]);
    }

    #[test]
    fn the_kubelets_files_are_looked_for() {
        let files = NodeKeyring::default_files(Path::new("/var/lib/kubelet"));
        assert_eq!(files[0], Path::new("/var/lib/kubelet/config.json"));
        assert_eq!(files.last().unwrap(), Path::new("/.dockercfg"));
        assert!(files.contains(&"/.docker/config.json".into()));
    }
}
