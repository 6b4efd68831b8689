//! The RuntimeClasses that pods refer to.

use std::collections::BTreeMap;

/// Looks up the cluster's RuntimeClasses. Answers to the kubelet's `runtimeclass.Manager`. Each call is fast: it reads
/// from a cache.
///
/// A map from names to handlers is a fixed set:
///
/// ```
/// use std::collections::BTreeMap;
///
/// use kubelet_core::RuntimeClasses;
///
/// let classes = BTreeMap::from([("gvisor".to_owned(), "runsc".to_owned())]);
/// assert_eq!(classes.handler("gvisor").as_deref(), Some("runsc"));
/// assert_eq!(classes.handler("kata"), None);
/// ```
pub trait RuntimeClasses: Send + Sync {
    /// The runtime handler of a class; `None` if there is no class with this name. Not called for pods without a class:
    /// they use the default handler, whose name is empty.
    fn handler(&self, class: &str) -> Option<String>;
}

impl RuntimeClasses for BTreeMap<String, String> {
    fn handler(&self, class: &str) -> Option<String> {
        self.get(class).cloned()
    }
}
