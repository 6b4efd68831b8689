//! Scripts of commands in containers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::PodUid;

use super::Planned;

/// The result of a command in a container, as a test scripts it.
///
/// ```
/// use std::time::Duration;
/// use kubelet_testing::memory_cri::ExecReply;
///
/// ExecReply::exits(0).stdout("ready\n");
/// ExecReply::exits(1).stderr("not yet").after(Duration::from_secs(2));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ExecReply {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// `None`: it does not end by itself.
    pub(super) takes: Option<Duration>,
    pub(super) not_found: bool,
}

impl ExecReply {
    /// It exits at once with this code, without output.
    pub fn exits(code: i32) -> Self {
        Self {
            code,
            stdout: Vec::new(),
            stderr: Vec::new(),
            takes: Some(Duration::ZERO),
            not_found: false,
        }
    }

    /// It does not end by itself. The call's timeout or the end of the container ends it.
    pub fn hangs() -> Self {
        Self {
            takes: None,
            ..Self::exits(0)
        }
    }

    /// The container does not have the program: the call fails with containerd's error.
    pub fn no_such_program() -> Self {
        Self {
            not_found: true,
            ..Self::exits(0)
        }
    }

    /// It takes this long.
    pub fn after(mut self, takes: Duration) -> Self {
        self.takes = Some(takes);
        self
    }

    /// Its standard output.
    pub fn stdout(mut self, output: impl Into<Vec<u8>>) -> Self {
        self.stdout = output.into();
        self
    }

    /// Its standard error.
    pub fn stderr(mut self, output: impl Into<Vec<u8>>) -> Self {
        self.stderr = output.into();
        self
    }
}

type Condition = Arc<dyn Fn(&Planned, &[String]) -> bool + Send + Sync>;

/// The scripts of commands.
pub(super) struct ExecScript {
    applies: Condition,
    replies: Vec<ExecReply>,
    used: BTreeMap<(PodUid, String), usize>,
}

impl ExecScript {
    pub(super) fn new(
        applies: impl Fn(&Planned, &[String]) -> bool + Send + Sync + 'static,
        replies: impl IntoIterator<Item = ExecReply>,
    ) -> Self {
        Self {
            applies: Arc::new(applies),
            replies: replies.into_iter().collect(),
            used: BTreeMap::new(),
        }
    }

    /// The reply to a command, from the latest script that applies. Each container goes through the replies on its
    /// own; restarts do not reset this.
    pub(super) fn reply(scripts: &mut [Self], container: &Planned, command: &[String]) -> ExecReply {
        let script = scripts
            .iter_mut()
            .rev()
            .find(|script| (script.applies)(container, command));
        let Some(script) = script else {
            return ExecReply::exits(0);
        };
        let used = script
            .used
            .entry((container.pod_uid(), container.name().to_owned()))
            .or_default();
        let reply = script.replies.get(*used).or(script.replies.last());
        *used += 1;
        reply.cloned().unwrap_or_else(|| ExecReply::exits(0))
    }
}

kubelet_core::impl_debug!(ExecScript: replies);
