//! The calls of CRI, and their records.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubelet_cri::{Error, v1};

macro_rules! calls {
    ($($kind:ident { $($call:ident,)* })*) => {
        /// A call of `RuntimeService` or `ImageService`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Call {
            $($(
                #[doc = concat!("`", stringify!($call), "`")]
                $call,
            )*)*
        }

        impl Call {
            /// All calls.
            pub const ALL: [Self; 41] = [$($(Self::$call,)*)*];

            /// The name in the protocol.
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$call => stringify!($call),)*)*
                }
            }

            /// Whether the call only reads. The runtime records reads only with
            /// [`record_looks`](super::MemoryCriBuilder::record_looks).
            pub fn only_looks(self) -> bool {
                match self {
                    $($(Self::$call => calls!(@$kind),)*)*
                }
            }
        }
    };
    (@looks) => { true };
    (@acts) => { false };
}

calls! {
    acts {
        RunPodSandbox,
        StopPodSandbox,
        RemovePodSandbox,
        CreateContainer,
        StartContainer,
        StopContainer,
        RemoveContainer,
        UpdateContainerResources,
        UpdatePodSandboxResources,
        ReopenContainerLog,
        ExecSync,
        Exec,
        Attach,
        PortForward,
        CheckpointContainer,
        UpdateRuntimeConfig,
        PullImage,
        RemoveImage,
    }
    looks {
        Version,
        Status,
        RuntimeConfig,
        PodSandboxStatus,
        ListPodSandbox,
        StreamPodSandboxes,
        ContainerStatus,
        ListContainers,
        StreamContainers,
        ContainerStats,
        ListContainerStats,
        StreamContainerStats,
        PodSandboxStats,
        ListPodSandboxStats,
        StreamPodSandboxStats,
        ListMetricDescriptors,
        ListPodSandboxMetrics,
        StreamPodSandboxMetrics,
        GetContainerEvents,
        ImageStatus,
        ListImages,
        StreamImages,
        ImageFsInfo,
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The target of a call. Fields that do not apply or are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subject {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the container.
    pub container: String,
    /// The attempt of the container or, in a call about a sandbox, of the sandbox.
    pub attempt: u32,
    /// The image as the request names it.
    pub image: String,
    /// The id in the request, if there is no such sandbox or container.
    pub unknown_id: String,
}

impl Subject {
    pub(super) fn sandbox(metadata: Option<&v1::PodSandboxMetadata>) -> Self {
        let metadata = metadata.cloned().unwrap_or_default();
        Self {
            namespace: metadata.namespace,
            pod: metadata.name,
            attempt: metadata.attempt,
            ..Self::default()
        }
    }

    pub(super) fn container(
        sandbox: Option<&v1::PodSandboxMetadata>,
        container: Option<&v1::ContainerMetadata>,
    ) -> Self {
        let container = container.cloned().unwrap_or_default();
        Self {
            container: container.name,
            attempt: container.attempt,
            ..Self::sandbox(sandbox)
        }
    }

    pub(super) fn image(image: Option<&v1::ImageSpec>) -> Self {
        Self {
            image: image.map(|image| image.image.clone()).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(super) fn unknown(id: &str) -> Self {
        Self {
            unknown_id: id.to_owned(),
            ..Self::default()
        }
    }

    /// Whether the pod has this name, `name` or `namespace/name`.
    pub(super) fn is_pod(&self, name: &str) -> bool {
        match name.split_once('/') {
            Some((namespace, name)) => self.namespace == namespace && self.pod == name,
            None => self.pod == name,
        }
    }
}

/// `web/main#0` for a container, `web#0` for a sandbox, else the image or the id.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pod,
            container,
            attempt,
            ..
        } = self;
        match (self.pod.is_empty(), self.container.is_empty()) {
            (false, false) => write!(f, "{pod}/{container}#{attempt}"),
            (false, true) => write!(f, "{pod}#{attempt}"),
            (true, _) if !self.image.is_empty() => f.write_str(&self.image),
            (true, _) => f.write_str(&self.unknown_id),
        }
    }
}

/// A call that the runtime received. It prints as `StartContainer web/main#0`; `{:#}` adds its outcome.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CriCall {
    /// The name of the call.
    pub call: Call,
    /// Its target.
    pub about: Subject,
    /// When it arrived.
    pub at: Timestamp,
    /// Its outcome.
    pub answer: Answer,
    request: Arc<dyn Any + Send + Sync>,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// There is no answer yet, or never, because the caller gave up.
    None,
    /// It succeeded.
    Ok,
    /// The caller got an error. The work may have been done.
    Failed(Error),
}

impl CriCall {
    pub(super) fn new(
        call: Call,
        about: Subject,
        at: Timestamp,
        request: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            call,
            about,
            at,
            answer: Answer::None,
            request,
        }
    }

    /// The request, if it has this type: `call.request::<v1::StartContainerRequest>()`.
    pub fn request<T: 'static>(&self) -> Option<&T> {
        self.request.downcast_ref()
    }

    /// Whether it was done and the caller got the answer.
    pub fn succeeded(&self) -> bool {
        self.answer == Answer::Ok
    }
}

impl fmt::Display for CriCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.about.to_string();
        f.write_str(self.call.name())?;
        if !about.is_empty() {
            write!(f, " {about}")?;
        }
        if !f.alternate() {
            return Ok(());
        }
        match &self.answer {
            Answer::None => f.write_str(": no answer"),
            Answer::Ok => Ok(()),
            Answer::Failed(error) => write!(f, ": {}: {}", error.code(), error.message()),
        }
    }
}
