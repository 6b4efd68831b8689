//! The section of a `KubeletConfiguration` about the agent's own log (`LoggingConfiguration` of
//! `k8s.io/component-base`).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::GoDuration;
use super::canonical::quantity;
use super::omit::is_zero;

/// The agent's own log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoggingConfiguration {
    /// `text` or `json`. Default: `text`.
    #[serde(skip_serializing_if = "is_zero")]
    pub format: String,
    /// How often the log is flushed, where it is buffered. Default: `5s`.
    pub flush_frequency: TimeOrMetaDuration,
    /// Messages up to this level are logged. Default: 0.
    pub verbosity: u32,
    /// Levels of single source files.
    #[serde(skip_serializing_if = "is_zero")]
    pub vmodule: Vec<VModuleItem>,
    /// What only one of the formats has.
    pub options: FormatOptions,
}

impl Default for LoggingConfiguration {
    fn default() -> Self {
        Self {
            format: "text".into(),
            flush_frequency: TimeOrMetaDuration::default(),
            verbosity: 0,
            vmodule: Vec::new(),
            options: FormatOptions::default(),
        }
    }
}

/// A duration that is written as text (`5s`) or as a number of nanoseconds, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOrMetaDuration {
    /// How long.
    pub duration: GoDuration,
    /// Whether it is written as text.
    pub serialize_as_string: bool,
}

impl Default for TimeOrMetaDuration {
    fn default() -> Self {
        Self {
            duration: GoDuration::from_secs(5),
            serialize_as_string: true,
        }
    }
}

impl Serialize for TimeOrMetaDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.serialize_as_string {
            self.duration.serialize(serializer)
        } else {
            serializer.serialize_i64(self.duration.as_nanos())
        }
    }
}

impl<'de> Deserialize<'de> for TimeOrMetaDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = TimeOrMetaDuration;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration, as text or in nanoseconds")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TimeOrMetaDuration {
                    duration: text.parse().map_err(E::custom)?,
                    serialize_as_string: true,
                })
            }

            fn visit_i64<E: serde::de::Error>(self, nanos: i64) -> Result<Self::Value, E> {
                Ok(TimeOrMetaDuration {
                    duration: GoDuration::from_nanos(nanos),
                    serialize_as_string: false,
                })
            }

            fn visit_u64<E: serde::de::Error>(self, nanos: u64) -> Result<Self::Value, E> {
                self.visit_i64(i64::try_from(nanos).map_err(E::custom)?)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// What only one of the log's formats has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FormatOptions {
    /// For the format `text`. Needs the gate `LoggingAlphaOptions`.
    pub text: OutputRoutingOptions,
    /// For the format `json`. Needs the gate `LoggingAlphaOptions`.
    pub json: OutputRoutingOptions,
}

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OutputRoutingOptions {
    /// Whether errors go to standard error and the rest, buffered, to standard output. Default: `false`.
    #[serde(skip_serializing_if = "is_zero")]
    pub split_stream: bool,
    /// The size of that buffer. Default: 0, none.
    #[serde(deserialize_with = "quantity")]
    pub info_buffer_size: Quantity,
}

impl Default for OutputRoutingOptions {
    fn default() -> Self {
        Self {
            split_stream: false,
            info_buffer_size: Quantity("0".into()),
        }
    }
}

/// The level of the source files that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VModuleItem {
    /// The pattern, with `*` and `?`, of the file's name without its ending.
    pub file_pattern: String,
    /// Messages up to this level are logged.
    pub verbosity: u32,
}
