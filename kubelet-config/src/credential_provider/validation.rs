//! Whether a kubelet would run with a configuration of credential providers.

use std::collections::BTreeSet;

use super::match_image::is_schemeless_url;
use super::{CredentialProvider, CredentialProviderConfig, ServiceAccountTokenAttributes};
use crate::kubelet_configuration::validation::{Problems, ValidationErrors};
use crate::{FeatureGates, names};

/// The versions of the API that a program may speak.
const API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
/// The one of them that has tokens.
const V1: &str = API_VERSIONS[0];
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];
const TOKEN_GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";

impl CredentialProviderConfig {
    /// Checks the configuration (`validateCredentialProviderConfig`).
    ///
    /// # Errors
    ///
    /// All problems together, each with its field.
    pub fn validate(&self, gates: &FeatureGates) -> Result<(), ValidationErrors> {
        let mut problems = Problems::default();
        if self.providers.is_empty() {
            problems.invalid("providers", "[]", "at least one is required");
        }
        let mut seen = BTreeSet::new();
        for (index, provider) in self.providers.iter().enumerate() {
            let at = |field: &str| format!("providers[{index}].{field}");
            check_name(provider, &at("name"), &mut problems);
            if !seen.insert(provider.name.as_str()) {
                problems.invalid_text(at("name"), &provider.name, "is there twice");
            }
            check_how_asked(provider, &at, &mut problems);
            if let Some(token) = &provider.token_attributes {
                let path = at("tokenAttributes");
                if !gates.enabled(TOKEN_GATE) {
                    problems.invalid(
                        path.clone(),
                        "set",
                        format!("needs the feature gate {TOKEN_GATE}"),
                    );
                }
                if provider.api_version != V1 {
                    problems.invalid(path.clone(), "set", format!("needs the apiVersion {V1}"));
                }
                check_token(token, &path, &mut problems);
            }
        }
        problems.into_result()
    }
}

/// The name is that of a file in a folder.
fn check_name(provider: &CredentialProvider, path: &str, problems: &mut Problems) {
    let name = provider.name.as_str();
    let refuse = |detail| problems.invalid_text(path, name, detail);
    let details = [
        (name.contains('/'), "must not contain '/'"),
        (name.contains(' '), "must not contain spaces"),
        (name == ".", "must not be '.'"),
        (name == "..", "must not be '..'"),
    ];
    let wrong = details.into_iter().filter(|(wrong, _)| *wrong);
    wrong.map(|(_, detail)| detail).for_each(refuse);
}

fn check_how_asked(provider: &CredentialProvider, at: &impl Fn(&str) -> String, problems: &mut Problems) {
    problems.unless_one_of(&at("apiVersion"), &provider.api_version, &API_VERSIONS);
    if provider.match_images.is_empty() {
        problems.invalid(at("matchImages"), "[]", "at least one is required");
    }
    for image in provider
        .match_images
        .iter()
        .filter(|image| !is_schemeless_url(image))
    {
        problems.invalid_text(
            at("matchImages"),
            image,
            "is not a host with an optional port and path",
        );
    }
    match provider.default_cache_duration {
        None => problems.invalid(at("defaultCacheDuration"), "null", "is required"),
        Some(duration) if duration.is_negative() => {
            problems.invalid(at("defaultCacheDuration"), duration, "must not be negative");
        }
        Some(_) => {}
    }
}

fn check_token(token: &ServiceAccountTokenAttributes, path: &str, problems: &mut Problems) {
    let at = |field: &str| format!("{path}.{field}");
    if token.service_account_token_audience.is_empty() {
        problems.invalid_text(at("serviceAccountTokenAudience"), "", "is required");
    }
    let required = &token.required_service_account_annotation_keys;
    match token.require_service_account {
        None => problems.invalid(at("requireServiceAccount"), "null", "is required"),
        Some(false) if !required.is_empty() => problems.invalid(
            at("requiredServiceAccountAnnotationKeys"),
            format_args!("{required:?}"),
            "must be empty where requireServiceAccount is false",
        ),
        Some(_) => {}
    }
    let optional = &token.optional_service_account_annotation_keys;
    check_keys(required, &at("requiredServiceAccountAnnotationKeys"), problems);
    check_keys(optional, &at("optionalServiceAccountAnnotationKeys"), problems);
    for key in required.iter().filter(|key| optional.contains(key)) {
        problems.invalid_text(path, key, "annotations must not be both required and optional");
    }
    problems.unless_one_of(&at("cacheType"), &token.cache_type, &CACHE_TYPES);
}

