//! Unprepares the claims that a pod was the last to use.

use std::collections::{BTreeMap, BTreeSet};

use kubelet_core::PodUid;

use super::claim::ClaimKey;
use super::handle::Shared;
use super::{v1, wire};
use crate::{Error, Result};

impl Shared {
    /// Unprepares the claims of a pod that no other pod uses (`Manager.unprepareResourcesForPod`). The state says which these are,
    /// so the pod itself is not needed.
    pub(super) async fn unprepare(&self, uid: &PodUid) -> Result<()> {
        let keys = {
            let claims = self.claims.lock();
            let of_pod = claims
                .by_key
                .iter()
                .filter(|(_, info)| info.state.is_used_by(uid));
            of_pod.map(|(key, _)| key.clone()).collect()
        };
        self.unprepare_claims(uid, keys).await
    }

    /// The same for pods that are gone (`Manager.reconcileLoop`). A failure is logged, and tried again in the next round.
    pub(super) async fn reconcile(&self, active: impl FnOnce() -> Option<BTreeSet<PodUid>>) {
        // The claims first: a pod that comes after this look has no claims here, so it is not taken for one that is gone.
        let mut by_pod: BTreeMap<PodUid, BTreeSet<ClaimKey>> = BTreeMap::new();
        for (key, info) in &self.claims.lock().by_key {
            for uid in info.state.pod_uids.keys() {
                let keys = by_pod.entry(PodUid::new(uid)).or_default();
                keys.insert(key.clone());
            }
        }
        if by_pod.is_empty() {
            return;
        }
        let Some(active) = active() else { return };
        for (uid, keys) in by_pod {
            if active.contains(&uid) {
                continue;
            }
            if let Err(error) = self.unprepare_claims(&uid, keys).await {
                tracing::warn!(pod_uid = %uid, %error, "Cannot unprepare the claims of a pod that is gone, will retry");
            }
        }
    }

    async fn unprepare_claims(&self, uid: &PodUid, keys: BTreeSet<ClaimKey>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let _turn = self.claims.turn(keys.clone()).await;
        let last = self.leave_shared(uid, keys);
        for (driver, claims) in self.batches(&last) {
            self.call_unprepare(&driver, claims).await?;
        }
        let mut removed = Vec::new();
        {
            let mut claims = self.claims.lock();
            for key in last {
                let info = claims.by_key.remove(&key);
                removed.extend(info.map(|info| (key, info)));
            }
            claims.count();
        }
        self.file.write(&self.claims).await.map_err(|error| {
            // The claims are still on disk, so they are not yet forgotten here: the next try calls the drivers again.
            self.claims.lock().by_key.extend(removed);
            Error::Claims(format!("checkpoint ResourceClaim state: {error}"))
        })
    }

    /// The pod no longer uses the claims that other pods use. Returns those that it was the last to use.
    fn leave_shared(&self, uid: &PodUid, keys: BTreeSet<ClaimKey>) -> BTreeSet<ClaimKey> {
        let mut claims = self.claims.lock();
        let mut last = BTreeSet::new();
        for key in keys {
            // Another caller may have had the turn before.
            let info = claims.by_key.get_mut(&key);
            let Some(info) = info.filter(|info| info.state.is_used_by(uid)) else {
                continue;
            };
            let others = info.state.pod_uids.keys().any(|user| user != uid.as_str());
            if others {
                info.state.pod_uids.remove(uid.as_str());
                continue;
            }
            // From the first call on, a driver may have unprepared it, whatever it answers. The next pod prepares it again.
            info.prepared = false;
            last.insert(key);
        }
        last
    }

    async fn call_unprepare(&self, driver: &str, claims: Vec<v1::Claim>) -> Result<()> {
        let plugin = self.plugins.plugin(driver)?;
        let answer = self.plugins.unprepare(&plugin, claims.clone()).await?;
        let results = answer
            .claims
            .iter()
            .map(|(uid, result)| (uid.as_str(), result.error.as_str()));
        wire::check("NodeUnprepareResources", &claims, results)
    }
}
