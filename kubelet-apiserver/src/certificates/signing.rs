//! [`Signing`]: the settings of the signer.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::signer::{DURATION, Signer};
use crate::server::{ApiServer, ApiServerBuilder};

/// The settings of the signer.
#[derive(Debug)]
pub(crate) struct Signing {
    signs: bool,
    approves: bool,
    duration: SignedDuration,
}

impl Default for Signing {
    fn default() -> Self {
        Signing {
            signs: false,
            approves: false,
            duration: DURATION,
        }
    }
}

impl Signing {
    /// A new authority, if the server is to sign certificates. Its key is drawn from `rng`.
    pub(crate) fn signer(&self, rng: &mut fastrand::Rng, now: Timestamp) -> Option<Signer> {
        if !self.signs {
            return None;
        }
        // An Ed25519 key can be made of any 32 bytes: there is always one.
        let signer = Signer::new(&mut rng.fork(), now, self.duration).ok()?;
        Some(signer.approving(self.approves))
    }
}

/// The name of the authority in a storage.
const AUTHORITY: &str = "authority";

/// An authority, and what to write to the storage before it is used.
type Kept = (Signer, Option<BTreeMap<String, Option<Vec<u8>>>>);

impl Signing {
    /// The authority of a storage, or a new one with a secret key; `None` if the server is to sign nothing.
    pub(crate) fn kept(
        &self,
        entries: &BTreeMap<String, Vec<u8>>,
        now: Timestamp,
    ) -> Option<Result<Kept, String>> {
        self.signs.then(|| {
            let (signer, new) = match entries.get(AUTHORITY) {
                Some(entry) => (
                    Signer::from_pem(&String::from_utf8_lossy(entry), self.duration),
                    false,
                ),
                None => (Signer::secret(now, self.duration), true),
            };
            let signer = signer
                .map_err(|error| error.to_string())?
                .approving(self.approves);
            let entry = || BTreeMap::from([(AUTHORITY.to_owned(), Some(signer.to_pem().into_bytes()))]);
            let entry = new.then(entry);
            Ok((signer, entry))
        })
    }
}

impl ApiServerBuilder {
    /// Approves and signs certificate signing requests as the controller manager does: it approves client
    /// certificates of kubelets at once, and signs their serving certificates after approval. Without this setting,
    /// requests stay pending.
    #[must_use]
    pub fn sign_certificates(mut self) -> Self {
        self.signing.signs = true;
        self.signing.approves = true;
        self
    }

    /// Signs certificate signing requests that are approved, and approves none.
    #[must_use]
    pub fn sign_approved_certificates(mut self) -> Self {
        self.signing.signs = true;
        self.signing.approves = false;
        self
    }

    /// Sets how long certificates are valid, unless the request asks for less (`--cluster-signing-duration`). The
    /// default is one year.
    #[must_use]
    pub fn signing_duration(mut self, duration: Duration) -> Self {
        self.signing.duration = duration.try_into().unwrap_or(SignedDuration::MAX);
        self
    }
}

impl ApiServer {
    /// The certificate of the authority, as PEM. It signs the certificates of nodes, and the one that the server uses for
    /// its requests to nodes (the user `kube-apiserver-kubelet-client` in the group `system:masters`). A node that has it
    /// as `clientCAFile` trusts both. `None` without
    /// [`sign_certificates`](ApiServerBuilder::sign_certificates).
    pub fn certificate_authority(&self) -> Option<&str> {
        self.shared.signer.as_ref().map(Signer::certificate)
    }
}
