//! How images are pulled.

use std::path::PathBuf;
use std::time::Duration;

/// How images are pulled: the fields of `KubeletConfiguration` with the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImagePullSettings {
    /// `serializeImagePulls`: whether images are pulled one after the other.
    pub serialize_image_pulls: bool,
    /// `maxParallelImagePulls`, if pulls are not serialized; `None` for no limit.
    pub max_parallel_image_pulls: Option<u32>,
    /// `registryPullQPS`: how many pulls may begin per second, 5 by default; 0 for no limit. A pull beyond the limit
    /// fails with `pull QPS exceeded` and backs off.
    pub registry_pull_qps: u32,
    /// `registryBurst`: how many pulls may begin at once, 10 by default.
    pub registry_burst: u32,
    /// The wait after the first failed pull, 10 s by default. It doubles with each further failure.
    pub back_off_initial: Duration,
    /// The longest wait, 5 min by default.
    pub back_off_max: Duration,
    /// `imagePullCredentialsVerificationPolicy`
    pub credentials_verification: ImagePullCredentialsVerificationPolicy,
    /// The files with the node's own credentials. The first one that can be read counts: a `.dockercfg` (by its name)
    /// or a `config.json`. It is read again after 5 min. `None` means the kubelet's places: `config.json` in the root
    /// folder, then in the folder `.docker` of the user's home and of `/`; then `.dockercfg` in the root folder, the
    /// user's home and `/`.
    pub docker_config_files: Option<Vec<PathBuf>>,
    /// The feature gate `RuntimeClassInImageCriApi`, off by default: whether images are looked up and pulled for the
    /// runtime handler of the pod's RuntimeClass.
    pub runtime_class_in_image_cri_api: bool,
}

impl Default for ImagePullSettings {
    fn default() -> Self {
        Self {
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            registry_pull_qps: 5,
            registry_burst: 10,
            back_off_initial: Duration::from_secs(10),
            back_off_max: Duration::from_secs(300),
            credentials_verification: ImagePullCredentialsVerificationPolicy::default(),
            docker_config_files: None,
            runtime_class_in_image_cri_api: false,
        }
    }
}

/// When a pod must prove, with credentials, that it may use an image that is on the node already
/// (`ImagePullCredentialsVerificationPolicy`, the feature gate `KubeletEnsureSecretPulledImages`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImagePullCredentialsVerificationPolicy {
    /// Never: every pod may use it.
    NeverVerify,
    /// Only if a kubelet pulled it.
    #[default]
    NeverVerifyPreloadedImages,
    /// Unless it is in this list (`preloadedImagesVerificationAllowlist`) of names without tag or digest. A name that
    /// ends in `/*` matches all images below it.
    NeverVerifyAllowlistedImages(Vec<String>),
    /// Always.
    AlwaysVerify,
}

impl ImagePullCredentialsVerificationPolicy {
    /// The policy for the values of `imagePullCredentialsVerificationPolicy` and
    /// `preloadedImagesVerificationAllowlist`; the default for an unknown value.
    pub fn configured(policy: &str, allowlist: &[String]) -> Self {
        match policy {
            "NeverVerify" => Self::NeverVerify,
            "NeverVerifyAllowlistedImages" => Self::NeverVerifyAllowlistedImages(allowlist.to_vec()),
            "AlwaysVerify" => Self::AlwaysVerify,
            _ => Self::NeverVerifyPreloadedImages,
        }
    }

    /// Whether a pod must prove that it may use an image. `repository` is the image's name without tag and digest.
    pub(super) fn requires_verification(&self, repository: &str, pulled_by_kubelet: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => pulled_by_kubelet,
            Self::NeverVerifyAllowlistedImages(allowed) => {
                !allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(prefix) => repository.starts_with(prefix),
                    None => repository == pattern,
                })
            }
            Self::AlwaysVerify => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ImagePullCredentialsVerificationPolicy::{self, *};

    #[test]
    fn policies_have_names() {
        let allowlist = ["r.io/base".to_owned()];
        for (name, policy) in [
            ("NeverVerify", NeverVerify),
            ("NeverVerifyPreloadedImages", NeverVerifyPreloadedImages),
            ("", NeverVerifyPreloadedImages),
            (
                "NeverVerifyAllowlistedImages",
                NeverVerifyAllowlistedImages(allowlist.to_vec()),
            ),
            ("AlwaysVerify", AlwaysVerify),
        ] {
            assert_eq!(
                ImagePullCredentialsVerificationPolicy::configured(name, &allowlist),
                policy
            );
        }
    }

    #[test]
    fn policies_tell_what_needs_a_proof() {
        let listed = || NeverVerifyAllowlistedImages(vec!["r.io/base".into(), "r.io/free/*".into()]);
        let cases = [
            // policy, repository, pulled by a kubelet, needs a proof
            (NeverVerify, "r.io/a", true, false),
            (NeverVerifyPreloadedImages, "r.io/a", true, true),
            (NeverVerifyPreloadedImages, "r.io/a", false, false),
            (listed(), "r.io/base", true, false),
            (listed(), "r.io/base/more", false, true),
            (listed(), "r.io/free/a/b", true, false),
            (listed(), "r.io/freely", true, true),
            (AlwaysVerify, "r.io/a", false, true),
        ];
        for (policy, repository, pulled, needs) in cases {
            assert_eq!(
                policy.requires_verification(repository, pulled),
                needs,
                "{policy:?} {repository} {pulled}"
            );
        }
    }
}
