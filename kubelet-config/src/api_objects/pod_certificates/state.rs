//! The state of one `podCertificate` source, and what is to be done next: no I/O.

use std::time::Duration;

use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodCredential;

/// A request that was not seen for so long after its creation was deleted (`assumeDeletedThreshold`).
pub(super) const ASSUME_DELETED: Duration = Duration::from_secs(10 * 60);
/// A certificate that was not renewed for so long after it should have been is overdue (`refreshOverdueDuration`).
const OVERDUE: Duration = Duration::from_secs(10 * 60);

/// The state of a source (`credState`).
#[derive(Debug)]
pub(super) enum State {
    /// Nothing was requested yet (`credStateInitial`).
    Initial,
    /// The first certificate is requested (`credStateWait`).
    Wait(Request),
    /// There is a certificate (`credStateFresh`).
    Fresh(Issued),
    /// The next certificate is requested (`credStateWaitRefresh`).
    WaitRefresh(Issued, Request),
    /// The signer denied a request. That is final (`credStateDenied`).
    Denied(Reason),
    /// The signer failed. That is final (`credStateFailed`).
    Failed(Reason),
    /// The node cannot generate such a key. That is final.
    Unsupported(String),
}

/// A request that was created.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    /// The private key, PEM.
    pub(super) key: Vec<u8>,
    /// If it was not seen until then, it was deleted.
    pub(super) abandon_at: Timestamp,
}

/// A certificate.
#[derive(Debug)]
pub(super) struct Issued {
    credential: PodCredential,
    begin_refresh_at: Timestamp,
    not_after: Timestamp,
    overdue_reported: bool,
    expiry_reported: bool,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) reason: String,
    pub(super) message: String,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create a request.
    Create,
    /// Nothing, until this time or until the request changes.
    Wait(Option<Timestamp>),
    /// A certificate was issued.
    Issued,
    /// The request was denied.
    Denied(Reason),
    /// The signer failed.
    Failed(Reason),
    /// The request was deleted: create another one, but not at once.
    Lost,
}

/// What the owner of the pod should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warning {
    /// The certificate should have been renewed 10 minutes ago.
    Overdue,
    /// The certificate has expired.
    Expired,
}

impl State {
    /// The name of the request that is waited for.
    pub(super) fn request(&self) -> Option<&str> {
        match self {
            State::Wait(request) | State::WaitRefresh(_, request) => Some(&request.name),
            _ => None,
        }
    }

    /// What a volume gets (`getCredBundle`).
    pub(super) fn credential(&self) -> Result<PodCredential, String> {
        let ended = |how: &str, Reason { reason, message }: &Reason| {
            format!("PodCertificateRequest was permanently {how}: reason={reason:?} message={message:?}")
        };
        match self {
            State::Initial | State::Wait(_) => Err("credential bundle is not issued yet".to_owned()),
            State::Fresh(issued) | State::WaitRefresh(issued, _) => Ok(issued.credential.clone()),
            State::Denied(why) => Err(ended("denied", why)),
            State::Failed(why) => Err(ended("failed", why)),
            State::Unsupported(why) => Err(why.clone()),
        }
    }

