//! Images: how they are pulled, who may use them, when they go.

use kubelet_core::image_name::is_repository;

use super::super::{GoDuration, KubeletConfiguration};
use super::errors::Problems;
use crate::FeatureGates;

const POLICY: &str = "imagePullCredentialsVerificationPolicy";
const ALLOWLIST: &str = "preloadedImagesVerificationAllowlist";
/// The policy that has an allowlist.
const NEVER_VERIFY_ALLOWLISTED_IMAGES: &str = "NeverVerifyAllowlistedImages";

pub(super) fn validate(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    pulls(config, problems);
    collection(config, gates, problems);
    if gates.enabled("KubeletEnsureSecretPulledImages") {
        verification(config, problems);
    } else {
        let why = "requires feature gate KubeletEnsureSecretPulledImages";
        if !config.image_pull_credentials_verification_policy.is_empty() {
            problems.invalid_text(POLICY, &config.image_pull_credentials_verification_policy, why);
        }
        if !config.preloaded_images_verification_allowlist.is_empty() {
            let patterns = format!("{:?}", config.preloaded_images_verification_allowlist);
            problems.invalid(ALLOWLIST, patterns, why);
        }
    }
}

fn pulls(config: &KubeletConfiguration, problems: &mut Problems) {
    problems.if_less("registryBurst", config.registry_burst, 0);
    problems.if_less("registryPullQPS", config.registry_pull_qps, 0);
    if let Some(most) = config.max_parallel_image_pulls {
        problems.if_less("maxParallelImagePulls", most, 1);
        if most > 1 && config.serialize_image_pulls {
            let why = "cannot be larger than 1 unless serializeImagePulls is false";
            problems.invalid("maxParallelImagePulls", most, why);
        }
    }
}

fn collection(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let (high, low) = (
        config.image_gc_high_threshold_percent,
        config.image_gc_low_threshold_percent,
    );
    problems.unless_within("imageGCHighThresholdPercent", high, 0, 100);
    problems.unless_within("imageGCLowThresholdPercent", low, 0, 100);
    if low >= high {
        let why = format!("must be less than imageGCHighThresholdPercent ({high})");
        problems.invalid("imageGCLowThresholdPercent", low, why);
    }

    let (least, most) = (config.image_minimum_gc_age, config.image_maximum_gc_age);
    if least.is_negative() {
        problems.invalid("imageMinimumGCAge", least, "must not be negative");
    }
    if !most.is_zero() && !gates.enabled("ImageMaximumGCAge") {
        problems.invalid(
            "imageMaximumGCAge",
            most,
            "requires feature gate ImageMaximumGCAge",
        );
    }
    if most.is_negative() {
        problems.invalid("imageMaximumGCAge", most, "must not be negative");
    }
    if most > GoDuration::ZERO && most <= least {
        problems.invalid(
            "imageMaximumGCAge",
            most,
            format!("must be more than imageMinimumGCAge ({least})"),
        );
    }
}

fn verification(config: &KubeletConfiguration, problems: &mut Problems) {
    let policy = &config.image_pull_credentials_verification_policy;
    let policies = [
        "NeverVerify",
        "NeverVerifyPreloadedImages",
        NEVER_VERIFY_ALLOWLISTED_IMAGES,
        "AlwaysVerify",
    ];
    problems.unless_one_of(POLICY, policy, &policies);

    let patterns = &config.preloaded_images_verification_allowlist;
    if !patterns.is_empty() && policy != NEVER_VERIFY_ALLOWLISTED_IMAGES {
        let why = format!("requires {POLICY} to be {NEVER_VERIFY_ALLOWLISTED_IMAGES}");
        return problems.invalid(ALLOWLIST, format!("{patterns:?}"), why);
    }
    for (at, pattern) in patterns.iter().enumerate() {
        if let Err(why) = allowlist_pattern(pattern) {
            problems.invalid_text(format!("{ALLOWLIST}[{at}]"), pattern, why);
        }
    }
}

/// An image's name without tag and digest, or a registry with or without a path, followed by `/*`.
fn allowlist_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern.trim() != pattern {
        return Err("must not begin or end with spaces");
    }
    let (prefix, wildcard) = match pattern.strip_suffix('*') {
        Some(prefix) if prefix.ends_with('/') => (prefix, true),
        _ => (pattern, false),
    };
    if prefix.contains('*') {
        return Err("may have a wildcard only as '/*' at its end");
    }
    match (wildcard, prefix) {
        (_, "") => Err("must not be empty"),
        (true, "/") => Err("must have a registry before '/*'"),
        (true, _) => Ok(()),
        (false, name) if is_repository(name) => Ok(()),
        (false, _) => Err("must be an image's name without tag and digest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowlist_patterns() {
        for pattern in [
            "busybox",
            "registry.k8s.io/pause",
            "localhost:5000/a/b",
            "a.io/*",
            "a.io/b/*",
            "x/*",
        ] {
            assert_eq!(allowlist_pattern(pattern), Ok(()), "{pattern}");
        }
        for pattern in [
            "",
            " a",
            "a ",
            "*",
            "/*",
            "a*",
            "a/*/b",
            "a/*/*",
            "a/b*",
            "a:1",
            "a.io/b:1",
            "a@sha256:aaaa",
            "A",
            "a//b",
        ] {
            assert!(allowlist_pattern(pattern).is_err(), "{pattern}");
        }
    }
}
