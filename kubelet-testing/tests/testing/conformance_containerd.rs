//! Real containerds fulfil the clauses; each clause has its own containerd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_cri::CriClient;
use kubelet_testing::Containerd;
use kubelet_testing::conformance::{Fixture, FixtureError, Opened, Program, Subject, Workload};

/// A containerd, and a client of it.
struct Real {
    containerd: Containerd,
    client: CriClient,
}

impl Real {
    async fn of(containerd: kubelet_testing::Result<Option<Containerd>>) -> Opened<Self> {
        let Some(containerd) = containerd? else {
            return Ok(None);
        };
        let client = CriClient::connect(containerd.endpoint()).await?;
        Ok(Some(Self { containerd, client }))
    }

    fn subject(&self) -> Subject {
        Subject::cri(Arc::new(self.client.clone()))
    }

    async fn reopen(&mut self) -> Result<(), FixtureError> {
        self.containerd.restart().await?;
        self.client = CriClient::connect(self.containerd.endpoint()).await?;
        Ok(())
    }
}

macro_rules! fixture {
    ($name:ident, $start:ident) => {
        struct $name(Real);

        #[async_trait]
        impl Fixture for $name {
            async fn open(_: &Path) -> Opened<Self> {
                Ok(Real::of(Containerd::$start().await).await?.map(Self))
            }

            fn subject(&self) -> Subject {
                self.0.subject()
            }

            async fn reopen(&mut self) -> Result<(), FixtureError> {
                self.0.reopen().await
            }

            fn workload(&self, program: &Program) -> Workload {
                program.in_shell(Containerd::BUSYBOX)
            }

            fn pace(&self) -> Duration {
                Duration::from_secs(5)
            }
        }
    };
}

/// The host's containerd: 1.6 has no events.
mod of_the_host {
    use super::*;

    fixture!(OfTheHost, start);

    kubelet_testing::conformance!(cri: OfTheHost, offers: [signals, restart, logs, exec, stats]);
}

mod v2 {
    use super::*;

    fixture!(Two, start_2);

    kubelet_testing::conformance!(cri: Two, offers: [signals, restart, logs, exec, stats, events]);
}
