//! Sockets that come back, that nobody serves, and whose paths are strange.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use kubelet_plugins::{CSI_PLUGIN, PluginWatcher};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::fake::{FakePlugin, Manner, Node};

#[tokio::test]
async fn a_socket_that_is_created_anew_at_once_registers_again() {
    let mut node = Node::start();
    let mut plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    node.wait_for_registered(&["a"]).await;
    for round in 1..=5 {
        drop(plugin);
        plugin = FakePlugin::start(&node.socket("a.sock"), "a");
        assert!(plugin.status().await.plugin_registered);
        let calls = node.handler.wait_for_calls(2 + round * 3).await;
        let expected = ["deregister a a.sock", "validate a a.sock", "register a a.sock"];
        assert_eq!(calls[calls.len() - 3..], expected, "round {round}");
        node.wait_for_registered(&["a"]).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_socket_replaced_by_a_rename_registers_again() {
    let mut node = Node::start();
    let _before = FakePlugin::start(&node.socket("a.sock"), "a");
    node.wait_for_registered(&["a"]).await;
    let aside = node.folder().parent().unwrap().join("aside.sock");
    let mut after = FakePlugin::start(&aside, "b");
    fs::rename(&aside, node.socket("a.sock")).unwrap();
    assert!(after.status().await.plugin_registered);
    node.wait_for_registered(&["b"]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_plugin_that_dies_during_its_registration_is_not_in_use() {
    let mut node = Node::start();
    let dying = FakePlugin::with(
        &node.socket("a.sock"),
        "a",
        CSI_PLUGIN,
        &["1.0.0"],
        Manner::DiesWhenNotified,
    );
    let calls = node.handler.wait_for_calls(3).await;
    assert_eq!(
        calls[..3],
        ["validate a a.sock", "register a a.sock", "deregister a a.sock"]
    );
    drop(dying);
    node.handle.wait_for(<[_]>::is_empty).await.unwrap();
    let _well = FakePlugin::start(&node.socket("a.sock"), "a");
    node.wait_for_registered(&["a"]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_socket_that_goes_while_the_handler_works_is_deregistered_after() {
    let mut node = Node::start();
    let permits = Arc::new(Semaphore::new(0));
    *node.handler.held.lock() = Some(("a".into(), permits.clone()));
    let plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    node.handler.wait_for_calls(2).await;
    drop(plugin);
    node.handle
        .wait_for(|plugins| plugins.iter().all(|plugin| !plugin.is_present))
        .await
        .unwrap();
    permits.add_permits(1);
    node.handle.wait_for(<[_]>::is_empty).await.unwrap();
    assert_eq!(node.handler.calls().last().unwrap(), "deregister a a.sock");
    node.stop().await;
}

#[tokio::test]
async fn two_sockets_may_register_one_name() {
    let mut node = Node::start();
    let old = FakePlugin::start(&node.socket("1.sock"), "a");
    node.wait_for_registered(&["a"]).await;
    let _new = FakePlugin::start(&node.socket("2.sock"), "a");
    node.wait_for_registered(&["a", "a"]).await;
    drop(old);
    let plugins = node.wait_for_registered(&["a"]).await;
    assert_eq!(plugins[0].socket, node.socket("2.sock"));
    assert_eq!(node.handler.calls().last().unwrap(), "deregister a 1.sock");
    node.stop().await;
}

#[tokio::test]
async fn a_socket_that_nobody_serves_waits_and_one_that_is_served_later_registers() {
    let mut node = Node::start();
    drop(UnixListener::bind(node.socket("a.sock")).unwrap());
    let plugins = node
        .handle
        .wait_for(|plugins| plugins.iter().any(|plugin| plugin.last_error.is_some()))
        .await
        .unwrap();
    let error = plugins[0].last_error.as_deref().unwrap();
    assert!(
        error.starts_with("RegisterPlugin error -- dial failed at socket") && error.contains("refused"),
        "{error}"
    );
    fs::remove_file(node.socket("a.sock")).unwrap();
    let _plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    node.wait_for_registered(&["a"]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_is_reported() {
    let mut node = Node::start();
    let folder = node.socket(&"f".repeat(100));
    fs::create_dir(&folder).unwrap();
    // Bound elsewhere: no process can bind it here.
    let aside = node.folder().parent().unwrap().join("aside.sock");
    drop(UnixListener::bind(&aside).unwrap());
    fs::rename(&aside, folder.join("long.sock")).unwrap();
    let plugins = node
        .handle
        .wait_for(|plugins| plugins.iter().any(|plugin| plugin.last_error.is_some()))
        .await
        .unwrap();
    let error = plugins[0].last_error.as_deref().unwrap();
    assert!(error.contains("a unix socket can have 107"), "{error}");
    node.stop().await;
}

#[tokio::test]
async fn a_read_only_folder_is_enough_and_the_folder_may_come_late() {
    let mut node = Node::prepared();
    let _plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    fs::set_permissions(node.folder(), fs::Permissions::from_mode(0o555)).unwrap();
    node.run_watcher();
    node.wait_for_registered(&["a"]).await;
    node.stop().await;
    fs::set_permissions(node.folder(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_folder_that_is_removed_and_made_again_is_watched_again() {
    let mut node = Node::start();
    let plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    node.wait_for_registered(&["a"]).await;
    drop(plugin);
    fs::remove_dir_all(node.folder()).unwrap();
    node.handle.wait_for(<[_]>::is_empty).await.unwrap();
    fs::create_dir_all(node.folder()).unwrap();
    let _plugin = FakePlugin::start(&node.socket("b.sock"), "b");
    node.wait_for_registered(&["b"]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let in_the_way = dir.path().join("kubelet");
    fs::write(&in_the_way, "a file").unwrap();
    let node = Node::prepared();
    let watcher = PluginWatcher::builder(in_the_way.join("registry"))
        .handler(CSI_PLUGIN, node.handler.clone())
        .build()
        .unwrap();
    let mut handle = watcher.handle();
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(watcher.run(shutdown.clone()));
    fs::remove_file(&in_the_way).unwrap();
    fs::create_dir_all(in_the_way.join("registry")).unwrap();
    let _plugin = FakePlugin::start(&in_the_way.join("registry/a.sock"), "a");
    handle
        .wait_for(|plugins| plugins.iter().any(|plugin| plugin.registered.is_some()))
        .await
        .unwrap();
    shutdown.cancel();
    run.await.unwrap();
}

#[test]
fn two_handlers_of_one_type_are_a_mistake() {
    let node = Node::prepared();
    let built = PluginWatcher::builder("/somewhere")
        .handler(CSI_PLUGIN, node.handler.clone())
        .handler(CSI_PLUGIN, node.handler.clone())
        .build();
    let error = built.err().unwrap().to_string();
    assert_eq!(
        error,
        "misconfigured: two handlers for plugins of the type CSIPlugin"
    );
}
