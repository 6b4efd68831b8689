//! Registration as it should go, and its retries.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::fake::{FakePlugin, Manner, Node};

#[tokio::test]
async fn a_plugin_registers_and_goes_with_its_socket() {
    let mut node = Node::start();
    let mut plugin = FakePlugin::start(&node.socket("a.sock"), "a.example.com");
    let status = plugin.status().await;
    assert!(status.plugin_registered, "{status:?}");
    assert_eq!(status.error, "");
    let plugins = node.wait_for_registered(&["a.example.com"]).await;
    let registered = plugins[0].registered.as_ref().unwrap();
    assert_eq!(
        registered.endpoint,
        node.socket("a.sock"),
        "without an endpoint, it is the socket"
    );
    assert_eq!(registered.versions, ["1.0.0"]);

    drop(plugin);
    node.handle.wait_for(<[_]>::is_empty).await.unwrap();
    assert_eq!(
        node.handler.calls(),
        [
            "validate a.example.com a.sock",
            "register a.example.com a.sock",
            "deregister a.example.com a.sock"
        ]
    );
    node.stop().await;
}

#[tokio::test]
async fn plugins_that_were_there_before_the_watcher_register_after_each_restart() {
    let mut node = Node::prepared();
    let plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    for run in 1..=2 {
        node.run_watcher();
        node.wait_for_registered(&["a"]).await;
        node.stop().await;
        assert_eq!(
            node.handler.calls().len(),
            2 * run,
            "a shutdown deregisters nothing"
        );
        assert_eq!(plugin.statuses().len(), run);
    }
}

#[tokio::test]
async fn plugins_in_new_folders_register() {
    let mut node = Node::start();
    node.handle.wait_for(<[_]>::is_empty).await.unwrap();
    let folder = node.socket("vendor/drivers");
    std::fs::create_dir_all(&folder).unwrap();
    let _plugin = FakePlugin::start(&folder.join("deep.sock"), "deep");
    node.wait_for_registered(&["deep"]).await;
    let hidden = FakePlugin::start(&folder.join(".hidden.sock"), "hidden");
    let _seen = FakePlugin::start(&node.socket("z.sock"), "z");
    let plugins = node.wait_for_registered(&["deep", "z"]).await;
    assert_eq!(plugins.len(), 2, "{plugins:?}");
    assert!(hidden.statuses().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_plugin_gets_the_reason_for_a_refusal_and_is_retried() {
    let mut node = Node::start();
    node.handler
        .register_fails
        .lock()
        .push_back("the driver has no node id".into());
    let mut plugin = FakePlugin::start(&node.socket("a.sock"), "a");
    let status = plugin.status().await;
    assert!(!status.plugin_registered);
    assert_eq!(
        status.error,
        "RegisterPlugin error -- plugin registration failed with err: the driver has no node id"
    );
    node.wait_for_registered(&["a"]).await;
    let statuses = plugin.statuses();
    assert_eq!(statuses.len(), 2);
    assert!(statuses[1].plugin_registered);
    node.stop().await;
}

#[tokio::test]
async fn unknown_versions_and_types_are_refused() {
    let mut node = Node::start();
    let mut old = FakePlugin::with(
        &node.socket("old.sock"),
        "old",
        "CSIPlugin",
        &["0.3.0"],
        Manner::Answers,
    );
    let mut other = FakePlugin::with(
        &node.socket("other.sock"),
        "other",
        "Other",
        &["1.0.0"],
        Manner::Answers,
    );
    assert_eq!(
        old.status().await.error,
        "RegisterPlugin error -- plugin validation failed with err: none of the versions [\"0.3.0\"] is supported"
    );
    assert_eq!(
        other.status().await.error,
        format!(
            "RegisterPlugin error -- no handler registered for plugin type: Other at socket {}",
            node.socket("other.sock").display()
        )
    );
    let plugins = node
        .handle
        .wait_for(|plugins| {
            plugins
                .iter()
                .filter(|plugin| plugin.last_error.is_some())
                .count()
                == 2
        })
        .await
        .unwrap();
    assert!(plugins.iter().all(|plugin| plugin.registered.is_none()));
    node.stop().await;
}

#[tokio::test]
async fn a_plugin_that_hangs_holds_up_no_other() {
    let mut node = Node::start();
    let permits = Arc::new(Semaphore::new(0));
    *node.handler.held.lock() = Some(("held".into(), permits.clone()));
    let _hung = FakePlugin::with(
        &node.socket("0.sock"),
        "hung",
        "CSIPlugin",
        &["1.0.0"],
        Manner::Hangs,
    );
    let _held = FakePlugin::start(&node.socket("1.sock"), "held");
    node.handler.wait_for_calls(2).await;
    let mut plugin = FakePlugin::start(&node.socket("2.sock"), "well");
    assert!(plugin.status().await.plugin_registered);
    node.wait_for_registered(&["well"]).await;
    permits.add_permits(1);
    node.wait_for_registered(&["held", "well"]).await;
    node.handle
        .wait_for(|plugins| {
            let error = plugins[0].last_error.as_deref().unwrap_or_default();
            error.contains("failed to get plugin info using RPC GetInfo")
                && error.contains("no answer within 1s")
        })
        .await
        .unwrap();
    node.stop().await;
}
