//! An upgraded connection: bytes between a client and a node.

use futures::future::join;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::connection::Driver;

/// Copies bytes both ways until both sides have ended. When one side ends, the other one sees the end and can still
/// send.
pub(super) async fn run(client: OnUpgrade, node: OnUpgrade, driver: Option<Driver>) {
    let node = async {
        if let Some(driver) = driver {
            driver.await?;
        }
        node.await
    };
    if let (Ok(client), Ok(node)) = join(client, node).await {
        let (mut client, mut node) = (TokioIo::new(client), TokioIo::new(node));
        // Both ends notice a broken connection themselves.
        let _ = copy_bidirectional(&mut client, &mut node).await;
    }
}
