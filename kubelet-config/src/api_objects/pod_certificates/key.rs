//! The private key of a request, and the proof that the node has it.

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519,
};

/// How a private Ed25519 key of 32 bytes begins in PKCS #8, version 1 (RFC 8410).
const ED25519_V1: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// Where the 32 bytes are in version 2, which also has the public key.
const ED25519_IN_V2: std::ops::Range<usize> = 16..48;

/// A new key, and an empty certificate signing request that it signed (`generateKeyAndProof`).
pub(super) struct KeyAndProof {
    /// PKCS #8, PEM.
    pub(super) key: Vec<u8>,
    /// PKCS #10, DER.
    pub(super) proof: Vec<u8>,
}

/// Why there is no key.
#[derive(Debug)]
pub(super) enum NoKey {
    /// This type is not supported. It is of no use to try again.
    Unsupported(String),
    /// The random numbers or the library failed.
    Failed(String),
}

impl KeyAndProof {
    /// Generates a key of a type, as `keyType` of a source names it.
    pub(super) fn generate(key_type: &str) -> Result<Self, NoKey> {
        let algorithm = match key_type {
            "ED25519" => &PKCS_ED25519,
            "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
            "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
            "ECDSAP521" | "RSA3072" | "RSA4096" => {
                return Err(NoKey::Unsupported(format!(
                    "key type {key_type:?} is not supported on this node, use ED25519, ECDSAP256 or ECDSAP384"
                )));
            }
            unknown => return Err(NoKey::Unsupported(format!("unknown key type {unknown:?}"))),
        };
        let failed = |error: rcgen::Error| NoKey::Failed(format!("while generating keypair: {error}"));
        let key = KeyPair::generate_for(algorithm).map_err(failed)?;
        let mut request = CertificateParams::default();
        request.distinguished_name = DistinguishedName::new();
        let proof = request.serialize_request(&key).map_err(failed)?;
        let der = match key_type {
            "ED25519" => ed25519_v1(key.serialized_der())?,
            _ => key.serialize_der(),
        };
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        Ok(Self {
            key: pem::encode_config(&pem::Pem::new("PRIVATE KEY", der), lines).into_bytes(),
            proof: proof.der().to_vec(),
        })
    }
}

/// The key in version 1 of PKCS #8, as the kubelet writes it. Many libraries, OpenSSL 3.0 among them, do not read version 2.
fn ed25519_v1(v2: &[u8]) -> Result<Vec<u8>, NoKey> {
    let secret = v2.get(ED25519_IN_V2);
    let secret = secret.filter(|_| v2.get(5..16) == ED25519_V1.get(5..16));
    let secret =
        secret.ok_or_else(|| NoKey::Failed("while generating keypair: unexpected encoding".to_owned()))?;
    Ok([ED25519_V1.as_slice(), secret].concat())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequestParams, PublicKeyData};

    use super::*;

    #[test]
    fn a_key_signs_an_empty_request() {
        for key_type in ["ED25519", "ECDSAP256", "ECDSAP384"] {
            let KeyAndProof { key, proof } = KeyAndProof::generate(key_type).unwrap();
            // This checks the signature.
            let request = CertificateSigningRequestParams::from_der(&proof.into()).unwrap();
            assert_eq!(request.params.distinguished_name, DistinguishedName::new());
            let text = String::from_utf8(key).unwrap();
            assert!(
                text.starts_with("-----BEGIN PRIVATE KEY-----\n")
                    && text.ends_with("-----END PRIVATE KEY-----\n")
            );
            let key = KeyPair::from_pem(&text).unwrap();
            assert_eq!(
                key.der_bytes(),
                request.public_key.der_bytes(),
                "{key_type}: it is the key of the request"
            );
            let der = pem::parse(&text).unwrap().into_contents();
            let version = &der[if der[1] < 0x80 { 2 } else { 3 }..][..3];
            assert_eq!(version, [2, 1, 0], "{key_type}: version 1");
        }
    }

    #[test]
    fn other_types_are_refused() {
        for key_type in ["RSA3072", "RSA4096", "ECDSAP521", "DSA", ""] {
            let refused = KeyAndProof::generate(key_type).err();
            assert!(
                matches!(refused, Some(NoKey::Unsupported(why)) if why.contains(key_type)),
                "{key_type}"
            );
        }
    }
}
