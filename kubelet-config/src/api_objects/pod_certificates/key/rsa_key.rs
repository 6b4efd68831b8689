//! RSA keys, which `ring` uses but does not generate.

use p521::elliptic_curve::common::getrandom::SysRng;
use rcgen::{PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey};
use rsa::pkcs1::EncodeRsaPublicKey;
use rsa::pkcs8::EncodePrivateKey;
use rsa::sha2::{Digest, Sha256};
use rsa::{Pkcs1v15Sign, PrivateKey};

use super::{KeyAndProof, NoKey, failed, proof};

/// A key that signs as the kubelet's do: SHA-256 with PKCS #1, version 1.5.
struct RsaKey {
    private: PrivateKey,
    /// PKCS #1, DER.
    public: Vec<u8>,
}

/// Generates a key of so many bits. This takes seconds, and some keys take much longer than others.
pub(super) fn generate(bits: usize) -> Result<KeyAndProof, NoKey> {
    let private = PrivateKey::new(&mut SysRng, bits).map_err(failed)?;
    let public = private.to_public_key().to_pkcs1_der().map_err(failed)?.into_vec();
    let key = RsaKey { private, public };
    let pkcs8 = key.private.to_pkcs8_der().map_err(failed)?;
    Ok(KeyAndProof::new(pkcs8.as_bytes(), proof(&key)?))
}

impl PublicKeyData for RsaKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

impl SigningKey for RsaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let padding = Pkcs1v15Sign::new::<Sha256>();
        let signed = self
            .private
            .sign_with_rng(&mut SysRng, padding, &Sha256::digest(message));
        signed.map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
