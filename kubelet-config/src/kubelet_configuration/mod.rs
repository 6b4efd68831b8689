//! How a kubelet is configured: [`KubeletConfiguration`] of `kubelet.config.k8s.io/v1beta1`.

mod defaults;
mod duration;
mod fields;
mod logging;
mod omit;
mod sections;
pub mod validation;

pub use duration::GoDuration;
pub use fields::KubeletConfiguration;
pub use logging::{
    FormatOptions, LoggingConfiguration, OutputRoutingOptions, TimeOrMetaDuration, VModuleItem,
};
pub use sections::{
    CrashLoopBackOffConfig, KubeletAnonymousAuthentication, KubeletAuthentication, KubeletAuthorization,
    KubeletWebhookAuthentication, KubeletWebhookAuthorization, KubeletX509Authentication, MemoryReservation,
    MemorySwapConfiguration, ShutdownGracePeriodByPodPriority, TracingConfiguration, UserNamespaces,
};
