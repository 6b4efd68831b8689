//! Prepares the claims of a pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodUid;

use super::claim::{ClaimKey, ClaimState, Device};
use super::claims::ClaimInfo;
use super::handle::Shared;
use super::names::{check_owner, claims_of, is_reserved};
use super::{v1, wire};
use crate::{Error, Result};

impl Shared {
    /// Prepares all claims of a pod that are not yet prepared (`Manager.prepareResources`).
    pub(super) async fn prepare(&self, pod: &Pod, uid: &PodUid) -> Result<()> {
        // First everything is checked, and nothing noted: a pod that fails here can be deleted without a call to a driver, which may
        // not even be installed.
        let wanted = self.check(pod, uid).await?;
        if wanted.is_empty() {
            return Ok(());
        }
        let _turn = self.claims.turn(wanted.keys().cloned().collect()).await;
        let to_prepare = self.note(uid, wanted)?;
        // If the pod goes before its claims are prepared, this lets them be unprepared, also after a restart.
        self.file
            .write(&self.claims)
            .await
            .map_err(|error| Error::Claims(format!("checkpoint ResourceClaim cache: {error}")))?;
        for (driver, claims) in self.batches(&to_prepare) {
            self.call_prepare(&driver, claims).await?;
        }
        {
            let mut claims = self.claims.lock();
            for key in &to_prepare {
                let info = claims.by_key.get_mut(key);
                info.ok_or_else(|| missing(key))?.prepared = true;
            }
            claims.count();
        }
        self.file
            .write(&self.claims)
            .await
            .map_err(|error| Error::Claims(format!("checkpoint ResourceClaim state: {error}")))
    }

    /// The pod's claims, each of which the pod may use and all drivers of which are registered.
    async fn check(&self, pod: &Pod, uid: &PodUid) -> Result<BTreeMap<ClaimKey, ClaimState>> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        let mut wanted = BTreeMap::new();
        for name in claims_of(pod, self.gates)? {
            let claim = self.objects.claim(namespace, name.name).await;
            let claim = claim
                .map_err(|error| Error::Claims(format!("fetch ResourceClaim {}: {error}", name.name)))?;
            if name.must_check_owner {
                check_owner(pod, &claim, self.gates)?;
            }
            if !is_reserved(pod, &claim, self.gates) {
                let claim_uid = claim.metadata.uid.as_deref().unwrap_or_default();
                return Err(Error::Claims(format!(
                    "pod {pod_name} ({uid}) is not allowed to use ResourceClaim {} ({claim_uid})",
                    name.name
                )));
            }
            let state = ClaimState::of(&claim)
                .ok_or_else(|| Error::Claims(format!("ResourceClaim {}: not allocated", name.name)))?;
            for driver in state.drivers() {
                // Also if the claim is prepared already: without its driver something is wrong with the node.
                self.plugins.plugin(&driver)?;
            }
            wanted.insert(state.key(), state);
        }
        Ok(wanted)
    }

    /// Notes that the pod uses the claims. Returns those that are not prepared.
    fn note(&self, uid: &PodUid, wanted: BTreeMap<ClaimKey, ClaimState>) -> Result<BTreeSet<ClaimKey>> {
        let mut claims = self.claims.lock();
        for (key, state) in &wanted {
            let known = claims.by_key.get(key).map(|info| &info.state.claim_uid);
            if let Some(old) = known.filter(|known| **known != state.claim_uid) {
                return Err(Error::Claims(format!(
                    "old ResourceClaim with same name {} and different UID {old} still exists (previous pod force-deleted?!)",
                    state.claim_name
                )));
            }
        }
        let mut to_prepare = BTreeSet::new();
        for (key, state) in wanted {
            let info = claims.by_key.entry(key.clone()).or_insert(ClaimInfo {
                state,
                prepared: false,
            });
            info.state.pod_uids.insert(uid.to_string(), Default::default());
            if !info.prepared {
                to_prepare.insert(key);
            }
        }
        Ok(to_prepare)
    }

    /// The claims of each driver.
    pub(super) fn batches(&self, keys: &BTreeSet<ClaimKey>) -> BTreeMap<String, Vec<v1::Claim>> {
        let claims = self.claims.lock();
        let mut batches: BTreeMap<String, Vec<v1::Claim>> = BTreeMap::new();
        for info in keys.iter().filter_map(|key| claims.by_key.get(key)) {
            for driver in info.state.drivers() {
                batches.entry(driver).or_default().push(wire::claim(&info.state));
            }
        }
        batches
    }

    async fn call_prepare(&self, driver: &str, claims: Vec<v1::Claim>) -> Result<()> {
        let plugin = self.plugins.plugin(driver)?;
        let answer = self.plugins.prepare(&plugin, claims.clone()).await?;
        let results = answer
            .claims
            .iter()
            .map(|(uid, result)| (uid.as_str(), result.error.as_str()));
        wire::check("NodePrepareResources", &claims, results)?;
        let mut state = self.claims.lock();
        for claim in &claims {
            let key = (claim.namespace.clone(), claim.name.clone());
            let info = state.by_key.get_mut(&key).ok_or_else(|| missing(&key))?;
            let devices = answer
                .claims
                .get(&claim.uid)
                .map(|result| result.devices.as_slice());
            let devices: Vec<Device> = devices.unwrap_or_default().iter().map(wire::device).collect();
            // They replace those of an earlier answer: a claim may be prepared again after a failure or a restart.
            let of_driver = info.state.driver_state.entry(driver.to_owned()).or_default();
            of_driver.devices = Some(devices).filter(|devices| !devices.is_empty());
        }
        Ok(())
    }
}

fn missing((namespace, name): &ClaimKey) -> Error {
    Error::Claims(format!(
        "internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}"
    ))
}
