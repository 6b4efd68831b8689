//! ECDSA keys on the curve P-521. Neither `ring` nor `rcgen` knows the curve, so the request is written here.

use p521::SecretKey;
use p521::ecdsa::signature::RandomizedSigner;
use p521::ecdsa::{DerSignature, SigningKey};
use p521::elliptic_curve::Generate;
use p521::elliptic_curve::common::getrandom::SysRng;
use p521::pkcs8::der::asn1::{Any, BitString, ObjectIdentifier};
use p521::pkcs8::der::{Encode, Result, Tag};
use p521::pkcs8::{EncodePrivateKey, EncodePublicKey};

use super::{KeyAndProof, NoKey, failed};

/// `ecdsa-with-SHA512` (RFC 5758).
const ECDSA_WITH_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");
/// The version of a PKCS #10 request, and its subject without names.
const VERSION_AND_SUBJECT: [u8; 5] = [0x02, 0x01, 0x00, 0x30, 0x00];
/// The request has no attributes.
const ATTRIBUTES: [u8; 2] = [0xa0, 0x00];

/// Generates a key.
pub(super) fn generate() -> std::result::Result<KeyAndProof, NoKey> {
    let secret = SecretKey::try_generate().map_err(failed)?;
    let public = secret.public_key().to_public_key_der().map_err(failed)?;
    let info = sequence(&[&VERSION_AND_SUBJECT, public.as_bytes(), &ATTRIBUTES]).map_err(failed)?;
    let key = SigningKey::from(&secret);
    let signature: DerSignature = key.try_sign_with_rng(&mut SysRng, &info).map_err(failed)?;
    let proof = request(&info, signature.as_bytes()).map_err(failed)?;
    let pkcs8 = secret.to_pkcs8_der().map_err(failed)?;
    Ok(KeyAndProof::new(pkcs8.as_bytes(), proof))
}

/// A PKCS #10 request (RFC 2986).
fn request(info: &[u8], signature: &[u8]) -> Result<Vec<u8>> {
    let algorithm = sequence(&[&ECDSA_WITH_SHA512.to_der()?])?;
    let signature = BitString::from_bytes(signature)?.to_der()?;
    sequence(&[info, &algorithm, &signature])
}

fn sequence(parts: &[&[u8]]) -> Result<Vec<u8>> {
    Any::new(Tag::Sequence, parts.concat())?.to_der()
}
