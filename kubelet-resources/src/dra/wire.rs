//! Claims and devices as messages of the protocol, and what is wrong with an answer.

use super::claim::{ClaimState, Device};
use super::v1;
use crate::{Error, Result};

pub(super) fn claim(state: &ClaimState) -> v1::Claim {
    v1::Claim {
        namespace: state.namespace.clone(),
        uid: state.claim_uid.clone(),
        name: state.claim_name.clone(),
    }
}

/// An empty list is `null` in the state file, as the kubelet writes it.
pub(super) fn device(device: &v1::Device) -> Device {
    let list = |items: &[String]| Some(items.to_vec()).filter(|items| !items.is_empty());
    Device {
        pool_name: device.pool_name.clone(),
        device_name: device.device_name.clone(),
        share_id: device.share_id.clone(),
        request_names: list(&device.request_names),
        cdi_device_ids: list(&device.cdi_device_ids),
    }
}

/// Checks the results of a call: the UIDs of claims, each with an error or an empty text. Each claim of the request has to have one.
pub(super) fn check<'a>(
    method: &str,
    claims: &[v1::Claim],
    results: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    let answered = results.len();
    for (uid, error) in results {
        let Some(claim) = claims.iter().find(|claim| claim.uid == uid) else {
            return Err(Error::Claims(format!(
                "{method} returned result for unknown claim UID {uid}"
            )));
        };
        if !error.is_empty() {
            return Err(Error::Claims(format!(
                "{method} failed for ResourceClaim {}: {error}",
                claim.name
            )));
        }
    }
    match claims.len().saturating_sub(answered) {
        0 => Ok(()),
        skipped => Err(Error::Claims(format!(
            "{method} skipped {skipped} ResourceClaims"
        ))),
    }
}
