//! What a runtime does not offer is asked for once, and said once.

use std::collections::BTreeSet;
use std::future::Future;

use parking_lot::Mutex;

use kubelet_cri::{Code, Error};

/// The calls that the runtime turned out not to offer, by their names.
#[derive(Debug, Default)]
pub(crate) struct MissingCalls(Mutex<BTreeSet<&'static str>>);

impl MissingCalls {
    /// Makes a call; `None` where the runtime does not offer it, and then it is made no more as long as this agent runs.
    pub(crate) async fn offered<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, Error> {
        if self.0.lock().contains(call) {
            return Ok(None);
        }
        match answer.await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_missing(&error) => {
                if self.0.lock().insert(call) {
                    tracing::warn!(
                        call,
                        "the runtime does not offer this call; the agent goes on without it"
                    );
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// containerd 2.2 says that some calls are "not implemented yet", with another code.
fn is_missing(error: &Error) -> bool {
    error.is_unimplemented() || (error.code() == Code::Unknown && error.message().contains("not implemented"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn asked_once() {
        let missing = MissingCalls::default();
        let refused = async |code, message| {
            let error = Error::call(code, "PodSandboxStats", "", message);
            missing
                .offered("PodSandboxStats", async { Err::<(), _>(error) })
                .await
        };
        assert!(refused(Code::Unknown, "broken").await.is_err());
        assert!(refused(Code::Unavailable, "not implemented").await.is_err());
        let answer = missing.offered("PodSandboxStats", async { Ok(1) }).await;
        assert_eq!(answer, Ok(Some(1)));
        assert_eq!(refused(Code::Unknown, "not implemented yet").await, Ok(None));
        let never = async { panic!("asked again") };
        assert_eq!(missing.offered::<()>("PodSandboxStats", never).await, Ok(None));
        assert_eq!(
            missing.offered("RuntimeConfig", async { Ok(1) }).await,
            Ok(Some(1))
        );
    }
}
