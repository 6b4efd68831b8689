//! Checks that an answer has what a kubelet needs.

use crate::v1::*;

/// An answer of the protocol.
pub(super) trait Response: Sized {
    /// Checks it; the error describes what is missing.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

macro_rules! taken_as_they_are {
    ($($response:ty),* $(,)?) => { $(impl Response for $response {})* };
}

/// These must have the field set.
macro_rules! must_have {
    ($field:ident: $($response:ty),* $(,)?) => {
        $(impl Response for $response {
            fn check(&self) -> Result<(), String> {
                required(&[(stringify!($field), !self.$field.is_empty())])
            }
        })*
    };
}

taken_as_they_are!(
    StopPodSandboxResponse,
    RemovePodSandboxResponse,
    ListPodSandboxResponse,
    StartContainerResponse,
    StopContainerResponse,
    RemoveContainerResponse,
    ListContainersResponse,
    UpdateContainerResourcesResponse,
    ReopenContainerLogResponse,
    ExecSyncResponse,
    ContainerStatsResponse,
    ListContainerStatsResponse,
    PodSandboxStatsResponse,
    ListPodSandboxStatsResponse,
    UpdateRuntimeConfigResponse,
    CheckpointContainerResponse,
    ListMetricDescriptorsResponse,
    ListPodSandboxMetricsResponse,
    RuntimeConfigResponse,
    UpdatePodSandboxResourcesResponse,
    ListImagesResponse,
    RemoveImageResponse,
    ImageFsInfoResponse,
);
must_have!(pod_sandbox_id: RunPodSandboxResponse);
must_have!(container_id: CreateContainerResponse);
must_have!(url: ExecResponse, AttachResponse, PortForwardResponse);
must_have!(image_ref: PullImageResponse);

impl Response for VersionResponse {
    fn check(&self) -> Result<(), String> {
        required(&[
            ("version", !self.version.is_empty()),
            ("runtime_name", !self.runtime_name.is_empty()),
            ("runtime_version", !self.runtime_version.is_empty()),
            ("runtime_api_version", !self.runtime_api_version.is_empty()),
        ])
    }
}

impl Response for PodSandboxStatusResponse {
    fn check(&self) -> Result<(), String> {
        let Some(status) = &self.status else { return Ok(()) };
        let metadata = status.metadata.clone().unwrap_or_default();
        required(&[
            ("status.id", !status.id.is_empty()),
            ("status.metadata", status.metadata.is_some()),
            ("status.metadata.name", !metadata.name.is_empty()),
            ("status.metadata.namespace", !metadata.namespace.is_empty()),
            ("status.metadata.uid", !metadata.uid.is_empty()),
            ("status.created_at", status.created_at != 0),
        ])
    }
}

impl Response for ContainerStatusResponse {
    fn check(&self) -> Result<(), String> {
        let Some(status) = &self.status else { return Ok(()) };
        required(&[
            ("status.id", !status.id.is_empty()),
            ("status.metadata", status.metadata.is_some()),
            (
                "status.metadata.name",
                status.metadata.as_ref().is_some_and(|m| !m.name.is_empty()),
            ),
            ("status.created_at", status.created_at != 0),
            (
                "status.image",
                status.image.as_ref().is_some_and(|image| !image.image.is_empty()),
            ),
            ("status.image_ref", !status.image_ref.is_empty()),
        ])
    }
}

impl Response for StatusResponse {
    fn check(&self) -> Result<(), String> {
        let conditions = self.status.as_ref().map_or(0, |status| status.conditions.len());
        required(&[("status.conditions RuntimeReady and NetworkReady", conditions >= 2)])
    }
}

impl Response for ImageStatusResponse {
    fn check(&self) -> Result<(), String> {
        let Some(image) = &self.image else { return Ok(()) };
        required(&[
            ("image.id", !image.id.is_empty()),
            ("image.size", image.size != 0),
        ])
    }
}

fn required(fields: &[(&str, bool)]) -> Result<(), String> {
    let missing: Vec<&str> = fields
        .iter()
        .filter(|(_, set)| !set)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not set: {}", missing.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(
            RunPodSandboxResponse::default().check().unwrap_err(),
            "not set: pod_sandbox_id"
        );
        let version = VersionResponse {
            runtime_name: "x".into(),
            version: "0.1.0".into(),
            ..Default::default()
        };
        assert_eq!(
            version.check().unwrap_err(),
            "not set: runtime_version, runtime_api_version"
        );
        assert!(
            PodSandboxStatusResponse::default().check().is_ok(),
            "no status is for the caller to judge"
        );
        let status = ContainerStatusResponse {
            status: Some(ContainerStatus::default()),
            ..Default::default()
        };
        assert!(status.check().unwrap_err().contains("status.image_ref"));
    }
}
