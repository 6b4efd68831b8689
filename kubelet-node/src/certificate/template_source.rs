//! [`TemplateSource`]: where a certificate manager learns what its certificate is to say.

use k8s_openapi::api::core::v1::NodeAddress;
use tokio::sync::watch;

use super::CertificateTemplate;

/// What a certificate is to say, now and later. Clones have their own idea of what is new.
#[derive(Clone, Debug)]
pub(crate) struct TemplateSource {
    node_name: String,
    /// `None`: a client, whose addresses do not matter.
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

    /// Until it may be another than at the last [`get`](Self::get).
    pub(crate) async fn changed(&mut self) {
        if let Some(addresses) = &mut self.addresses
            && addresses.changed().await.is_ok()
        {
            return;
        }
        // For a client, and when nobody is left to tell.
        std::future::pending().await
    }

    /// Until it is something else.
    pub(crate) async fn other_than(&mut self, template: &CertificateTemplate) {
        while self.get().as_ref() == Some(template) {
            self.changed().await;
        }
    }
}
