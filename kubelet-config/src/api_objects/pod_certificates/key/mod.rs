//! The private key of a request, and the proof that the node has it.

mod p521_key;
mod rsa_key;

use std::fmt::Display;

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, SigningKey,
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
    /// Generates a key of a type, as `keyType` of a source names it. An RSA key takes seconds of CPU time.
    pub(super) fn generate(key_type: &str) -> Result<Self, NoKey> {
        let algorithm = match key_type {
            "ED25519" => &PKCS_ED25519,
            "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
            "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
            "ECDSAP521" => return p521_key::generate(),
            "RSA3072" => return rsa_key::generate(3072),
            "RSA4096" => return rsa_key::generate(4096),
            unknown => return Err(NoKey::Unsupported(format!("unknown key type {unknown:?}"))),
        };
        let key = KeyPair::generate_for(algorithm).map_err(failed)?;
        let proof = proof(&key)?;
        match key_type {
            "ED25519" => Ok(Self::new(&ed25519_v1(key.serialized_der())?, proof)),
            _ => Ok(Self::new(key.serialized_der(), proof)),
        }
    }

    fn new(pkcs8: &[u8], proof: Vec<u8>) -> Self {
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let key = pem::encode_config(&pem::Pem::new("PRIVATE KEY", pkcs8), lines).into_bytes();
        Self { key, proof }
    }
}

/// An empty certificate signing request.
fn proof(key: &impl SigningKey) -> Result<Vec<u8>, NoKey> {
    let mut request = CertificateParams::default();
    request.distinguished_name = DistinguishedName::new();
    let request = request.serialize_request(key).map_err(failed)?;
    Ok(request.der().to_vec())
}

fn failed(error: impl Display) -> NoKey {
    NoKey::Failed(format!("while generating keypair: {error}"))
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
    use p521::pkcs8::DecodePrivateKey;
    use p521::pkcs8::der::asn1::{AnyRef, BitStringRef};
    use p521::pkcs8::der::{Decode, Encode, Reader, SliceReader};
    use rcgen::{CertificateSigningRequestParams, PublicKeyData};
    use rsa::traits::PublicKeyParts;

    use super::*;

    fn pkcs8(key: Vec<u8>, key_type: &str) -> Vec<u8> {
        let text = String::from_utf8(key).unwrap();
        assert!(
            text.starts_with("-----BEGIN PRIVATE KEY-----\n")
                && text.ends_with("-----END PRIVATE KEY-----\n")
        );
        let der = pem::parse(&text).unwrap().into_contents();
        // The length of a sequence has one to three bytes.
        let version = match der[1] {
            0x82 => &der[4..7],
            0x81 => &der[3..6],
            _ => &der[2..5],
        };
        assert_eq!(version, [2, 1, 0], "{key_type}: version 1");
        der
    }

    #[test]
    fn a_key_signs_an_empty_request() {
        for key_type in ["ED25519", "ECDSAP256", "ECDSAP384", "RSA3072", "RSA4096"] {
            let KeyAndProof { key, proof } = KeyAndProof::generate(key_type).unwrap();
            // This checks the signature.
            let request = CertificateSigningRequestParams::from_der(&proof.into()).unwrap();
            assert_eq!(request.params.distinguished_name, DistinguishedName::new());
            let key = pkcs8(key, key_type);
            let public = match key_type {
                "RSA3072" | "RSA4096" => {
                    let key = rsa::PrivateKey::from_pkcs8_der(&key).unwrap();
                    assert_eq!(format!("RSA{}", key.n().bit_width()), key_type);
                    rsa::pkcs1::EncodeRsaPublicKey::to_pkcs1_der(&key.to_public_key())
                        .unwrap()
                        .into_vec()
                }
                _ => KeyPair::try_from(key).unwrap().der_bytes().to_vec(),
            };
            let of_request = request.public_key.der_bytes();
            assert_eq!(public, of_request, "{key_type}: it is the key of the request");
        }
    }

    /// The library that reads requests does not know the curve.
    #[test]
    fn a_p521_key_signs_an_empty_request() {
        use p521::ecdsa::signature::Verifier;
        use p521::pkcs8::DecodePublicKey;

        let KeyAndProof { key, proof } = KeyAndProof::generate("ECDSAP521").unwrap();
        let parts = |der: AnyRef<'_>| {
            let mut reader = SliceReader::new(der.value()).unwrap();
            let mut parts = Vec::new();
            while !reader.is_finished() {
                parts.push(AnyRef::decode(&mut reader).unwrap().to_der().unwrap());
            }
            parts
        };
        let [info, algorithm, signature] = parts(AnyRef::from_der(&proof).unwrap()).try_into().unwrap();
        let [version, subject, public, attributes] =
            parts(AnyRef::from_der(&info).unwrap()).try_into().unwrap();
        assert_eq!((version, subject), (vec![2, 1, 0], vec![0x30, 0]));
        assert_eq!(
            attributes,
            [0xa0, 0],
            "no attributes, not even an empty list of extensions"
        );
        assert_eq!(algorithm, [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4]);
        let public = p521::ecdsa::VerifyingKey::from_public_key_der(&public).unwrap();
        let signature = BitStringRef::from_der(&signature).unwrap();
        let signature = p521::ecdsa::DerSignature::try_from(signature.raw_bytes()).unwrap();
        public.verify(&info, &signature).unwrap();
        let key = p521::SecretKey::from_pkcs8_der(&pkcs8(key, "ECDSAP521")).unwrap();
        assert_eq!(p521::ecdsa::VerifyingKey::from(key.public_key()), public);
    }

    #[test]
    fn other_types_are_refused() {
        for key_type in ["RSA2048", "ECDSAP224", "ecdsap256", "DSA", ""] {
            let refused = KeyAndProof::generate(key_type).err();
            let expected = format!("unknown key type {key_type:?}");
            assert!(
                matches!(refused, Some(NoKey::Unsupported(why)) if why == expected),
                "{key_type}"
            );
        }
    }
}
