//! The objects of the cluster that pods use, and their replacements without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::{
    ConfigObjects, NoConfigObjects, NoServiceAccountTokens, NoServiceAccounts, NoServices, RuntimeClasses,
    ServiceAccountTokens, ServiceAccounts, Services,
};

/// What pods use of the cluster.
pub(crate) struct Objects {
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
    pub(crate) accounts: Arc<dyn ServiceAccounts>,
    pub(crate) services: Arc<dyn Services>,
    pub(crate) runtime_classes: Arc<dyn RuntimeClasses>,
}

impl Objects {
    pub(crate) fn none() -> Self {
        Self {
            config_objects: Arc::new(NoConfigObjects),
            tokens: Arc::new(NoServiceAccountTokens),
            accounts: Arc::new(NoServiceAccounts),
            services: Arc::new(NoServices),
            runtime_classes: Arc::new(BTreeMap::new()),
        }
    }
}
