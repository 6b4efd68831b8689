//! The content of a record: exactly the kubelet's files in `image_manager` (`kubelet.config.k8s.io/v1beta1`), so that
//! this agent and a kubelet can each read the records of the other.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::super::keyring::{Coordinates, Credentials, Source};

/// The version that is written.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The versions that are read.
const READ_VERSIONS: [&str; 2] = [API_VERSION, "kubelet.config.k8s.io/v1alpha1"];

/// An object with its kind and version.
#[derive(Serialize, Deserialize)]
struct Typed<T> {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(flatten)]
    object: T,
}

/// An image is being pulled (`ImagePullIntent`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImagePullIntent {
    /// The image name in a container's spec.
    pub(super) image: String,
}

/// An image was pulled (`ImagePulledRecord`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImagePulledRecord {
    pub(super) last_updated_time: Time,
    /// The image reference of the runtime.
    pub(super) image_ref: String,
    /// The credentials of pulls, by image name in specs without tag and digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) credential_mapping: BTreeMap<String, ImagePullCredentials>,
}

/// `ImagePullCredentials`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ImagePullCredentials {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_secrets: Vec<ImagePullSecret>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_service_accounts: Vec<ImagePullServiceAccount>,
    /// Pulled without credentials, or with the node's: any pod may use the image.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_pods_accessible: bool,
}

/// In the kubelet's sort order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ImagePullSecret {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) credential_hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImagePullServiceAccount {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// An object that is stored in a file.
pub(super) trait Record: Serialize + for<'de> Deserialize<'de> {
    const KIND: &'static str;

    fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut json = serde_json::to_vec(&Typed {
            kind: Self::KIND.to_owned(),
            api_version: API_VERSION.to_owned(),
            object: self,
        })?;
        json.push(b'\n');
        Ok(json)
    }

    fn from_json(json: &[u8]) -> Result<Self, String> {
        let typed: Typed<Self> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let known = typed.kind == Self::KIND && READ_VERSIONS.contains(&typed.api_version.as_str());
        known.then_some(typed.object).ok_or_else(|| {
            format!(
                "not a {} but a {} of {}",
                Self::KIND,
                typed.kind,
                typed.api_version
            )
        })
    }
}

impl Record for ImagePullIntent {
    const KIND: &'static str = "ImagePullIntent";
}

impl Record for ImagePulledRecord {
    const KIND: &'static str = "ImagePulledRecord";
}

impl ImagePullCredentials {
    /// Whether it names neither a secret nor a service account.
    pub(super) fn names_nobody(&self) -> bool {
        self.kubernetes_secrets.is_empty() && self.kubernetes_service_accounts.is_empty()
    }

    /// From the credentials of a pull (`trackedToImagePullCreds`).
    pub(super) fn of(used: Option<&Credentials>) -> Self {
        let (secret, account) = (
            used.and_then(ImagePullSecret::of),
            used.and_then(ImagePullServiceAccount::of),
        );
        Self {
            node_pods_accessible: secret.is_none() && account.is_none(),
            kubernetes_secrets: secret.into_iter().collect(),
            kubernetes_service_accounts: account.into_iter().collect(),
        }
    }
}

