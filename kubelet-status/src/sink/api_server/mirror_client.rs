//! Mirror pods on an API server.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube_client::api::{Api, DeleteParams, PostParams, Preconditions};
use kube_client::{Client, Error as ClientError};
use kubelet_core::{Error, MirrorClient, PodExt, PodKey, PodUid, Result, annotations};

/// Creates and deletes the mirrors of static pods on an API server. Answers to the kubelet's `basicMirrorClient`.
#[derive(Clone)]
pub struct ApiServerMirrorClient {
    client: Client,
}

impl ApiServerMirrorClient {
    /// Mirrors on the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn pods(&self, key: &PodKey) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

impl std::fmt::Debug for ApiServerMirrorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServerMirrorClient").finish_non_exhaustive()
    }
}

#[async_trait]
impl MirrorClient for ApiServerMirrorClient {
    async fn create_mirror_pod(&self, mirror: Pod) -> Result<()> {
        let key = mirror.key();
        let pods = self.pods(&key);
        match pods.create(&PostParams::default(), &mirror).await {
            Ok(_) => Ok(()),
            Err(ClientError::Api(status)) if status.code == 409 => {
                // It may have been created by an earlier run of the agent, and the watch has not delivered it yet.
                let there = pods.get_opt(&key.name).await;
                let there = there.map_err(|error| failed(&key, error))?;
                let hash = |pod: &Pod| pod.annotation(annotations::CONFIG_MIRROR).map(str::to_owned);
                match there.is_some_and(|there| hash(&there) == hash(&mirror)) {
                    true => Ok(()),
                    false => Err(failed(&key, ClientError::Api(status))),
                }
            }
            Err(error) => Err(failed(&key, error)),
        }
    }

    async fn delete_mirror_pod(&self, key: &PodKey, uid: &PodUid) -> Result<bool> {
        let now = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions {
                uid: Some(uid.as_str().to_owned()),
                resource_version: None,
            });
        match self.pods(key).delete(&key.name, &now).await {
            Ok(_) => Ok(true),
            // It is gone, or another object has its name.
            Err(ClientError::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(failed(key, error)),
        }
    }
}

fn failed(key: &PodKey, error: ClientError) -> Error {
    Error::MirrorPod {
        pod: key.clone(),
        source: Arc::new(error),
    }
}
