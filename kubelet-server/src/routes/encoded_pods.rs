//! Pods as JSON, kept until they change.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{PodExt as _, PodUid};
use parking_lot::Mutex;
use serde::Serialize;

/// The JSON of the pods that were listed last, so that a client that lists them again and again costs little. It takes about
/// 2 kB a pod. A pod never changes, a new version of it is another object.
#[derive(Default)]
pub(crate) struct EncodedPods {
    known: Mutex<HashMap<PodUid, Encoded>>,
}

struct Encoded {
    /// The pod and the status that were encoded. Their addresses are not used again while these are here.
    pod: Weak<Pod>,
    status: Option<Weak<PodStatus>>,
    json: Box<[u8]>,
}

impl EncodedPods {
    /// Appends the JSON of a pod with this status; without one, with the status in the pod.
    pub(crate) fn append(
        &self,
        pod: &Arc<Pod>,
        status: Option<&Arc<PodStatus>>,
        to: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let mut known = self.known.lock();
        let uid = pod.uid();
        if let Some(encoded) = known.get(&uid)
            && encoded.is_of(pod, status)
        {
            to.extend_from_slice(&encoded.json);
            return Ok(());
        }
        let start = to.len();
        let none = PodStatus::default();
        let shown = status.map(|it| &**it).or(pod.status.as_ref()).unwrap_or(&none);
        serde_json::to_writer(&mut *to, &Item::of(pod, shown))?;
        let encoded = Encoded {
            pod: Arc::downgrade(pod),
            status: status.map(Arc::downgrade),
            json: to[start..].into(),
        };
        known.insert(uid, encoded);
        Ok(())
    }

    /// Forgets pods that nobody else has any more.
    pub(crate) fn forget_gone(&self) {
        let mut known = self.known.lock();
        known.retain(|_, encoded| encoded.pod.strong_count() > 0);
        known.shrink_to_fit();
    }
}

impl Encoded {
    fn is_of(&self, pod: &Arc<Pod>, status: Option<&Arc<PodStatus>>) -> bool {
        std::ptr::eq(self.pod.as_ptr(), Arc::as_ptr(pod))
            && match (&self.status, status) {
                (None, None) => true,
                (Some(known), Some(status)) => std::ptr::eq(known.as_ptr(), Arc::as_ptr(status)),
                _ => false,
            }
    }
}

/// A pod in a list: without its kind.
#[derive(Serialize)]
struct Item<'a> {
    metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: Spec<'a>,
    status: &'a PodStatus,
}

/// A missing spec is written as `{}`.
#[derive(Serialize)]
#[serde(untagged)]
enum Spec<'a> {
    Known(&'a k8s_openapi::api::core::v1::PodSpec),
    Unknown {},
}

impl<'a> Item<'a> {
    fn of(pod: &'a Pod, status: &'a PodStatus) -> Self {
        Self {
            metadata: &pod.metadata,
            spec: pod.spec.as_ref().map_or(Spec::Unknown {}, Spec::Known),
            status,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: serde_json::Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": "a", "uid": "1", "labels": labels}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn status(phase: &str) -> Arc<PodStatus> {
        Arc::new(serde_json::from_value(json!({ "phase": phase })).unwrap())
    }

    #[test]
    fn a_pod_is_encoded_anew_when_it_or_its_status_changes() {
        let encoded = EncodedPods::default();
        let text = |pod: &Arc<Pod>, status: Option<&Arc<PodStatus>>| {
            let mut text = Vec::new();
            encoded.append(pod, status, &mut text).unwrap();
            let kept: Vec<u8> = encoded.known.lock()[&pod.uid()].json.to_vec();
            assert_eq!(text, kept);
            String::from_utf8(text).unwrap()
        };
        let head = r#"{"metadata":{"name":"a","uid":"1"},"spec":{},"status":"#;
        let (first, running) = (pod(json!(null)), status("Running"));
        for _ in 0..2 {
            assert_eq!(text(&first, None), format!("{head}{{}}}}"));
        }
        for phase in ["Running", "Failed", "Running"] {
            let expected = format!("{head}{{\"phase\":\"{phase}\"}}}}");
            assert_eq!(text(&first, Some(&status(phase))), expected);
        }
        assert!(text(&first, Some(&running)).contains("Running"));
        assert!(text(&pod(json!({"b": "c"})), Some(&running)).contains(r#""labels":{"b":"c"}"#));
        assert_eq!(encoded.known.lock().len(), 1);
        // The last version was dropped.
        encoded.forget_gone();
        assert_eq!(encoded.known.lock().len(), 0);
        text(&first, None);
        encoded.forget_gone();
        assert_eq!(encoded.known.lock().len(), 1);
    }
}
