//! Clones of a repository: disabled (`pkg/volume/git_repo`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{GitRepoVolumeSource, Volume};

use super::in_tree::Host;
use super::wrapped;
use crate::filesystem::clean_path::clean_path;
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// `gitRepo` volumes. None is set up, since the gate `GitRepoVolumeDriver` is off. Those that an older kubelet left are
/// removed.
pub(super) struct GitRepoPlugin {
    host: Arc<Host>,
}

impl GitRepoPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&GitRepoVolumeSource> {
    spec.pod_volume()?.git_repo.as_ref()
}

#[async_trait]
impl VolumePlugin for GitRepoPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/git-repo"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        Attributes {
            read_only: false,
            managed: true,
            selinux_relabel: true,
        }
    }

    async fn prepare(&self, mount: &PodMount) -> Result<()> {
        source(&mount.spec).map_or(Ok(()), validate)
    }

    async fn set_up(&self, _: &PodMount) -> Result<SetUp> {
        Err(Error::failed(
            "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the \
             feature-gate `GitRepoVolumeDriver`",
        ))
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        wrapped::tear_down(&self.host, mounted).await
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            git_repo: Some(GitRepoVolumeSource::default()),
            ..Volume::default()
        })))
    }
}

/// `validateVolume`
fn validate(source: &GitRepoVolumeSource) -> Result<()> {
    let revision = source.revision.as_deref().unwrap_or_default();
    let directory = source.directory.as_deref().unwrap_or_default();
    for (value, what) in [
        (source.repository.as_str(), "repository"),
        (revision, "revision"),
        (directory, "directory"),
    ] {
        if value.starts_with('-') {
            return Err(Error::failed(format!("{value:?} is an invalid value for {what}")));
        }
    }
    let is_nested = clean_path(directory).contains(['/', '\\']);
    if !revision.is_empty() && !directory.is_empty() && is_nested {
        return Err(Error::failed(format!(
            "{directory:?} is not a valid directory, it must not contain a directory separator"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_no_flags() {
        for (repository, revision, directory, expected) in [
            ("https://x", "", "", Ok(())),
            ("https://x", "", "a/b", Ok(())),
            (
                "--upload-pack=x",
                "",
                "",
                Err("\"--upload-pack=x\" is an invalid value for repository"),
            ),
            (
                "https://x",
                "main",
                "a/b",
                Err("\"a/b\" is not a valid directory, it must not contain a directory separator"),
            ),
        ] {
            let source = GitRepoVolumeSource {
                repository: repository.to_owned(),
                revision: Some(revision.to_owned()),
                directory: Some(directory.to_owned()),
            };
            let checked = validate(&source).map_err(|error| error.to_string());
            assert_eq!(checked, expected.map_err(str::to_owned));
        }
    }
}