    /// The value of the label `state` in the metric (`metricsState`).
    pub(super) fn label(&self, now: Timestamp) -> &'static str {
        match self {
            State::Initial | State::Wait(_) => "not_yet_issued",
            State::Denied(_) => "denied",
            State::Failed(_) | State::Unsupported(_) => "failed",
            State::Fresh(issued) | State::WaitRefresh(issued, _) if now > issued.not_after => "expired",
            State::Fresh(issued) | State::WaitRefresh(issued, _) if now > issued.overdue_at() => {
                "overdue_for_refresh"
            }
            State::Fresh(_) | State::WaitRefresh(..) => "fresh",
        }
    }

    /// Takes the next step. `seen` is the request as the API server has it, `jitter` is added to the time of the
    /// next renewal.
    pub(super) fn step(
        &mut self,
        seen: Option<&PodCertificateRequest>,
        now: Timestamp,
        jitter: Duration,
    ) -> Step {
        let abandon_at = match self {
            State::Initial => return Step::Create,
            State::Denied(_) | State::Failed(_) | State::Unsupported(_) => return Step::Wait(None),
            State::Fresh(issued) if now < issued.begin_refresh_at => {
                return Step::Wait(Some(issued.begin_refresh_at));
            }
            State::Fresh(_) => return Step::Create,
            State::Wait(request) | State::WaitRefresh(_, request) => request.abandon_at,
        };
        let Some(seen) = seen else {
            if now <= abandon_at {
                return Step::Wait(Some(after(abandon_at, Duration::from_millis(1))));
            }
            self.lose_request();
            return Step::Lost;
        };
        match seen
            .status
            .as_ref()
            .and_then(|status| self.outcome(status, jitter))
        {
            Some(Ok(issued)) => {
                *self = State::Fresh(issued);
                Step::Issued
            }
            Some(Err((Kind::Denied, why))) => {
                *self = State::Denied(why.clone());
                Step::Denied(why)
            }
            Some(Err((Kind::Failed, why))) => {
                *self = State::Failed(why.clone());
                Step::Failed(why)
            }
            None => Step::Wait(self.next_warning()),
        }
    }

    /// Remembers the request that was just created.
    pub(super) fn requested(&mut self, request: Request) {
        *self = match std::mem::replace(self, State::Initial) {
            State::Fresh(issued) | State::WaitRefresh(issued, _) => State::WaitRefresh(issued, request),
            _ => State::Wait(request),
        };
    }

    /// The warnings that are due and were not returned before.
    pub(super) fn warnings(&mut self, now: Timestamp) -> Vec<Warning> {
        let (State::Fresh(issued) | State::WaitRefresh(issued, _)) = self else {
            return Vec::new();
        };
        let mut due = Vec::new();
        if now > issued.overdue_at() && !issued.overdue_reported {
            issued.overdue_reported = true;
            due.push(Warning::Overdue);
        }
        if now >= issued.begin_refresh_at && now > issued.not_after && !issued.expiry_reported {
            issued.expiry_reported = true;
            due.push(Warning::Expired);
        }
        due
    }

    fn lose_request(&mut self) {
        *self = match std::mem::replace(self, State::Initial) {
            State::WaitRefresh(issued, _) => State::Fresh(issued),
            _ => State::Initial,
        };
    }

    /// How the request ended, if it has.
    fn outcome(
        &self,
        status: &PodCertificateRequestStatus,
        jitter: Duration,
    ) -> Option<Result<Issued, (Kind, Reason)>> {
        let (State::Wait(request) | State::WaitRefresh(_, request)) = self else {
            return None;
        };
        for condition in status.conditions.iter().flatten() {
            let why = || Reason {
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            };
            match condition.type_.as_str() {
                "Denied" => return Some(Err((Kind::Denied, why()))),
                "Failed" => return Some(Err((Kind::Failed, why()))),
                "Issued" => {
                    // The API server requires all three.
                    let (Some(chain), Some(begin_refresh_at), Some(not_after)) = (
                        &status.certificate_chain,
                        &status.begin_refresh_at,
                        &status.not_after,
                    ) else {
                        return None;
                    };
                    let credential = PodCredential {
                        key: request.key.clone(),
                        chain: cleaned(chain)?.into_bytes(),
                    };
                    return Some(Ok(Issued {
                        credential,
                        begin_refresh_at: after(begin_refresh_at.0, jitter),
                        not_after: not_after.0,
                        overdue_reported: false,
                        expiry_reported: false,
                    }));
                }
                _ => {}
            }
        }
        None
    }

    /// When the next warning is due, while the next certificate is awaited.
    fn next_warning(&self) -> Option<Timestamp> {
        let State::WaitRefresh(issued, _) = self else {
            return None;
        };
        let overdue = (!issued.overdue_reported).then(|| issued.overdue_at());
        let expired = (!issued.expiry_reported).then_some(issued.not_after);
        let next = [overdue, expired].into_iter().flatten().min()?;
        Some(after(next, Duration::from_millis(1)))
    }
}

