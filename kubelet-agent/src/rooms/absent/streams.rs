//! No server of streams: `kubectl exec`, `attach` and `port-forward` need the node's API, too.

use std::sync::Arc;

use kubelet_core::runtime::streaming::StreamingServer;

use crate::error::Result;
use crate::tasks::Tasks;

pub(crate) async fn open(_: &mut Tasks) -> Result<Option<Arc<dyn StreamingServer>>> {
    Ok(None)
}
