//! The room of the logs of containers: their rotation.

use std::sync::Arc;

use kubelet_cri::RuntimeService;
use kubelet_kuberuntime::logs::{ContainerLogManager, LogRotatePolicy};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::configured;
use crate::context::Context;
use crate::error::Result;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    problems.note(
        "containerLogMaxSize",
        configured::log_rotation(&settings.configuration),
    );
}

/// Rotates the logs of the runtime's containers. What is returned changes the policy while it runs.
pub(crate) fn start(
    context: &Context,
    services: &Arc<dyn RuntimeService>,
    tasks: &mut Tasks,
) -> Result<watch::Sender<LogRotatePolicy>> {
    let (policy, policies) = watch::channel(configured::log_rotation(&context.settings.configuration)?);
    let (context, services) = (context.clone(), services.clone());
    tasks.add_fallible("container logs", move |shutdown| {
        rotate(context, services, policies, shutdown)
    });
    Ok(policy)
}

/// A changed policy is for a new manager; the present one completes its rotations first.
async fn rotate(
    context: Context,
    services: Arc<dyn RuntimeService>,
    mut policies: watch::Receiver<LogRotatePolicy>,
    shutdown: CancellationToken,
) -> Result<()> {
    while !shutdown.is_cancelled() {
        let policy = *policies.borrow_and_update();
        let (ends, logs) = (
            shutdown.child_token(),
            ContainerLogManager::new(services.clone(), policy)?,
        );
        let changed = async {
            if policies.changed().await.is_err() {
                shutdown.cancelled().await;
            }
            ends.cancel();
        };
        let running = logs.clock(context.clock).disk(context.disk).run(ends.clone());
        tokio::pin!(running);
        tokio::select! {
            () = &mut running => {}
            () = changed => running.await,
        }
    }
    Ok(())
}
