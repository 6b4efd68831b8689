//! The claims' state file, `dra_manager_state`.

use serde::{Deserialize, Serialize};

use super::claim::ClaimState;
use crate::checkpoint::Unreadable;
use crate::{Error, Result};

/// The name of the claims' state file (`draManagerStateFileName`).
pub const DRA_MANAGER_STATE: &str = "dra_manager_state";

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    /// JSON of [`Data`].
    #[serde(default)]
    data: String,
    /// CRC-32 (IEEE) of it.
    #[serde(default)]
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    /// `null` in a file that a kubelet created and never changed.
    #[serde(default, rename = "ClaimInfoStateList")]
    claims: Option<Vec<ClaimState>>,
}

/// The contents of the file for these claims, in their order. `None` is the file of a kubelet that starts for the first time.
///
/// # Errors
///
/// None in practice: the claims can be written as JSON.
pub fn write_claims(claims: Option<Vec<ClaimState>>) -> Result<Vec<u8>> {
    let failed = |error: serde_json::Error| Error::Refused(error.to_string());
    let data = Data {
        kind: KIND.to_owned(),
        api_version: API_VERSION.to_owned(),
        claims,
    };
    let data = as_go_writes(serde_json::to_string(&data).map_err(failed)?);
    let checkpoint = Checkpoint {
        checksum: crc32(data.as_bytes()),
        data,
    };
    let text = serde_json::to_string(&checkpoint).map_err(failed)?;
    Ok(as_go_writes(text).into_bytes())
}

/// The claims in the contents of a file. Fields that are not known are ignored, those that are missing are empty.
///
/// # Errors
///
/// With the kubelet's text, if the contents are not JSON or the checksum is wrong.
pub fn read_claims(contents: &[u8]) -> Result<Vec<ClaimState>> {
    let unreadable = |why: Unreadable| {
        Error::Refused(format!(
            "GetOrCreate() on checkpoint state: failed to get checkpoint {DRA_MANAGER_STATE}: {why}"
        ))
    };
    let checkpoint: Checkpoint =
        serde_json::from_slice(contents).map_err(|error| unreadable(error.into()))?;
    if crc32(checkpoint.data.as_bytes()) != checkpoint.checksum {
        return Err(unreadable(Unreadable::Corrupt));
    }
    let data: Data = serde_json::from_str(&checkpoint.data).map_err(|error| {
        Error::Refused(format!("GetEntries() on checkpoint: {}", Unreadable::from(error)))
    })?;
    Ok(data.claims.unwrap_or_default())
}

/// Go escapes these in JSON. They occur only within strings.
pub(super) fn as_go_writes(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// CRC-32 with the polynomial of IEEE 802.3, reversed.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0xedb8_8320;
            }
        }
    }
    !crc
}