fn check_keys(keys: &[String], path: &str, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for key in keys {
        if let Err(detail) = names::qualified_name(&key.to_lowercase()) {
            problems.invalid_text(path, key, detail);
        }
        if !seen.insert(key) {
            problems.invalid_text(path, key, "is there twice");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ['*.dkr.ecr.*.amazonaws.com', 'registry.io:8080/path']
  defaultCacheDuration: 0s
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  tokenAttributes:
    serviceAccountTokenAudience: me
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [Example.com/Role]
    optionalServiceAccountAnnotationKeys: [b]
";

    fn fields(text: &str, gates: &FeatureGates) -> Vec<String> {
        let config = CredentialProviderConfig::from_yaml(text).unwrap();
        let errors = config.validate(gates).err();
        let fields = errors.into_iter().flatten().map(|error| error.field);
        fields
            .map(|field| field.trim_start_matches("providers[0].").to_owned())
            .collect()
    }

    #[test]
    fn rules() {
        let gates = FeatureGates::new();
        assert!(fields(GOOD, &gates).is_empty());
        for (from, to, field) in [
            ("name: ecr", "name: e/r", "name"),
            ("name: ecr", "name: 'e r'", "name"),
            ("name: ecr", "name: .", "name"),
            ("name: ecr", "name: ..", "name"),
            ("credentialprovider.kubelet.k8s.io/v1", "v1", "apiVersion"),
            ("'registry.io:8080/path'", "'registry.io:x'", "matchImages"),
            ("  matchImages", "  args", "matchImages"),
            ("Duration: 0s", "Duration: -1s", "defaultCacheDuration"),
            ("Duration: 0s", "Duration: null", "defaultCacheDuration"),
            (
                "Audience: me",
                "Audience: ''",
                "tokenAttributes.serviceAccountTokenAudience",
            ),
            ("cacheType: Token", "cacheType: ''", "tokenAttributes.cacheType"),
            (
                "cacheType: Token",
                "cacheType: token",
                "tokenAttributes.cacheType",
            ),
            (
                "Account: true",
                "Account: null",
                "tokenAttributes.requireServiceAccount",
            ),
            (
                "Account: true",
                "Account: false",
                "tokenAttributes.requiredServiceAccountAnnotationKeys",
            ),
            (
                "[Example.com/Role]",
                "[a, a]",
                "tokenAttributes.requiredServiceAccountAnnotationKeys",
            ),
            (
                "[b]",
                "['a b']",
                "tokenAttributes.optionalServiceAccountAnnotationKeys",
            ),
            ("[b]", "[Example.com/Role]", "tokenAttributes"),
        ] {
            let text = GOOD.replace(from, to);
            assert!(fields(&text, &gates).contains(&field.to_owned()), "{to}");
        }
        let old = GOOD.replace("kubelet.k8s.io/v1\n  token", "kubelet.k8s.io/v1beta1\n  token");
        assert_eq!(fields(&old, &gates), ["tokenAttributes"]);
        let mut off = gates.clone();
        off.set("KubeletServiceAccountTokenForCredentialProviders=false")
            .unwrap();
        assert_eq!(fields(GOOD, &off), ["tokenAttributes"]);
        let none = GOOD.split("providers").next().unwrap();
        assert_eq!(fields(none, &gates), ["providers"]);
        let twice = GOOD.to_owned() + GOOD.split("providers:\n").last().unwrap();
        assert_eq!(fields(&twice, &gates), ["providers[1].name"]);
    }
}
