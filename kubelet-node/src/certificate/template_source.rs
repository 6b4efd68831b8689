//! [`TemplateSource`]: provides the template of a certificate, and its changes.

use k8s_openapi::api::core::v1::NodeAddress;
use tokio::sync::watch;

use super::CertificateTemplate;

/// The template of a certificate, now and later. Each clone tracks changes separately.
#[derive(Clone, Debug)]
pub(crate) struct TemplateSource {
    node_name: String,
    /// `None` for a client, whose addresses do not matter.
    addresses: Option<watch::Receiver<Vec<NodeAddress>>>,
    dns_only: bool,
}

impl TemplateSource {
    pub(crate) fn client(node_name: &str) -> Self {
        TemplateSource {
            node_name: node_name.into(),
            addresses: None,
            dns_only: false,
        }
    }

    pub(crate) fn serving(node_name: &str, addresses: watch::Receiver<Vec<NodeAddress>>) -> Self {
        TemplateSource {
            addresses: Some(addresses),
            ..Self::client(node_name)
        }
    }

    pub(crate) fn allow_dns_only(&mut self, allow: bool) {
        self.dns_only = allow;
    }

    pub(crate) fn node_name(&self) -> &str {
        &self.node_name
    }

    /// `None` if it is not known yet.
    pub(crate) fn get(&mut self) -> Option<CertificateTemplate> {
        match &mut self.addresses {
            None => Some(CertificateTemplate::node_client(&self.node_name)),
            Some(addresses) => {
                let addresses = addresses.borrow_and_update();
                CertificateTemplate::node_serving(&self.node_name, &addresses, self.dns_only)
            }
        }
    }

    /// Waits until the template may have changed since the last [`get`](Self::get).
    pub(crate) async fn changed(&mut self) {
        if let Some(addresses) = &mut self.addresses
            && addresses.changed().await.is_ok()
        {
            return;
        }
        // A client's template never changes, and without a sender there are no changes.
        std::future::pending().await
    }

    /// Waits until the template differs from `template`.
    pub(crate) async fn other_than(&mut self, template: &CertificateTemplate) {
        while self.get().as_ref() == Some(template) {
            self.changed().await;
        }
    }
}
