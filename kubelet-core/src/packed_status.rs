//! A pod's API status as it is kept while nobody looks at it.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;

use crate::packed_json;

/// An API status in one short row of bytes, for those who keep one of each pod. Cloning is cheap.
///
/// The type that the API has for it takes ten times as much: most of that is room in maps that hold one entry.
#[derive(Clone, PartialEq)]
pub struct PackedStatus(Packed);

#[derive(Clone, PartialEq)]
enum Packed {
    Json(Arc<[u8]>),
    /// It would not be the same when it was read again.
    Whole(Arc<ApiPodStatus>),
}

impl PackedStatus {
    /// Packs it. What cannot be packed is kept as it is: nothing is ever lost.
    pub fn of(status: &Arc<ApiPodStatus>) -> Self {
        let json = serde_json::to_vec(&**status).ok();
        let json =
            json.filter(|json| serde_json::from_slice(json).is_ok_and(|read: ApiPodStatus| read == **status));
        Self(match json {
            Some(json) => Packed::Json(packed_json::pack(&json)),
            None => Packed::Whole(status.clone()),
        })
    }

    /// One that is kept whole, since somebody keeps it so anyway: nothing is done.
    pub(crate) fn whole(status: Arc<ApiPodStatus>) -> Self {
        Self(Packed::Whole(status))
    }

    /// Whether both were cloned from one: they need not be compared then, or unpacked twice.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Packed::Json(one), Packed::Json(other)) => Arc::ptr_eq(one, other),
            (Packed::Whole(one), Packed::Whole(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The status: some microseconds of work.
    pub fn unpack(&self) -> Arc<ApiPodStatus> {
        match &self.0 {
            // It was read once before, when it was packed.
            Packed::Json(json) => {
                Arc::new(serde_json::from_slice(&packed_json::unpack(json)).unwrap_or_default())
            }
            Packed::Whole(status) => status.clone(),
        }
    }

    /// How many bytes it takes.
    #[cfg(test)]
    fn len(&self) -> Option<usize> {
        match &self.0 {
            Packed::Json(json) => Some(json.len()),
            Packed::Whole(_) => None,
        }
    }
}

impl fmt::Debug for PackedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PackedStatus").field(&self.unpack()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let whole = json!({
            "phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z", "hostIPs": [],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
            "containerStatuses": [{"name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 3,
                "state": {"running": {"startedAt": "2026-01-01T00:00:02Z"}}, "lastState": {},
                "resources": {"limits": {"cpu": "100m"}}}],
        });
        let status: Arc<ApiPodStatus> = Arc::new(serde_json::from_value(whole).unwrap());
        let packed = PackedStatus::of(&status);
        assert!(packed.len().is_some_and(|len| len < 180), "{:?}", packed.len());
        assert_eq!(packed.unpack(), status);
        assert_eq!(packed, PackedStatus::of(&status));
        assert!(packed.is_clone_of(&packed.clone()));
        assert!(!packed.is_clone_of(&PackedStatus::of(&status)));

        let whole = PackedStatus::whole(status.clone());
        assert!(Arc::ptr_eq(&whole.unpack(), &status));
        assert!(whole.is_clone_of(&PackedStatus::whole(status)) && !whole.is_clone_of(&packed));
    }

    #[test]
    fn what_would_be_another_when_read_again_is_kept_as_it_is() {
        let status = Arc::new(ApiPodStatus {
            start_time: Some(Time("2026-01-01T00:00:00.5Z".parse().unwrap())),
            ..ApiPodStatus::default()
        });
        let packed = PackedStatus::of(&status);
        assert_eq!(packed.len(), None);
        assert_eq!(packed.unpack(), status);
    }
}
