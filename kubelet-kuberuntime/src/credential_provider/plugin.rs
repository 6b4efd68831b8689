//! One plugin: matches images, runs the program, and caches its answers (`pluginProvider`).

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::CredentialProvider;
use super::cache::{Cache, GLOBAL, registry};
use super::exec::{Answer, ask};
use crate::images::{DockerConfig, Login, urls_match};

type Asked = BoxFuture<'static, Result<Answer, String>>;

/// A plugin and its answers.
pub(crate) struct Plugin {
    provider: Arc<CredentialProvider>,
    cache: Cache,
    /// The unfinished runs by image: another request for the same image waits for the same answer.
    asking: Mutex<HashMap<String, WeakShared<Asked>>>,
}

impl Plugin {
    pub(crate) fn new(provider: CredentialProvider) -> Self {
        Self {
            provider: Arc::new(provider),
            cache: Cache::default(),
            asking: Mutex::default(),
        }
    }

    /// Its credentials for an image (`provide`); none if it fails, which is logged. `repository` is the full image name
    /// without tag and digest.
    pub(crate) async fn provide(&self, repository: &str) -> DockerConfig {
        let patterns = &self.provider.match_images;
        if !patterns.iter().any(|pattern| urls_match(pattern, repository)) {
            return DockerConfig::new();
        }
        if let Some(config) = self.cache.get(repository) {
            return config;
        }
        let provided = self.ask_once(repository).await;
        let provided = provided.and_then(|answer| self.keep(repository, answer));
        provided.unwrap_or_else(|error| {
            let provider = &self.provider.name;
            tracing::error!(
                provider,
                image = repository,
                error,
                "a credential provider failed"
            );
            DockerConfig::new()
        })
    }

    async fn ask_once(&self, image: &str) -> Result<Answer, String> {
        self.asked(image).await
    }

    /// The unfinished run for this image, or a new one.
    fn asked(&self, image: &str) -> Shared<Asked> {
        let mut asking = self.asking.lock();
        let goes_on = asking.get(image).and_then(WeakShared::upgrade);
        if let Some(goes_on) = goes_on.filter(|run| run.peek().is_none()) {
            return goes_on;
        }
        asking.retain(|_, run| run.upgrade().is_some());
        let (provider, about) = (self.provider.clone(), image.to_owned());
        let run = async move { ask(&provider, &about).await }.boxed().shared();
        if let Some(weak) = run.downgrade() {
            asking.insert(image.to_owned(), weak);
        }
        run
    }

    fn keep(&self, image: &str, answer: Answer) -> Result<DockerConfig, String> {
        let key = match answer.cache_key_type.as_str() {
            "Image" => image,
            "Registry" => registry(image),
            "Global" => GLOBAL,
            other => {
                return Err(format!(
                    "credential provider plugin did not return a valid cacheKeyType: {other}"
                ));
            }
        };
        let logins = answer.auth.unwrap_or_default().into_iter();
        let config: DockerConfig = logins
            .map(|(pattern, auth)| {
                let login = Login {
                    username: auth.username,
                    password: auth.password,
                    ..Default::default()
                };
                (pattern, login)
            })
            .collect();
        let lifetime = answer
            .cache_duration
            .unwrap_or(self.provider.default_cache_duration);
        if !lifetime.is_zero() {
            let expires = Instant::now().checked_add(lifetime);
            self.cache.add(key.to_owned(), config.clone(), expires);
        }
        Ok(config)
    }
}
