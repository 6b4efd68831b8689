//! The objects of the cluster that pods use, and their replacements without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::{
    ConfigObjects, NoConfigObjects, NoServiceAccountTokens, NoServices, RuntimeClasses, ServiceAccountTokens,
    Services,
};

/// What pods use of the cluster.
pub(crate) struct Objects {
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
    pub(crate) services: Arc<dyn Services>,
    pub(crate) runtime_classes: Arc<dyn RuntimeClasses>,
}

impl Objects {
    pub(crate) fn none() -> Self {
        Self {
            config_objects: Arc::new(NoConfigObjects),
            tokens: Arc::new(NoServiceAccountTokens),
            services: Arc::new(NoServices),
            runtime_classes: Arc::new(BTreeMap::new()),
        }
    }
}
