//! The calls of CRI, and what is kept of each.

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
            /// All of them.
            pub const ALL: [Self; 41] = [$($(Self::$call,)*)*];

            /// As the protocol names it.
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$call => stringify!($call),)*)*
                }
            }

            /// Whether it only looks. Such calls are recorded where that is asked for.
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

/// What a call is about. What does not apply, or is not known, is empty.
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
    /// The image as it was asked for.
    pub image: String,
    /// The id as it was asked for, of a sandbox or container that is not there.
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

    /// Whether the pod is the one named, `name` or `namespace/name`.
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

/// A call that the runtime got: `StartContainer web/main#0`, and with `{:#}` also how it was answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CriCall {
    /// Which call.
    pub call: Call,
    /// What it was about.
    pub about: Subject,
    /// When it came.
    pub at: Timestamp,
    /// How it was answered.
    pub answer: Answer,
    request: Arc<dyn Any + Send + Sync>,
}

/// How a call was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Not yet; or never, since the caller gave up.
    None,
    /// It was done.
    Ok,
    /// It failed, or so the caller was told.
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

    /// The request, if it is of this type: `call.request::<v1::StartContainerRequest>()`.
    pub fn request<T: 'static>(&self) -> Option<&T> {
        self.request.downcast_ref()
    }

    /// Whether it was done and the caller was told.
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
