//! What the client needs from a request: the id for errors, and the deadline of the answer.

use std::time::Duration;

use crate::v1::*;

/// A request of the protocol.
pub(super) trait Request {
    /// The id of its sandbox, container or image; empty for a request about the whole runtime.
    fn id(&self) -> String;

    /// The timeout of the answer; `None` for no timeout. `base` is the kubelet's `runtimeRequestTimeout`. May fill in
    /// fields that the request leaves open. An error describes why the request is invalid.
    fn deadline(&mut self, base: Duration) -> Result<Option<Duration>, &'static str> {
        Ok(Some(base))
    }
}

/// About what the field names.
macro_rules! about {
    ($field:ident: $($request:ty),* $(,)?) => {
        $(impl Request for $request {
            fn id(&self) -> String {
                self.$field.clone()
            }
        })*
    };
}

/// About the runtime, or about what an optional filter leaves.
macro_rules! about_all {
    ($($request:ty),* $(,)?) => {
        $(impl Request for $request {
            fn id(&self) -> String {
                String::new()
            }
        })*
    };
}

/// About the image of the field `image`.
macro_rules! about_image {
    ($($request:ty),* $(,)?) => {
        $(impl Request for $request {
            fn id(&self) -> String {
                image_id(self.image.as_ref())
            }
        })*
    };
}

about!(pod_sandbox_id:
    StopPodSandboxRequest, RemovePodSandboxRequest, PodSandboxStatusRequest, PortForwardRequest,
    PodSandboxStatsRequest, UpdatePodSandboxResourcesRequest,
);
about!(container_id:
    StartContainerRequest, RemoveContainerRequest, ContainerStatusRequest, UpdateContainerResourcesRequest,
    ReopenContainerLogRequest, ExecRequest, AttachRequest, ContainerStatsRequest,
);
about_all!(
    VersionRequest,
    ListPodSandboxRequest,
    StreamPodSandboxesRequest,
    ListContainersRequest,
    StreamContainersRequest,
    ListContainerStatsRequest,
    StreamContainerStatsRequest,
    ListPodSandboxStatsRequest,
    StreamPodSandboxStatsRequest,
    UpdateRuntimeConfigRequest,
    StatusRequest,
    GetEventsRequest,
    ListMetricDescriptorsRequest,
    ListPodSandboxMetricsRequest,
    StreamPodSandboxMetricsRequest,
    RuntimeConfigRequest,
    ListImagesRequest,
    StreamImagesRequest,
    ImageFsInfoRequest,
);
about_image!(ImageStatusRequest, RemoveImageRequest);

/// About the pod, as `namespace/name`; there is no id yet.
impl Request for RunPodSandboxRequest {
    fn id(&self) -> String {
        let metadata = self.config.as_ref().and_then(|config| config.metadata.as_ref());
        metadata
            .map(|m| format!("{}/{}", m.namespace, m.name))
            .unwrap_or_default()
    }

    /// Twice the base, as the network is set up meanwhile.
    fn deadline(&mut self, base: Duration) -> Result<Option<Duration>, &'static str> {
        Ok(Some(base.saturating_mul(2)))
    }
}

/// About the container to be, as `sandbox/name`.
impl Request for CreateContainerRequest {
    fn id(&self) -> String {
        let metadata = self.config.as_ref().and_then(|config| config.metadata.as_ref());
        let name = metadata.map(|m| m.name.as_str()).unwrap_or_default();
        format!("{}/{name}", self.pod_sandbox_id)
    }
}

impl Request for StopContainerRequest {
    fn id(&self) -> String {
        self.container_id.clone()
    }

    /// The grace period comes on top.
    fn deadline(&mut self, base: Duration) -> Result<Option<Duration>, &'static str> {
        Ok(Some(base.saturating_add(seconds(self.timeout))))
    }
}

impl Request for ExecSyncRequest {
    fn id(&self) -> String {
        self.container_id.clone()
    }

    /// The command's own timeout is added; a command without one has no deadline.
    fn deadline(&mut self, base: Duration) -> Result<Option<Duration>, &'static str> {
        Ok((self.timeout != 0).then(|| base.saturating_add(seconds(self.timeout))))
    }
}

impl Request for CheckpointContainerRequest {
    fn id(&self) -> String {
        self.container_id.clone()
    }

    /// The longer one of the request's timeout and the base, for both sides.
    fn deadline(&mut self, base: Duration) -> Result<Option<Duration>, &'static str> {
        if self.timeout < 0 {
            return Err("the timeout is negative");
        }
        self.timeout = self
            .timeout
            .max(i64::try_from(base.as_secs()).unwrap_or(i64::MAX));
        Ok(Some(base.max(seconds(self.timeout))))
    }
}

impl Request for PullImageRequest {
    fn id(&self) -> String {
        image_id(self.image.as_ref())
    }

    fn deadline(&mut self, _base: Duration) -> Result<Option<Duration>, &'static str> {
        Ok(None)
    }
}

fn image_id(image: Option<&ImageSpec>) -> String {
    image.map(|image| image.image.clone()).unwrap_or_default()
}

/// Seconds of the protocol; a negative number is none.
fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_secs(120);

    fn limit(mut request: impl Request) -> Option<u64> {
        request.deadline(BASE).unwrap().map(|limit| limit.as_secs())
    }

    #[test]
    fn each_kind_of_call_has_its_deadline() {
        let stop = |timeout| StopContainerRequest {
            timeout,
            ..Default::default()
        };
        let exec = |timeout| ExecSyncRequest {
            timeout,
            ..Default::default()
        };
        let checkpoint = |timeout| CheckpointContainerRequest {
            timeout,
            ..Default::default()
        };
        for (what, limit, expected) in [
            ("status", limit(StatusRequest::default()), Some(120)),
            ("sandbox", limit(RunPodSandboxRequest::default()), Some(240)),
            ("stop", limit(stop(30)), Some(150)),
            ("stop at once", limit(stop(0)), Some(120)),
            ("stop, negative", limit(stop(-1)), Some(120)),
            (
                "stop, for ever",
                limit(stop(i64::MAX)),
                Some(i64::MAX as u64 + 120),
            ),
            ("exec", limit(exec(1)), Some(121)),
            ("exec without limit", limit(exec(0)), None),
            ("checkpoint, short", limit(checkpoint(5)), Some(120)),
            ("checkpoint, long", limit(checkpoint(500)), Some(500)),
            ("pull", limit(PullImageRequest::default()), None),
        ] {
            assert_eq!(limit, expected, "{what}");
        }
        assert!(checkpoint(-1).deadline(BASE).is_err());
        let mut short = checkpoint(5);
        short.deadline(BASE).unwrap();
        assert_eq!(short.timeout, 120);
    }
}
