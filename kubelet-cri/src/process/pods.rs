//! Pods: each has a folder for temporary files, which its containers share.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use super::{ProcessRuntime, make_dir};
use crate::verbs::{Pod, PodKey, PodSpec, Pods, Result, RuntimeError};

#[async_trait]
impl Pods for ProcessRuntime {
    async fn list(&self) -> Result<Vec<Pod>> {
        let dir = &self.shared.pods_dir;
        let failed = |error: io::Error| failed("", "read", dir, &error);
        let mut pods = Vec::new();
        let mut entries = tokio::fs::read_dir(dir).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            pods.extend(entry.file_name().to_str().and_then(key).map(Pod::new));
        }
        Ok(pods)
    }

    async fn inspect(&self, key: &PodKey) -> Result<Pod> {
        match folder(&self.shared.pods_dir, key)?.is_dir() {
            true => Ok(Pod::new(key.clone())),
            false => Err(RuntimeError::gone(key, "no such pod")),
        }
    }

    async fn begin(&self, spec: &PodSpec) -> Result<Pod> {
        let dir = folder(&self.shared.pods_dir, &spec.key)?;
        make_dir(&dir).map_err(|error| failed(&spec.key, "make", &dir, &error))?;
        Ok(Pod::new(spec.key.clone()))
    }

    async fn end(&self, key: &PodKey) -> Result<()> {
        let dir = folder(&self.shared.pods_dir, key)?;
        self.shared.stop_all(Some(key), Duration::ZERO).await;
        match tokio::fs::remove_dir_all(&dir).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(key, "remove", &dir, &error)),
            _ => Ok(()),
        }
    }
}

/// The folder of a pod, whether it is there or not.
pub(super) fn folder(pods_dir: &Path, key: &PodKey) -> Result<PathBuf> {
    let uid = key.uid.as_str();
    if uid.is_empty() || uid.contains(['/', '\0']) {
        return Err(RuntimeError::permanent(
            key,
            format!("{uid:?} cannot be a pod UID"),
        ));
    }
    Ok(pods_dir.join(format!("{uid}_{}", key.attempt)))
}

/// The pod of a folder.
fn key(name: &str) -> Option<PodKey> {
    let (uid, attempt) = name.rsplit_once('_')?;
    Some(PodKey::new(uid, attempt.parse().ok()?))
}

fn failed(about: impl std::fmt::Display, what: &str, path: &Path, error: &io::Error) -> RuntimeError {
    RuntimeError::transient(about, format!("{what} {}: {error}", path.display()))
}
