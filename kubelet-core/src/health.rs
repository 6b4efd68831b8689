//! Health checks of an agent.

use std::fmt;
use std::sync::Arc;

use crate::KubeletHandle;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A set of named health checks (`healthz.HealthChecker`). Clones share the checks.
///
/// ```
/// use kubelet_core::HealthChecks;
///
/// let checks = HealthChecks::new()
///     .check("disk", || Err("it is on fire".into()));
/// assert_eq!(checks.failed(), ["disk"]);
/// ```
#[derive(Clone)]
pub struct HealthChecks {
    checks: Arc<[Check]>,
}

#[derive(Clone)]
struct Check {
    name: Arc<str>,
    look: Arc<dyn Fn() -> Result<(), BoxError> + Send + Sync>,
}

impl Default for HealthChecks {
    fn default() -> Self {
        Self::new()
    }
}

impl HealthChecks {
    /// The check `ping`, which always passes.
    pub fn new() -> Self {
        Self { checks: Arc::new([]) }.check("ping", || Ok(()))
    }

    /// The names of the checks, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().map(|check| &*check.name)
    }

    /// The checks of a kubelet: the sync loop makes progress (`syncloop`), and the PLEG lists the runtime
    /// (`pleg`).
    pub fn of(kubelet: &KubeletHandle) -> Self {
        let (sync_loop, pleg) = (kubelet.clone(), kubelet.clone());
        Self::new()
            .check("syncloop", move || Ok(sync_loop.sync_loop_healthy()?))
            .check("pleg", move || Ok(pleg.runtime_state().pleg_healthy()?))
    }

    /// Adds a check. `look` runs on every request and must return at once, with the last known result.
    #[must_use]
    pub fn check(
        self,
        name: impl Into<Arc<str>>,
        look: impl Fn() -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        let check = Check {
            name: name.into(),
            look: Arc::new(look),
        };
        Self {
            checks: self.checks.iter().cloned().chain([check]).collect(),
        }
    }

    /// The names of the checks that fail now. The reasons are logged.
    pub fn failed(&self) -> Vec<String> {
        let failed = self.look(|_| true).into_iter().filter(|(_, is_well)| !is_well);
        failed.map(|(name, _)| name.as_ref().to_owned()).collect()
    }

    /// The result of each wanted check, by name, in the order in which they were added. The reasons of failures are logged.
    pub fn look(&self, wanted: impl Fn(&str) -> bool) -> Vec<(Arc<str>, bool)> {
        let wanted = self.checks.iter().filter(|check| wanted(&check.name));
        wanted
            .map(|check| {
                let found = (check.look)();
                if let Err(error) = &found {
                    tracing::warn!(check = &*check.name, %error, "healthz check failed");
                }
                (check.name.clone(), found.is_ok())
            })
            .collect()
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.checks.iter().map(|check| &check.name);
        f.debug_set().entries(names).finish()
    }
}
