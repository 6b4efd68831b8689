//! The flags `--help` and `--version`.

use std::fmt;
use std::str::FromStr;

use crate::feature_gates::parse_bool;

/// The minor version whose command line this is.
const VERSION: &str = "1.36";

/// What `--version` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Nothing.
    #[default]
    False,
    /// To print the version and end.
    True,
    /// To print all there is to say about the version and end.
    Raw,
    /// To call itself by this version, e.g. `v1.36.2-mine`.
    Reported(String),
}

/// What is not for the kubelet itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub(super) help: bool,
    pub(super) version: Version,
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "raw" {
            return Ok(Self::Raw);
        }
        if text.starts_with('v') {
            return if is_reportable(text) {
                Ok(Self::Reported(text.to_owned()))
            } else {
                Err(format!(
                    "{text:?} is not a version of the form v{VERSION}.N[-pre][+build]"
                ))
            };
        }
        match parse_bool(text) {
            Some(true) => Ok(Self::True),
            Some(false) => Ok(Self::False),
            None => Err(format!("{text:?} is not a boolean")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::False => "false",
            Self::True => "true",
            Self::Raw => "raw",
            Self::Reported(version) => version,
        })
    }
}

/// Whether it is a semantic version of the minor version that this is.
fn is_reportable(text: &str) -> bool {
    let patch = text
        .strip_prefix('v')
        .and_then(|rest| rest.strip_prefix(VERSION))
        .and_then(|rest| rest.strip_prefix('.'));
    let Some(rest) = patch else {
        return false;
    };
    let (rest, build) = rest
        .split_once('+')
        .map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest
        .split_once('-')
        .map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let identifiers = |text: &str| {
        text.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'))
    };
    let number = !patch.is_empty() && patch.bytes().all(|c| c.is_ascii_digit());
    number
        && (patch == "0" || !patch.starts_with('0'))
        && pre.is_none_or(identifiers)
        && build.is_none_or(identifiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let cases = [
            ("true", Some(Version::True)),
            ("0", Some(Version::False)),
            ("raw", Some(Version::Raw)),
            (
                "v1.36.2-mine.1+b",
                Some(Version::Reported("v1.36.2-mine.1+b".into())),
            ),
            ("v1.36.0", Some(Version::Reported("v1.36.0".into()))),
            ("v1.36.01", None),
            ("v1.35.2", None),
            ("v1.36", None),
            ("v1.36.2-", None),
            ("1.36.2", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse().ok(), expected, "{text:?}");
        }
    }
}