impl Issued {
    fn overdue_at(&self) -> Timestamp {
        after(self.begin_refresh_at, OVERDUE)
    }
}

/// How a request ended badly.
enum Kind {
    Denied,
    Failed,
}

pub(super) fn after(time: Timestamp, wait: Duration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The certificates alone, without headers and without the text between them (`cleanCertificateChain`). `None` if there
/// are none.
fn cleaned(chain: &str) -> Option<String> {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let blocks = pem::parse_many(chain).ok().filter(|blocks| !blocks.is_empty())?;
    let blocks = blocks.into_iter().map(pem::Pem::into_contents);
    let encoded = blocks.map(|block| pem::encode_config(&pem::Pem::new("CERTIFICATE", block), lines));
    Some(encoded.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Minutes after some time.
    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    fn request(name: &str) -> Request {
        Request {
            name: name.to_owned(),
            key: b"key;".to_vec(),
            abandon_at: at(12),
        }
    }

    fn issued(begin: i64, end: i64) -> Issued {
        Issued {
            credential: PodCredential {
                key: b"key;".to_vec(),
                chain: b"chain".to_vec(),
            },
            begin_refresh_at: at(begin),
            not_after: at(end),
            overdue_reported: false,
            expiry_reported: false,
        }
    }

    fn with_condition(kind: &str) -> PodCertificateRequest {
        let status = json!({"certificateChain": "text\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "notAfter": at(90), "beginRefreshAt": at(30),
            "conditions": [{"type": kind, "status": "True", "reason": "Because", "message": "so",
                "lastTransitionTime": at(0)}]});
        let status = serde_json::from_value(status).unwrap();
        PodCertificateRequest {
            status: Some(status),
            ..Default::default()
        }
    }

    const NO_JITTER: Duration = Duration::ZERO;

    /// The state, the request as seen and the minute; the step, the state after it and its label.
    type Row<'a> = (
        State,
        Option<&'a PodCertificateRequest>,
        i64,
        Step,
        &'static str,
        &'static str,
    );

    #[test]
    fn when_to_request() {
        let pending = PodCertificateRequest::default();
        let why = || Reason {
            reason: "Because".to_owned(),
            message: "so".to_owned(),
        };
        let later = |time| Step::Wait(Some(after(time, Duration::from_millis(1))));
        let wait = || State::Wait(request("one"));
        let refresh = || State::WaitRefresh(issued(30, 90), request("two"));
        let (is, no, bad) = (
            with_condition("Issued"),
            with_condition("Denied"),
            with_condition("Failed"),
        );
        let odd = with_condition("Approved");
        #[rustfmt::skip]
        let table: [Row<'_>; 22] = [
            (State::Initial, None, 0, Step::Create, "initial", "not_yet_issued"),
            (wait(), None, 1, later(at(12)), "wait", "not_yet_issued"),
            (wait(), None, 12, later(at(12)), "wait", "not_yet_issued"),
            (wait(), None, 13, Step::Lost, "initial", "not_yet_issued"),
            (wait(), Some(&pending), 1, Step::Wait(None), "wait", "not_yet_issued"),
            (wait(), Some(&pending), 60, Step::Wait(None), "wait", "not_yet_issued"),
            (wait(), Some(&odd), 1, Step::Wait(None), "wait", "not_yet_issued"),
            (wait(), Some(&is), 1, Step::Issued, "fresh", "fresh"),
            (wait(), Some(&no), 1, Step::Denied(why()), "denied", "denied"),
            (wait(), Some(&bad), 1, Step::Failed(why()), "failed", "failed"),
            (State::Fresh(issued(30, 90)), None, 29, Step::Wait(Some(at(30))), "fresh", "fresh"),
            (State::Fresh(issued(30, 90)), None, 30, Step::Create, "fresh", "fresh"),
            (State::Fresh(issued(30, 90)), None, 41, Step::Create, "fresh", "overdue_for_refresh"),
            (State::Fresh(issued(30, 90)), None, 91, Step::Create, "fresh", "expired"),
            (refresh(), None, 11, later(at(12)), "refresh", "fresh"),
            (refresh(), None, 50, Step::Lost, "fresh", "overdue_for_refresh"),
            (refresh(), Some(&pending), 35, later(at(40)), "refresh", "fresh"),
            (refresh(), Some(&is), 35, Step::Issued, "fresh", "fresh"),
            (refresh(), Some(&no), 35, Step::Denied(why()), "denied", "denied"),
            (refresh(), Some(&bad), 35, Step::Failed(why()), "failed", "failed"),
            (State::Denied(why()), None, 99, Step::Wait(None), "denied", "denied"),
            (State::Unsupported("no".to_owned()), None, 99, Step::Wait(None), "unsupported", "failed"),
        ];
        for (index, (mut state, seen, minute, step, becomes, label)) in table.into_iter().enumerate() {
            assert_eq!(state.step(seen, at(minute), NO_JITTER), step, "{index}");
            let is = match state {
                State::Initial => "initial",
                State::Wait(_) => "wait",
                State::Fresh(_) => "fresh",
                State::WaitRefresh(..) => "refresh",
                State::Denied(_) => "denied",
                State::Failed(_) => "failed",
                State::Unsupported(_) => "unsupported",
            };
            assert_eq!(is, becomes, "{index}");
            assert_eq!(state.label(at(minute)), label, "{index}");
        }
    }

    #[test]
    fn a_renewal_keeps_the_certificate_and_then_replaces_it() {
        let mut state = State::Initial;
        state.requested(request("one"));
        assert_eq!(state.request(), Some("one"));
        assert_eq!(
            state.credential().unwrap_err(),
            "credential bundle is not issued yet"
        );
        let jitter = Duration::from_secs(120);
        assert_eq!(
            state.step(Some(&with_condition("Issued")), at(1), jitter),
            Step::Issued
        );
        let first = state.credential().unwrap();
        assert_eq!(first.key, b"key;");
        assert_eq!(
            first.chain,
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        );
        assert_eq!(
            state.step(None, at(31), NO_JITTER),
            Step::Wait(Some(at(32))),
            "the jitter"
        );
        assert_eq!(state.step(None, at(32), NO_JITTER), Step::Create);
        state.requested(Request {
            key: b"other;".to_vec(),
            ..request("two")
        });
        assert_eq!(
            (state.request(), state.credential().unwrap().key),
            (Some("two"), first.key)
        );
        state.step(Some(&with_condition("Issued")), at(33), NO_JITTER);
        assert_eq!(state.credential().unwrap().key, b"other;");
        assert_eq!(state.request(), None);
    }

    #[test]
    fn each_warning_is_returned_once_per_certificate() {
        let mut state = State::Fresh(issued(30, 90));
        for (minute, due) in [
            (40, vec![]),
            (41, vec![Warning::Overdue]),
            (42, vec![]),
            (90, vec![]),
            (91, vec![Warning::Expired]),
            (92, vec![]),
        ] {
            assert_eq!(state.warnings(at(minute)), due, "{minute}");
            if minute == 41 {
                state.requested(request("two"));
            }
        }
        let pending = PodCertificateRequest::default();
        assert_eq!(
            state.step(Some(&pending), at(92), NO_JITTER),
            Step::Wait(None),
            "no more warnings"
        );
        assert_eq!(
            State::Fresh(issued(30, 35)).warnings(at(50)),
            [Warning::Overdue, Warning::Expired]
        );
        assert_eq!(
            State::Fresh(issued(30, 20)).warnings(at(25)),
            [],
            "not before it is to be renewed"
        );
        assert_eq!(State::Initial.warnings(at(50)), []);
    }
}
