//! How a kubelet is configured: [`KubeletConfiguration`] of `kubelet.config.k8s.io/v1beta1`, as of v1.36.
//!
//! * [`KubeletConfiguration`] is the whole configuration. Read it from YAML or JSON, or take its [`Default`]. Show
//!   it with [`configz`](KubeletConfiguration::configz), log it with [`masked`](KubeletConfiguration::masked).
//! * [`ConfigurationLoader`] loads it from a file, a drop-in folder and the command line, sets the feature gates
//!   and validates it.
//! * [`validation`] lists all problems of a configuration.
//!
//! ```
//! use kubelet_config::kubelet_configuration::KubeletConfiguration;
//!
//! let text = "
//! apiVersion: kubelet.config.k8s.io/v1beta1
//! kind: KubeletConfiguration
//! maxPods: 50
//! evictionHard: {memory.available: 5%}
//! syncFrequency: 90s
//! ";
//! let config = KubeletConfiguration::from_yaml(text)?;
//! assert_eq!(config.max_pods, 50);
//! assert_eq!(config.sync_frequency.to_string(), "1m30s");
//! // Unset fields have the kubelet's defaults.
//! assert_eq!(config.container_log_max_size, "10Mi");
//!
//! // An error about an unknown field has its line.
//! let error = KubeletConfiguration::from_yaml(&text.replace("maxPods", "MaxPods")).unwrap_err();
//! assert_eq!(error.to_string(), r#"load: line 4: unknown field "MaxPods""#);
//! let (config, ignored) = KubeletConfiguration::from_yaml_lenient(&text.replace("maxPods", "MaxPods"))?;
//! assert_eq!((config.max_pods, ignored.len()), (110, 1));
//! # Ok::<(), kubelet_config::Error>(())
//! ```

mod canonical;
mod configz;
mod decode;
mod defaults;
mod drop_in;
mod effective;
mod fields;
mod load;
mod logging;
mod omit;
mod origins;
mod sections;
pub mod validation;

pub use configz::Configz;
pub use decode::Decoding;
pub use fields::KubeletConfiguration;
pub use kubelet_core::GoDuration;
pub use load::{ConfigurationLoader, LoadedConfiguration};
pub use logging::{
    FormatOptions, LoggingConfiguration, OutputRoutingOptions, TimeOrMetaDuration, VModuleItem,
};
pub use origins::{Origin, Origins};
pub use sections::{
    CrashLoopBackOffConfig, KubeletAnonymousAuthentication, KubeletAuthentication, KubeletAuthorization,
    KubeletWebhookAuthentication, KubeletWebhookAuthorization, KubeletX509Authentication, MemoryReservation,
    MemorySwapConfiguration, ShutdownGracePeriodByPodPriority, TracingConfiguration, UserNamespaces,
};
