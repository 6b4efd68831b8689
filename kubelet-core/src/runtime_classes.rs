//! The RuntimeClasses that pods name.

use std::collections::BTreeMap;

/// Tells of the cluster's RuntimeClasses. Answers to the kubelet's `runtimeclass.Manager`. Each call is quick: what was
/// seen last counts.
///
/// A map from names to handlers is one that does not change:
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
    /// The runtime's handler for the pods of a class; `None` where there is no class of this name. Not asked for pods
    /// that name none: those run under the default handler, whose name is empty.
    fn handler(&self, class: &str) -> Option<String>;
}

impl RuntimeClasses for BTreeMap<String, String> {
    fn handler(&self, class: &str) -> Option<String> {
        self.get(class).cloned()
    }
}
