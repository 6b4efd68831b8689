//! AppArmor profiles, on hosts that can enforce them and on others.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{AppArmorProfile, Pod};

use super::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use crate::PodExt;

/// Rejects pods with an AppArmor profile that cannot be enforced. Answers to `lifecycle.NewAppArmorAdmitHandler`.
#[derive(Clone, Debug)]
pub struct AppArmorAdmitHandler {
    host: Result<(), String>,
}

impl AppArmorAdmitHandler {
    /// `host`: why this host cannot enforce profiles, if it cannot; see [`linux_host`](Self::linux_host).
    pub fn new(host: Result<(), String>) -> Self {
        Self { host }
    }

    /// Checks whether the kernel of this host enforces AppArmor; reads one file in `/sys`.
    pub fn linux_host() -> Self {
        let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        Self::new(match enabled {
            Ok(text) if text.starts_with('Y') => Ok(()),
            _ => Err("AppArmor is not enabled on the host".to_owned()),
        })
    }

    fn validate(&self, pod: &Pod) -> Result<(), String> {
        let profiles = profiles(pod);
        if profiles.iter().all(|profile| profile.type_ == "Unconfined") {
            return Ok(());
        }
        self.host.clone()?;
        let nameless = profiles.iter().find(|profile| {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            profile.type_ == "Localhost" && name.trim().is_empty()
        });
        match nameless {
            Some(_) => Err("invalid empty AppArmor profile name".to_owned()),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl PodAdmitHandler for AppArmorAdmitHandler {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        // A pod that is running or has ended was checked before.
        let status = attributes.pod.status.as_ref();
        if status.and_then(|status| status.phase.as_deref()) != Some("Pending") {
            return Ok(());
        }
        let valid = self.validate(attributes.pod);
        valid.map_err(|error| Rejection::new("AppArmor", format!("Cannot enforce AppArmor: {error}")))
    }
}

/// The profile of the pod and those of its containers.
fn profiles(pod: &Pod) -> Vec<&AppArmorProfile> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let of_pod = spec
        .security_context
        .as_ref()
        .and_then(|context| context.app_armor_profile.as_ref());
    let containers = pod
        .all_containers()
        .filter_map(|container| container.security_context.as_ref());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.filter_map(|container| container.security_context.as_ref());
    let of_containers = containers
        .chain(ephemeral)
        .filter_map(|context| context.app_armor_profile.as_ref());
    of_pod.into_iter().chain(of_containers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    #[tokio::test]
    async fn a_profile_needs_a_host_that_enforces_it() {
        let profile = |kind: &str, name: Value| json!({"type": kind, "localhostProfile": name});
        let runtime_default = profile("RuntimeDefault", json!(null));
        let cases = [
            ("Pending", json!(null), json!(null), true, true),
            ("Pending", runtime_default.clone(), json!(null), true, false),
            ("Running", runtime_default.clone(), json!(null), true, true),
            ("Pending", json!(null), runtime_default.clone(), true, false),
            (
                "Pending",
                profile("Unconfined", json!(null)),
                json!(null),
                true,
                true,
            ),
            (
                "Pending",
                profile("Localhost", json!("mine")),
                json!(null),
                true,
                false,
            ),
            (
                "Pending",
                profile("Localhost", json!(" ")),
                json!(null),
                false,
                false,
            ),
        ];
        for (phase, of_pod, of_container, with, without) in cases {
            let pod = json!({
                "spec": {
                    "securityContext": {"appArmorProfile": of_pod},
                    "containers": [{"name": "c", "securityContext": {"appArmorProfile": of_container}}],
                },
                "status": {"phase": phase},
            });
            let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
            for (host, expected) in [(Ok(()), with), (Err("not here".to_owned()), without)] {
                let handler = AppArmorAdmitHandler::new(host);
                let admitted = handler.admit(&PodAdmitAttributes::new(&pod, &[])).await;
                assert_eq!(admitted.is_ok(), expected, "{:?}", pod.spec);
            }
        }
    }
}
