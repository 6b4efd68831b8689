//! Who may use the node's API.

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_config::KubeletConfiguration;
use kubelet_server::authentication::TokenCache;
use kubelet_server::authorization::{AlwaysAllow, WebhookAuthorizer};
use kubelet_server::{ApiServerReviews, Authentication, Authorization, CertificateFiles};

use crate::configured::time;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::problem::Problems;
use crate::rooms::cluster::ClusterRoom;

const NO_CLIENT_FOR_AUTHENTICATION: &str =
    "no client provided, cannot use webhook authentication: give --kubeconfig, or set it to false";
const NO_CLIENT_FOR_AUTHORIZATION: &str =
    "no client provided, cannot use webhook authorization: give --kubeconfig, or set it to AlwaysAllow";

pub(super) fn check(config: &KubeletConfiguration, in_cluster: bool, problems: &mut Problems) {
    if config.authentication.webhook.enabled && !in_cluster {
        problems.add("authentication.webhook.enabled", NO_CLIENT_FOR_AUTHENTICATION);
    }
    match config.authorization.mode.as_str() {
        "Webhook" if !in_cluster => problems.add("authorization.mode", NO_CLIENT_FOR_AUTHORIZATION),
        "Webhook" | "AlwaysAllow" => {}
        mode => problems.add("authorization.mode", format!("unknown authorization mode {mode}")),
    }
}

/// Notes authorities of clients that cannot be read.
pub(super) async fn inspect(config: &KubeletConfiguration, problems: &mut Problems) {
    let file = &config.authentication.x509.client_ca_file;
    if !file.is_empty() {
        let read = CertificateFiles::new().client_ca(file.into()).await;
        problems.note("authentication.x509.clientCAFile", read);
    }
}

/// Client certificates, tokens that the API server reviews, and anonymous requests, as configured. The files are those that
/// are read again when they change.
pub(super) async fn authentication(
    context: &Context,
    cluster: &ClusterRoom,
    files: CertificateFiles,
) -> Result<(Authentication, CertificateFiles)> {
    let config = &context.settings.configuration.authentication;
    let mut authentication = Authentication::none().allow_anonymous(config.anonymous.enabled);
    let files = match config.x509.client_ca_file.as_str() {
        "" => files,
        path => {
            let (files, ca) = files.client_ca(PathBuf::from(path)).await?;
            authentication = authentication.client_ca(ca);
            files
        }
    };
    if config.webhook.enabled
        && let Some(client) = cluster.client()
    {
        let reviews = Arc::new(ApiServerReviews::new(client.clone()));
        authentication = authentication.tokens(TokenCache::new(reviews, time(config.webhook.cache_ttl)));
    }
    Ok((authentication, files))
}

/// For a place that only those reach who may do everything.
pub(crate) fn of_everybody(context: &Context) -> (Authentication, Authorization) {
    let all = Authorization::new(&*context.node_name, Arc::new(AlwaysAllow));
    (Authentication::anonymous(), all)
}

/// The API server decides, or everybody may.
pub(super) fn authorization(context: &Context, cluster: &ClusterRoom) -> Result<Authorization> {
    let config = &context.settings.configuration.authorization;
    if config.mode == "AlwaysAllow" {
        return Ok(Authorization::new(&*context.node_name, Arc::new(AlwaysAllow)));
    }
    if let Some(client) = cluster.client() {
        let reviews = Arc::new(ApiServerReviews::new(client.clone()));
        let (yes, no) = (
            config.webhook.cache_authorized_ttl,
            config.webhook.cache_unauthorized_ttl,
        );
        let authorizer = WebhookAuthorizer::new(reviews, time(yes), time(no));
        return Ok(Authorization::new(&*context.node_name, Arc::new(authorizer)));
    }
    Err(Error::Misconfigured {
        problems: vec![NO_CLIENT_FOR_AUTHORIZATION.to_owned()],
    })
}
