//! The sections of a `KubeletConfiguration`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::GoDuration;
use super::canonical::quantities;
use super::omit::{is_zero, null_if_empty};

/// Who a request to the node's server is from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletAuthentication {
    /// By client certificate.
    pub x509: KubeletX509Authentication,
    /// By bearer token, which the API server is asked about.
    pub webhook: KubeletWebhookAuthentication,
    /// By nothing at all.
    pub anonymous: KubeletAnonymousAuthentication,
}

/// Authentication by client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletX509Authentication {
    /// File of the authorities (PEM) that sign clients' certificates. Unset: no certificate is accepted.
    #[serde(rename = "clientCAFile", skip_serializing_if = "is_zero")]
    pub client_ca_file: String,
}

/// Authentication by bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletWebhookAuthentication {
    /// Whether tokens are accepted. Default: `true`.
    pub enabled: bool,
    /// How long an answer about a token holds. Default: `2m`.
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: GoDuration,
}

impl Default for KubeletWebhookAuthentication {
    fn default() -> Self {
        Self {
            enabled: true,
            cache_ttl: GoDuration::from_secs(2 * 60),
        }
    }
}

/// Requests without authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletAnonymousAuthentication {
    /// Whether they are taken, as from `system:anonymous`. Default: `false`.
    pub enabled: bool,
}

/// What a request to the node's server may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletAuthorization {
    /// `AlwaysAllow`, or `Webhook`: the API server is asked. Default: `Webhook`.
    #[serde(skip_serializing_if = "is_zero")]
    pub mode: String,
    /// Asking the API server.
    pub webhook: KubeletWebhookAuthorization,
}

impl Default for KubeletAuthorization {
    fn default() -> Self {
        Self {
            mode: "Webhook".into(),
            webhook: KubeletWebhookAuthorization::default(),
        }
    }
}

/// Authorization by the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletWebhookAuthorization {
    /// How long a yes holds. Default: `5m`.
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: GoDuration,
    /// How long a no holds. Default: `30s`.
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: GoDuration,
}

impl Default for KubeletWebhookAuthorization {
    fn default() -> Self {
        Self {
            cache_authorized_ttl: GoDuration::from_secs(5 * 60),
            cache_unauthorized_ttl: GoDuration::from_secs(30),
        }
    }
}

/// How pods use swap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemorySwapConfiguration {
    /// `NoSwap` or `LimitedSwap`. Unset: `NoSwap`.
    #[serde(skip_serializing_if = "is_zero")]
    pub swap_behavior: String,
}

/// The back-off of containers that fail again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CrashLoopBackOffConfig {
    /// The longest back-off. Default: `5m` where the gate `KubeletCrashLoopBackOffMax` is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_container_restart_period: Option<GoDuration>,
}

/// A shutdown grace period for the pods of a priority and above, up to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShutdownGracePeriodByPodPriority {
    /// The lowest priority of the pods.
    pub priority: i32,
    /// Their grace period, in seconds.
    pub shutdown_grace_period_seconds: i64,
}

/// Memory kept for the system on a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryReservation {
    /// The NUMA node's number.
    pub numa_node: i32,
    /// How much, by kind of memory (`memory`, `hugepages-2Mi`…).
    #[serde(deserialize_with = "quantities", serialize_with = "null_if_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Traces sent to a collector (`TracingConfiguration` of `k8s.io/component-base`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TracingConfiguration {
    /// The collector, which speaks OTLP over gRPC. Unset: `localhost:4317`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// How many spans of a million are taken. Unset: those whose parent is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate_per_million: Option<i32>,
}

/// Pods with user namespaces of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserNamespaces {
    /// UIDs and GIDs of a pod, a multiple of 65536. Unset: 65536.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids_per_pod: Option<i64>,
}
