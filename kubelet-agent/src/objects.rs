//! The objects of the cluster that pods use, and their replacements without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "apiserver")]
use kubelet_config::{ApiServerTokens, ConfigObjectManager, Informer};
use kubelet_core::{
    ConfigObjects, NoConfigObjects, NoServiceAccountTokens, NoServices, RuntimeClasses, ServiceAccountTokens,
    Services,
};

use crate::Result;
use crate::context::Context;
use crate::tasks::Tasks;

/// What pods use of the cluster.
pub(crate) struct Objects {
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    #[cfg_attr(not(feature = "volumes"), allow(dead_code, reason = "for volumes"))]
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
    pub(crate) services: Arc<dyn Services>,
    pub(crate) runtime_classes: Arc<dyn RuntimeClasses>,
    /// Watches the config maps and secrets of the pods. It runs once the pods are known.
    #[cfg(feature = "apiserver")]
    pub(crate) manager: Option<ConfigObjectManager>,
}

impl Objects {
    /// Objects of the API server if there is one. `config_objects` replaces its config maps and secrets.
    pub(crate) fn new(
        context: &Context,
        config_objects: Option<Arc<dyn ConfigObjects>>,
        tasks: &mut Tasks,
    ) -> Result<Self> {
        let mut objects = Self {
            config_objects: Arc::new(NoConfigObjects),
            tokens: Arc::new(NoServiceAccountTokens),
            services: Arc::new(NoServices),
            runtime_classes: Arc::new(BTreeMap::new()),
            #[cfg(feature = "apiserver")]
            manager: None,
        };
        #[cfg(feature = "apiserver")]
        if let Some(client) = &context.client {
            if config_objects.is_none() {
                let manager = ConfigObjectManager::new(client.clone(), &context.settings.configuration)?;
                objects.config_objects = manager.handle();
                objects.manager = Some(manager);
            }
            objects.tokens = Arc::new(ApiServerTokens::new(client.clone()));
            let informer = Informer::services(client.clone());
            objects.services = Arc::new(informer.handle());
            tasks.add("services", |shutdown| informer.run(shutdown));
            let informer = Informer::runtime_classes(client.clone());
            objects.runtime_classes = Arc::new(informer.handle());
            tasks.add("runtime classes", |shutdown| informer.run(shutdown));
        }
        #[cfg(not(feature = "apiserver"))]
        let _ = (context, tasks);
        if let Some(own) = config_objects {
            objects.config_objects = own;
        }
        Ok(objects)
    }
}
