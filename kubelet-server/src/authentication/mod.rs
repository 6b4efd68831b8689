//! Who sends a request: client certificates, bearer tokens, anonymous requests.

mod bearer;
mod certificate;
mod token;

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderMap;
use k8s_openapi::jiff::Timestamp;

pub use self::certificate::{ClientCa, ClientCertificates};
pub use self::token::{TokenCache, TokenReviewer};

/// The group of every user that was authenticated.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of anonymous requests.
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The sender of a request (`user.Info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The name: the common name of a certificate, `system:serviceaccount:NAMESPACE:NAME`…
    pub name: String,
    /// The UID, or empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else the authenticator said.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The sender of anonymous requests.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Self::default()
        }
    }

    fn authenticated(mut self) -> Self {
        if !self
            .groups
            .iter()
            .any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
        {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }
}

/// Why a request was not authenticated. The client receives only `Unauthorized`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unauthenticated(pub String);

/// Authenticates requests (`authenticatorfactory.DelegatingAuthenticatorConfig` as the kubelet fills it).
///
/// It tries the client certificate, then the bearer token. A request with neither is anonymous, if that is allowed. A
/// certificate or token that is not valid is refused, also where anonymous requests are allowed.
#[derive(Clone)]
pub struct Authentication {
    anonymous: bool,
    client_ca: Option<ClientCa>,
    tokens: Option<TokenCache>,
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication")
            .field("anonymous", &self.anonymous)
            .field("client_ca", &self.client_ca.is_some())
            .field("tokens", &self.tokens.is_some())
            .finish()
    }
}

impl Authentication {
    /// All requests are anonymous (`authentication.anonymous.enabled` alone).
    pub fn anonymous() -> Self {
        Self {
            anonymous: true,
            client_ca: None,
            tokens: None,
        }
    }

    /// No request is accepted, until a certificate authority or a token reviewer is added.
    pub fn none() -> Self {
        Self {
            anonymous: false,
            client_ca: None,
            tokens: None,
        }
    }

    /// Whether requests without a certificate and a token are accepted (`authentication.anonymous.enabled`).
    #[must_use]
    pub fn allow_anonymous(mut self, allow: bool) -> Self {
        self.anonymous = allow;
        self
    }

    /// Accepts client certificates of this authority (`authentication.x509.clientCAFile`).
    #[must_use]
    pub fn client_ca(mut self, ca: ClientCa) -> Self {
        self.client_ca = Some(ca);
        self
    }

    /// Accepts bearer tokens that the reviewer knows (`authentication.webhook`).
    #[must_use]
    pub fn tokens(mut self, tokens: TokenCache) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Whether there is an authority to verify client certificates by.
    pub(crate) fn verifies_certificates(&self) -> bool {
        self.client_ca.is_some()
    }

    /// The sender of a request with these headers, over a connection with these certificates.
    ///
    /// A token in the header `Sec-WebSocket-Protocol` is removed from it.
    ///
    /// # Errors
    ///
    /// If the sender is not known.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn authenticate(
        &self,
        certificates: Option<&ClientCertificates>,
        headers: &mut HeaderMap,
        now: Timestamp,
    ) -> Result<UserInfo, Unauthenticated> {
        let mut problems = Vec::new();
        if let (Some(ca), Some(certificates)) = (&self.client_ca, certificates) {
            match ca.verify(certificates, now) {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if let Some(tokens) = &self.tokens {
            let of_protocol = bearer::of_websocket_protocol(headers);
            let found = [Ok(bearer::of_authorization(headers)), of_protocol];
            for token in found.into_iter().filter_map(Result::transpose) {
                let user = match token {
                    Ok(token) => tokens.user(&token).await,
                    Err(problem) => Err(problem.0),
                };
                match user {
                    Ok(Some(user)) => return Ok(user.authenticated()),
                    Ok(None) => problems.push("invalid bearer token".into()),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        match self.anonymous && problems.is_empty() {
            true => Ok(UserInfo::anonymous()),
            false if problems.is_empty() => Err(Unauthenticated("no credentials".into())),
            false => Err(Unauthenticated(problems.join("; "))),
        }
    }
}
