//! A call that the runtime does not implement is made once, and logged once.

use std::collections::BTreeSet;
use std::future::Future;

use parking_lot::Mutex;

use kubelet_cri::{Code, Error};

/// The names of the calls that the runtime does not implement.
#[derive(Debug, Default)]
pub(crate) struct MissingCalls(Mutex<BTreeSet<&'static str>>);

impl MissingCalls {
    /// Makes a call; `None` if the runtime does not implement it. Then this agent never makes the call again.
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
                        "the runtime does not implement this call; continuing without it"
                    );
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// containerd 2.2 answers some calls with "not implemented yet" and another code.
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
