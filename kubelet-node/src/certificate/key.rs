//! [`Key`]: a private key, with what a certificate signing request needs.

use std::sync::Arc;

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::SigningKey;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo};

/// A private key of a type that Kubernetes accepts: ECDSA, RSA or Ed25519.
pub(crate) struct Key {
    der: PrivateKeyDer<'static>,
    signing: Arc<dyn SigningKey>,
    /// The public key in PKIX form (`SubjectPublicKeyInfo`).
    public_key_info: Vec<u8>,
    /// The bare public key.
    public_key: Vec<u8>,
    algorithm: &'static rcgen::SignatureAlgorithm,
    scheme: SignatureScheme,
}

impl Key {
    /// A new ECDSA key on P-256, as the kubelet makes.
    ///
    /// # Errors
    ///
    /// The key cannot be made; the text names the reason.
    pub(crate) fn generate() -> Result<Self, String> {
        let key = rcgen::KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
        Self::from_der(PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    /// Reads the first private key of a PEM text. Other blocks are ignored.
    ///
    /// # Errors
    ///
    /// The text names the problem.
    pub(crate) fn from_pem(text: &[u8]) -> Result<Self, String> {
        let der = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => "it holds no private key".to_owned(),
            error => format!("it is not PEM: {error}"),
        })?;
        Self::from_der(der)
    }

    fn from_der(der: PrivateKeyDer<'static>) -> Result<Self, String> {
        let signing = any_supported_type(&der)
            .map_err(|_| "its private key is neither ECDSA (P-256, P-384), RSA nor Ed25519".to_owned())?;
        let (scheme, algorithm) = [
            (SignatureScheme::ECDSA_NISTP256_SHA256, &PKCS_ECDSA_P256_SHA256),
            (SignatureScheme::ECDSA_NISTP384_SHA384, &PKCS_ECDSA_P384_SHA384),
            (SignatureScheme::ED25519, &PKCS_ED25519),
            (SignatureScheme::RSA_PKCS1_SHA256, &PKCS_RSA_SHA256),
        ]
        .into_iter()
        .find(|(scheme, _)| signing.choose_scheme(&[*scheme]).is_some())
        .ok_or("its private key has a type that cannot sign requests")?;
        let public_key_info = signing
            .public_key()
            .map(|info| info.to_vec())
            .ok_or("cannot derive the public key from its private key")?;
        let (_, info) = SubjectPublicKeyInfo::from_der(&public_key_info)
            .map_err(|error| format!("its public key cannot be read: {error}"))?;
        let public_key = info.subject_public_key.data.to_vec();
        Ok(Key {
            der,
            signing,
            public_key_info,
            public_key,
            algorithm,
            scheme,
        })
    }

    /// The key as PEM, in the form in which it was read.
    pub(crate) fn to_pem(&self) -> String {
        let label = match self.der {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        super::pem_block(label, self.der.secret_der())
    }

    /// The public key in PKIX form (`x509.MarshalPKIXPublicKey`).
    pub(crate) fn public_key_info(&self) -> &[u8] {
        &self.public_key_info
    }

    /// Only RSA keys can encipher other keys, so only they have that usage.
    pub(crate) fn is_rsa(&self) -> bool {
        self.signing.algorithm() == rustls::SignatureAlgorithm::RSA
    }

    /// For TLS.
    pub(crate) fn signing_key(&self) -> Arc<dyn SigningKey> {
        self.signing.clone()
    }
}

impl rcgen::PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public_key
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.algorithm
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signer = self
            .signing
            .choose_scheme(&[self.scheme])
            .ok_or(rcgen::Error::RemoteKeyError)?;
        signer.sign(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

kubelet_core::impl_debug!(Key: scheme);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_same_key_after_it_was_written() {
        let key = Key::generate().unwrap();
        let text = key.to_pem();
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{text}");
        let again = Key::from_pem(text.as_bytes()).unwrap();
        assert_eq!(again.public_key_info(), key.public_key_info());
        assert!(!again.is_rsa());
        assert!(!format!("{again:?}").contains("der"));
    }

    #[test]
    fn tells_what_is_wrong() {
        for (text, why) in [
            ("", "it holds no private key"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "it holds no private key",
            ),
            (
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "its private key is neither",
            ),
            ("-----BEGIN PRIVATE KEY-----\nAA", "it is not PEM"),
        ] {
            let error = Key::from_pem(text.as_bytes()).unwrap_err();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
    }

    /// Made by `openssl ecparam -name prime256v1 -genkey`, in the form of Go's `MarshalECPrivateKey`: the file
    /// of a kubelet.
    #[test]
    fn reads_a_kubelets_key() {
        let text = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
            .to_owned()
            + &sec1_of(&Key::generate().unwrap());
        let key = Key::from_pem(text.as_bytes()).unwrap();
        assert!(key.to_pem().starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        assert_eq!(
            Key::from_pem(key.to_pem().as_bytes()).unwrap().public_key_info(),
            key.public_key_info()
        );
    }

    /// PKCS#8 wraps SEC 1.
    fn sec1_of(key: &Key) -> String {
        let pkcs8 = key.der.secret_der();
        let start = pkcs8
            .windows(5)
            .position(|w| w[0] == 0x30 && w[2..] == [2, 1, 1])
            .unwrap();
        super::super::pem_block("EC PRIVATE KEY", &pkcs8[start..])
    }
}
