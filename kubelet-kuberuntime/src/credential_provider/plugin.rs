//! One plugin: matches images, runs the program, and caches its answers (`pluginProvider`).

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, ServiceAccounts};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::CredentialProvider;
use super::cache::{AccountKey, Cache, GLOBAL, registry};
use super::exec::{Answer, Question, ask};
use super::service_account::{ForPod, Identity, ServiceAccountTokenCacheType};
use crate::images::{Coordinates, DockerConfig, Login, urls_match};

type Asked = BoxFuture<'static, Result<Answer, String>>;

/// A plugin and its answers.
pub(crate) struct Plugin {
    provider: Arc<CredentialProvider>,
    cache: Cache,
    /// The unfinished runs: another request with the same question waits for the same answer.
    asking: Mutex<HashMap<AskedKey, WeakShared<Asked>>>,
}

/// The image, and the service account with the hash of its token (`generateSingleFlightKey`).
type AskedKey = (String, Option<AccountKey>);

/// Credentials, and the service account that they are for.
#[derive(Default)]
pub(crate) struct Provided {
    pub(crate) config: DockerConfig,
    /// `None`: for all pods.
    pub(crate) account: Option<Coordinates>,
}

impl Plugin {
    pub(crate) fn new(provider: CredentialProvider) -> Self {
        Self {
            provider: Arc::new(provider),
            cache: Cache::default(),
            asking: Mutex::default(),
        }
    }

    /// Its credentials for an image (`provideWithCoordinates`); none if it fails, which is logged. `repository` is the
    /// full image name without tag and digest.
    pub(crate) async fn provide(
        &self,
        repository: &str,
        pod: &Pod,
        accounts: &dyn ServiceAccounts,
    ) -> Provided {
        let patterns = &self.provider.match_images;
        if !patterns.iter().any(|pattern| urls_match(pattern, repository)) {
            return Provided::default();
        }
        let provider = &self.provider.name;
        let provided = match self.identity(pod, accounts).await {
            Ok(ForPod::WithAccount(account)) => self.of_account(repository, Some(account)).await,
            Ok(ForPod::WithoutAccount) => self.of_account(repository, None).await,
            Ok(ForPod::NoCall(why)) => {
                tracing::debug!(
                    provider,
                    image = repository,
                    pod = %pod.key(),
                    uid = pod.uid_str(),
                    why,
                    "a credential provider is not called"
                );
                return Provided::default();
            }
            Err(error) => Err(error),
        };
        provided.unwrap_or_else(|error| {
            tracing::error!(
                provider,
                image = repository,
                pod = %pod.key(),
                uid = pod.uid_str(),
                service_account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()),
                error,
                "a credential provider failed"
            );
            Provided::default()
        })
    }

    async fn identity(&self, pod: &Pod, accounts: &dyn ServiceAccounts) -> Result<ForPod, String> {
        match &self.provider.token_attributes {
            Some(attributes) => attributes.of(pod, accounts).await,
            None => Ok(ForPod::WithoutAccount),
        }
    }

    /// From the cache, or from the plugin (`provide`).
    async fn of_account(&self, image: &str, account: Option<Identity>) -> Result<Provided, String> {
        let for_account = account.as_ref().map(|account| account.coordinates.clone());
        let key = account.as_ref().and_then(|account| self.key(account));
        let config = match self.cache.get(image, &key) {
            Some(config) => config,
            None => {
                let question = Question {
                    image: image.to_owned(),
                    account: account.map(Arc::new),
                };
                let answer = self.asked(&question).await?;
                self.check(&answer, &question)?;
                self.keep(image, key, answer)?
            }
        };
        Ok(Provided {
            config,
            account: for_account,
        })
    }

    fn key(&self, account: &Identity) -> Option<AccountKey> {
        let attributes = self.provider.token_attributes.as_ref()?;
        Some(AccountKey::new(account, attributes.cache_type))
    }

    /// The unfinished run with this question, or a new one.
    fn asked(&self, question: &Question) -> Shared<Asked> {
        let account = question.account.as_deref();
        let account = account.map(|account| AccountKey::new(account, ServiceAccountTokenCacheType::Token));
        let key = (question.image.clone(), account);
        let mut asking = self.asking.lock();
        let goes_on = asking.get(&key).and_then(WeakShared::upgrade);
        if let Some(goes_on) = goes_on.filter(|run| run.peek().is_none()) {
            return goes_on;
        }
        asking.retain(|_, run| run.upgrade().is_some());
        let (provider, about) = (self.provider.clone(), question.clone());
        let run = async move { ask(&provider, &about).await }.boxed().shared();
        if let Some(weak) = run.downgrade() {
            asking.insert(key, weak);
        }
        run
    }

    /// A token must not be the password of what is cached for all pods of its account: the cache would give one pod's
    /// token to other pods.
    fn check(&self, answer: &Answer, question: &Question) -> Result<(), String> {
        let (Some(attributes), Some(account)) = (&self.provider.token_attributes, &question.account) else {
            return Ok(());
        };
        let mut auths = answer.auth.iter().flat_map(|auth| auth.values());
        if attributes.cache_type != ServiceAccountTokenCacheType::Token
            && auths.any(|auth| auth.password == account.token)
        {
            return Err(
                "credential provider plugin returned the service account token as the password which is not allowed \
                 when service account cache type is not set to 'Token'"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn keep(&self, image: &str, account: Option<AccountKey>, answer: Answer) -> Result<DockerConfig, String> {
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
            self.cache.add(key.to_owned(), account, config.clone(), expires);
        }
        Ok(config)
    }
}
