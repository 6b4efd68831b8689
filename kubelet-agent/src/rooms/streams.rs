//! The room of the streams of a runtime of your own: `kubectl exec`, `attach` and `port-forward`.

use std::sync::Arc;

use kubelet_core::runtime::streaming::StreamingServer;
use kubelet_server::streaming::{StreamServer, StreamServerOptions};

use crate::error::{Error, Result};
use crate::tasks::Tasks;

/// The server of the streams, on a port of this host.
pub(crate) async fn open(tasks: &mut Tasks) -> Result<Option<Arc<dyn StreamingServer>>> {
    let server = StreamServer::bind(StreamServerOptions::default()).await;
    let server = server.map_err(|source| Error::Io {
        what: "cannot open a port for streams".to_owned(),
        source,
    })?;
    let handle = Arc::new(server.handle());
    tasks.add("streams", |shutdown| server.run(shutdown));
    Ok(Some(handle))
}