impl ImagePullSecret {
    /// `None` for credentials that are not from a secret.
    pub(super) fn of(credentials: &Credentials) -> Option<Self> {
        let Some(Source::Secret(Coordinates { uid, namespace, name })) = credentials.source.as_deref() else {
            return None;
        };
        Some(Self {
            uid: uid.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            credential_hash: credentials.hash(),
        })
    }

    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

impl ImagePullServiceAccount {
    /// `None` for credentials that are not from the token of a service account.
    pub(super) fn of(credentials: &Credentials) -> Option<Self> {
        let Some(Source::ServiceAccount(Coordinates { uid, namespace, name })) =
            credentials.source.as_deref()
        else {
            return None;
        };
        Some(Self {
            uid: uid.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
        })
    }
}

impl ImagePulledRecord {
    /// Adds the credentials of a pull of `image`; returns whether this changed the record
    /// (`pulledRecordMergeNewCreds`).
    pub(super) fn merge(&mut self, image: &str, new: ImagePullCredentials) -> bool {
        let Some(known) = self.credential_mapping.get_mut(image) else {
            self.credential_mapping.insert(image.to_owned(), new);
            return true;
        };
        if known.node_pods_accessible {
            return false;
        }
        if new.node_pods_accessible {
            *known = new;
            return true;
        }
        let mut changed = false;
        for secret in new.kubernetes_secrets {
            if known.kubernetes_secrets.contains(&secret) {
                continue;
            }
            known
                .kubernetes_secrets
                .retain(|old| !old.is_same_object(&secret));
            known.kubernetes_secrets.push(secret);
            changed = true;
        }
        for account in new.kubernetes_service_accounts {
            if !known.kubernetes_service_accounts.contains(&account) {
                known.kubernetes_service_accounts.push(account);
                changed = true;
            }
        }
        known
            .kubernetes_secrets
            .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        known
            .kubernetes_service_accounts
            .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_kubelet() {
        let secret = ImagePullSecret {
            uid: "u".into(),
            namespace: "ns".into(),
            name: "s".into(),
            credential_hash: "h".into(),
        };
        let mut record = ImagePulledRecord {
            last_updated_time: Time("2026-01-02T03:04:05Z".parse().unwrap()),
            image_ref: "sha256:1".into(),
            credential_mapping: BTreeMap::new(),
        };
        assert!(record.merge("r.io/a", ImagePullCredentials::of(None)));
        let with_secret = ImagePullCredentials {
            kubernetes_secrets: vec![secret],
            ..Default::default()
        };
        assert!(record.merge("r.io/b", with_secret));
        let json = concat!(
            r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","#,
            r#""lastUpdatedTime":"2026-01-02T03:04:05Z","imageRef":"sha256:1","credentialMapping":{"#,
            r#""r.io/a":{"nodePodsAccessible":true},"#,
            r#""r.io/b":{"kubernetesSecrets":[{"uid":"u","namespace":"ns","name":"s","credentialHash":"h"}]}}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(record.to_json().unwrap()).unwrap(), json);
        assert_eq!(ImagePulledRecord::from_json(json.as_bytes()), Ok(record));
        let older = json.replace("v1beta1", "v1alpha1");
        assert!(ImagePulledRecord::from_json(older.as_bytes()).is_ok());
        assert!(ImagePullIntent::from_json(json.as_bytes()).is_err());

        let intent = ImagePullIntent {
            image: "r.io/a:1".into(),
        };
        let json =
            r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.io/a:1"}"#;
        assert_eq!(intent.to_json().unwrap(), format!("{json}\n").into_bytes());
    }

    #[test]
    fn credentials_are_merged() {
        let secret = |name: &str, hash: &str| ImagePullSecret {
            uid: name.into(),
            namespace: "ns".into(),
            name: name.into(),
            credential_hash: hash.into(),
        };
        let of = |secret: ImagePullSecret| ImagePullCredentials {
            kubernetes_secrets: vec![secret],
            ..Default::default()
        };
        let mut record = ImagePulledRecord {
            last_updated_time: Time(Default::default()),
            image_ref: "sha256:1".into(),
            credential_mapping: BTreeMap::new(),
        };
        assert!(record.merge("a", of(secret("y", "1"))));
        assert!(!record.merge("a", of(secret("y", "1"))));
        assert!(record.merge("a", of(secret("x", "1"))), "another secret");
        assert!(record.merge("a", of(secret("y", "2"))), "the secret changed");
        assert_eq!(
            record.credential_mapping["a"].kubernetes_secrets,
            [secret("x", "1"), secret("y", "2")]
        );
        let account = |name: &str| ImagePullServiceAccount {
            uid: name.into(),
            namespace: "ns".into(),
            name: name.into(),
        };
        let of_account = |name: &str| ImagePullCredentials {
            kubernetes_service_accounts: vec![account(name)],
            ..Default::default()
        };
        assert!(record.merge("a", of_account("z")));
        assert!(!record.merge("a", of_account("z")));
        assert!(record.merge("a", of_account("w")));
        let known = &record.credential_mapping["a"];
        assert_eq!(known.kubernetes_service_accounts, [account("w"), account("z")]);
        assert_eq!(known.kubernetes_secrets.len(), 2);
        assert!(record.merge("a", ImagePullCredentials::of(None)));
        assert!(!record.merge("a", of(secret("x", "1"))), "any pod may use it");
        assert!(record.credential_mapping["a"].names_nobody());
    }
}
