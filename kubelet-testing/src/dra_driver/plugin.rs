//! The driver's calls.

use std::collections::BTreeMap;
use std::future::pending;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kubelet_resources::dra::DriverPlugin;
use kubelet_resources::dra::health_v1alpha1::NodeWatchResourcesResponse;
use kubelet_resources::dra::v1::{
    Claim, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use tokio::time::sleep;
use tonic::Status;

use super::{DraCall, DraMethod, DraTrouble, MemoryDra};

#[async_trait]
impl DriverPlugin for MemoryDra {
    async fn prepare(
        &self,
        request: NodePrepareResourcesRequest,
    ) -> Result<NodePrepareResourcesResponse, Status> {
        let results = self.call(DraMethod::Prepare, request.claims, |this, claim| {
            let mut state = this.inner.state.lock();
            state.prepared.insert(claim.uid.clone(), claim.clone());
            let devices = state.devices.get(&claim.name).cloned();
            NodePrepareResourceResponse {
                devices: devices.unwrap_or_else(|| vec![this.default_device(&claim.name)]),
                error: String::new(),
            }
        });
        let failed = |error| NodePrepareResourceResponse {
            devices: Vec::new(),
            error,
        };
        let claims = answer(results.await?, failed);
        Ok(NodePrepareResourcesResponse { claims })
    }

    async fn unprepare(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> Result<NodeUnprepareResourcesResponse, Status> {
        let results = self.call(DraMethod::Unprepare, request.claims, |this, claim| {
            #[cfg(feature = "simulation")]
            this.check_unprepare(&claim.name);
            this.inner.state.lock().prepared.remove(&claim.uid);
            NodeUnprepareResourceResponse::default()
        });
        let claims = answer(results.await?, |error| NodeUnprepareResourceResponse { error });
        Ok(NodeUnprepareResourcesResponse { claims })
    }

    async fn watch_health(
        &self,
    ) -> Result<BoxStream<'static, Result<NodeWatchResourcesResponse, Status>>, Status> {
        let reports = stream::unfold(
            (self.inner.health.subscribe(), true),
            |(mut reports, first)| async move {
                loop {
                    if !first || reports.borrow_and_update().is_none() {
                        reports.changed().await.ok()?;
                    }
                    let report = reports.borrow_and_update().clone();
                    if let Some(report) = report {
                        return Some((Ok(report), (reports, false)));
                    }
                }
            },
        );
        Ok(reports.boxed())
    }
}

type Results<T> = BTreeMap<String, Result<T, String>>;

/// The results of the claims, by UID; of one that fails, what `failed` makes of the text.
fn answer<T>(results: Results<T>, failed: impl Fn(String) -> T) -> BTreeMap<String, T> {
    let results = results.into_iter();
    results
        .map(|(uid, result)| (uid, result.unwrap_or_else(&failed)))
        .collect()
}

/// Notes which claims a call is about, until it ends or is dropped.
struct InWork<'a> {
    driver: &'a MemoryDra,
    uids: Vec<String>,
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        let mut state = self.driver.inner.state.lock();
        state.in_work.retain(|uid| !self.uids.contains(uid));
    }
}

impl MemoryDra {
    #[cfg(feature = "simulation")]
    fn check_unprepare(&self, claim: &str) {
        let check = self.inner.state.lock().unprepare_check.clone();
        let wrong = check.map(|check| check(claim)).unwrap_or_default();
        self.inner.state.lock().violations.extend(wrong);
    }

    async fn call<T>(
        &self,
        method: DraMethod,
        claims: Vec<Claim>,
        work: impl Fn(&Self, &Claim) -> T,
    ) -> Result<Results<T>, Status> {
        let call = DraCall {
            method,
            claims: claims.iter().map(|claim| claim.name.clone()).collect(),
        };
        self.inner.calls.record(call.clone());
        let _in_work = self.begin(&claims);
        let trouble = self
            .inner
            .faults
            .lock()
            .iter_mut()
            .find_map(|fault| fault.of(&call));
        let do_all = || -> Results<T> {
            let results = claims
                .iter()
                .map(|claim| (claim.uid.clone(), Ok(work(self, claim))));
            results.collect()
        };
        match trouble {
            None => Ok(do_all()),
            Some(DraTrouble::Fails(code, message)) => Err(Status::new(code, message)),
            Some(DraTrouble::ClaimsFail(text)) => {
                let results = claims.iter().map(|claim| (claim.uid.clone(), Err(text.clone())));
                Ok(results.collect())
            }
            Some(DraTrouble::LeavesOut) => {
                do_all();
                Ok(Results::new())
            }
            Some(DraTrouble::AnswersForAnother) => {
                let others = do_all().into_values();
                Ok(others.map(|result| ("another".to_owned(), result)).collect())
            }
            Some(DraTrouble::AnswerLost) => {
                do_all();
                Err(Status::unavailable("error reading from server: EOF"))
            }
            Some(DraTrouble::Hangs) => pending().await,
            Some(DraTrouble::HangsAfterWork) => {
                do_all();
                pending().await
            }
            Some(DraTrouble::Slow(time)) => {
                sleep(time).await;
                Ok(do_all())
            }
        }
    }

    fn begin(&self, claims: &[Claim]) -> InWork<'_> {
        let mut state = self.inner.state.lock();
        let mut uids = Vec::new();
        for claim in claims {
            if state.in_work.insert(claim.uid.clone()) {
                uids.push(claim.uid.clone());
            } else {
                let violation = format!("two calls about claim {} at once", claim.name);
                state.violations.push(violation);
            }
        }
        InWork { driver: self, uids }
    }
}
