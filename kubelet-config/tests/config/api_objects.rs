//! What pods refer to on an API server, read through its good and bad times.
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount, ServiceAccountTokenProjection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_config::{
    ApiServerConfigObjects, ApiServerTokens, ConfigObjectManager, ConfigObjectWatches, KubeletConfiguration,
};
use kubelet_core::{
    Clock, ConfigObjectChanges, ConfigObjectRef, ConfigObjects, Jitter, PodExt, ServiceAccountTokens,
    ServiceAccounts,
};
use kubelet_testing::api_server::{ApiCall, ApiServer, Verb};
use kubelet_testing::eventually;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, advance, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

fn config_map(word: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": "words", "namespace": "default"}, "data": {"word": word}});
    serde_json::from_value(map).unwrap()
}

async fn word(objects: &(impl ConfigObjects + ?Sized)) -> Option<String> {
    let found = objects.config_map("default", "words").await.unwrap()?;
    found.data.as_ref()?.get("word").cloned()
}

/// A pod that refers to the config map.
fn reader() -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [
        {"name": "main", "envFrom": [{"configMapRef": {"name": "words"}}]}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_was_read_last_counts_while_the_server_is_away() {
    let server = ApiServer::builder().record_reads().build();
    let objects = ApiServerConfigObjects::new(server.client());
    let for_volumes = objects.with_max_age(Duration::from_secs(60));
    assert_eq!(word(&objects).await, None);
    server.create(&config_map("first")).unwrap();
    assert_eq!(
        word(&objects).await.as_deref(),
        Some("first"),
        "that it is not there is not kept"
    );
    let asked = server.calls().count("get configmaps default/words");
    assert_eq!(word(&objects).await.as_deref(), Some("first"));
    assert_eq!(
        server.calls().count("get configmaps default/words"),
        asked,
        "it was just read"
    );

    let mut changed: ConfigMap = server.get("default", "words").unwrap().unwrap();
    changed.data = config_map("second").data;
    server.replace(&changed).unwrap();
    advance(Duration::from_secs(2)).await;
    assert_eq!(
        word(&for_volumes).await.as_deref(),
        Some("first"),
        "good enough for these"
    );
    assert_eq!(word(&objects).await.as_deref(), Some("second"));

    advance(Duration::from_secs(3600)).await;
    server
        .faults()
        .on(Verb::Get)
        .resource("configmaps")
        .connection_lost();
    assert_eq!(word(&objects).await.as_deref(), Some("second"));
    objects.secret("default", "unknown").await.unwrap();
    objects.config_map("default", "unknown").await.unwrap_err();

    // No pod refers to it any more.
    let (pods, stop) = (Arc::new(Mutex::new(vec![reader()])), CancellationToken::new());
    let (running, there, token) = (objects.clone(), pods.clone(), stop.clone());
    let running = tokio::spawn(async move { running.run(move || there.lock().clone(), token).await });
    sleep(Duration::from_secs(600)).await;
    assert_eq!(word(&objects).await.as_deref(), Some("second"));
    pods.lock().clear();
    sleep(Duration::from_secs(61)).await;
    objects.config_map("default", "words").await.unwrap_err();
    stop.cancel();
    running.await.unwrap();

    // A server that refuses has spoken.
    server.faults().clear();
    assert_eq!(word(&objects).await.as_deref(), Some("second"));
    advance(Duration::from_secs(2)).await;
    server
        .faults()
        .on(Verb::Get)
        .resource("configmaps")
        .fails(403, "no");
    objects.config_map("default", "words").await.unwrap_err();
}

/// The watch of one object lasts for half an hour and more; its first list does not.
#[tokio::test(start_paused = true)]
async fn a_first_list_that_is_never_answered_is_asked_for_again() {
    let server = ApiServer::builder().record_reads().build();
    server.create(&config_map("first")).unwrap();
    let watches = ConfigObjectWatches::new(server.client());
    let (objects, stop) = (watches.handle(), CancellationToken::new());
    let token = stop.clone();
    let running = tokio::spawn(async move { watches.run(|| vec![reader()], token).await });
    server.faults().on_any_call().first(1).hangs();
    let begun = Instant::now();
    let since = |seconds| begun + Duration::from_secs(seconds);
    let asked = || {
        let calls = server.calls();
        let of_words = |call: &&ApiCall| call.to_string().contains("configmaps");
        calls.all().iter().filter(of_words).count()
    };
    objects.config_map("default", "words").await.unwrap_err();
    // The limit of a list is 65 s, and 10 s for the way.
    sleep_until(since(74)).await;
    assert_eq!(asked(), 1);
    sleep_until(since(80)).await;
    assert_eq!(asked(), 2);
    assert_eq!(word(&objects).await.as_deref(), Some("first"));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_is_asked_for_once_and_known_while_the_server_is_away() {
    let server = ApiServer::builder().record_reads().build();
    let watches = ConfigObjectWatches::new(server.client());
    let objects = watches.handle();
    let (pods, stop) = (Arc::new(Mutex::new(vec![reader()])), CancellationToken::new());
    let (there, token) = (pods.clone(), stop.clone());
    let running = tokio::spawn(async move { watches.run(move || there.lock().clone(), token).await });

    // It comes, changes and goes, and all that is asked is one watch.
    assert_eq!(word(&objects).await, None);
    server.create(&config_map("first")).unwrap();
    eventually!(word(&objects).await, |word| word.as_deref() == Some("first"));
    let mut changed: ConfigMap = server.get("default", "words").unwrap().unwrap();
    changed.data = config_map("second").data;
    server.replace(&changed).unwrap();
    eventually!(word(&objects).await, |word| word.as_deref() == Some("second"));
    let asked = server.calls();
    assert_eq!(asked.count("watch configmaps"), 1, "{asked:?}");
    assert_eq!(asked.count("get configmaps default/words"), 0);

    // A name that would be a selector of its own is a name.
    let other = objects.config_map("default", "x,metadata.name=words").await;
    assert!(!matches!(other, Ok(Some(_))), "{other:?}");
    let asked = server.calls().all();
    let mut selectors = asked.iter().map(|call| call.field_selector.as_str());
    assert!(
        selectors.any(|selector| selector == r"metadata.name=x\,metadata.name\=words"),
        "{asked:?}"
    );

    // Away, for longer than any watch lasts.
    let away = server.faults().on(Verb::Watch).resource("configmaps");
    away.connection_lost();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(word(&objects).await.as_deref(), Some("second"));
    let error = objects.config_map("default", "unknown").await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("default/unknown") && error.contains("timed out"),
        "{error}"
    );
    server.faults().clear();
    server.delete::<ConfigMap>("default", "words").unwrap();
    eventually!(word(&objects).await, |word| word.is_none());

    // What no pod refers to is not watched.
    server.create(&config_map("last")).unwrap();
    eventually!(word(&objects).await, |word| word.as_deref() == Some("last"));
    pods.lock().clear();
    sleep(Duration::from_secs(121)).await;
    let before = server.calls().count("watch configmaps");
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(server.calls().count("watch configmaps"), before);
    // One is watched before its pod is in the list.
    assert_eq!(word(&objects).await.as_deref(), Some("last"));
    pods.lock().push(reader());
    sleep(Duration::from_secs(240)).await;
    assert_eq!(server.calls().count("watch configmaps"), before + 1);

    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_strategy_says_what_is_asked() {
    let config = |strategy: &str| KubeletConfiguration {
        config_map_and_secret_change_detection_strategy: strategy.into(),
        ..KubeletConfiguration::default()
    };
    for (strategy, asked) in [
        ("Watch", ["watch configmaps default/"].as_slice()),
        ("Get", &["get configmaps default/words"; 2]),
        ("Cache", &["get configmaps default/words"; 2]),
    ] {
        let server = ApiServer::builder().record_reads().build();
        server.create(&config_map("first")).unwrap();
        let manager = ConfigObjectManager::new(server.client(), &config(strategy)).unwrap();
        let (objects, stop) = (manager.handle(), CancellationToken::new());
        let running = tokio::spawn(manager.run(|| vec![reader()], stop.clone()));
        assert_eq!(word(&*objects).await.as_deref(), Some("first"));
        sleep(Duration::from_secs(120)).await;
        assert_eq!(word(&*objects).await.as_deref(), Some("first"));
        let calls: Vec<_> = server.calls().all().iter().map(ToString::to_string).collect();
        let reads: Vec<_> = calls.iter().filter(|call| call.contains("configmaps")).collect();
        assert_eq!(reads, asked, "{strategy}");
        stop.cancel();
        running.await.unwrap();
    }
    let server = ApiServer::builder().build();
    let error = ConfigObjectManager::new(server.client(), &config("Guess")).unwrap_err();
    assert!(error.to_string().contains("Guess"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_when_four_fifths_of_its_life_are_over() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = ApiServer::builder().clock(clock).build();
    let pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"nodeName": "node-1",
        "containers": [{"name": "main", "image": "busybox"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pod = Arc::new(server.create(&pod).unwrap());
    let tokens = ApiServerTokens::new(server.client())
        .clock(clock)
        .jitter(Jitter::from_seed(1));
    let wanted = ServiceAccountTokenProjection {
        expiration_seconds: Some(1000),
        path: "token".to_owned(),
        ..Default::default()
    };
    let requests = || server.calls().count("create serviceaccounts/token");
    let first = tokens.token(&pod, &wanted).await.unwrap().text;
    advance(Duration::from_secs(785)).await;
    assert_eq!(tokens.token(&pod, &wanted).await.unwrap().text, first);
    assert_eq!(requests(), 1);
    advance(Duration::from_secs(16)).await;
    let second = tokens.token(&pod, &wanted).await.unwrap().text;
    assert_ne!(second, first);
    assert_eq!(requests(), 2);

    // One for somebody else is another.
    let other = ServiceAccountTokenProjection {
        audience: Some("vault".to_owned()),
        ..wanted.clone()
    };
    assert_ne!(tokens.token(&pod, &other).await.unwrap().text, second);

    // It is given as long as it holds, and then no longer.
    server
        .faults()
        .on(Verb::Create)
        .resource("serviceaccounts/token")
        .fails(500, "tired");
    advance(Duration::from_secs(900)).await;
    assert_eq!(tokens.token(&pod, &wanted).await.unwrap().text, second);
    advance(Duration::from_secs(200)).await;
    let error = tokens.token(&pod, &wanted).await.unwrap_err().to_string();
    assert!(
        error.contains("token expired and refresh failed") && error.contains("tired"),
        "{error}"
    );
    tokens.forget(&pod.uid());
    let error = tokens.token(&pod, &wanted).await.unwrap_err().to_string();
    assert!(error.contains("failed to fetch token"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_was_made_anew_gets_tokens_of_its_own() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = ApiServer::builder().clock(clock).build();
    let account = || {
        server
            .create(&ServiceAccount {
                metadata: named("builder"),
                ..Default::default()
            })
            .unwrap()
    };
    let pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"nodeName": "node-1",
        "serviceAccountName": "builder", "containers": [{"name": "main", "image": "busybox"}]}});
    let first = account().metadata.uid.unwrap();
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pod = Arc::new(server.create(&pod).unwrap());
    let tokens = ApiServerTokens::new(server.client())
        .clock(clock)
        .jitter(Jitter::from_seed(1));
    let wanted = ServiceAccountTokenProjection {
        audience: Some("registry".to_owned()),
        path: "token".to_owned(),
        ..Default::default()
    };
    let requests = || server.calls().count("create serviceaccounts/token");
    let of = async |uid: &str| tokens.account_token(&pod, uid, "registry").await;
    assert_eq!(tokens.account(&pod).await.unwrap().metadata.uid.unwrap(), first);
    let of_first = of(&first).await.unwrap();
    assert_eq!(of(&first).await.unwrap(), of_first);
    assert_eq!(requests(), 1);
    let for_volumes = tokens.token(&pod, &wanted).await.unwrap().text;
    assert_eq!(requests(), 2, "who names no UID has a token of its own");

    server.delete::<ServiceAccount>("default", "builder").unwrap();
    let error = tokens.account(&pod).await.unwrap_err().to_string();
    assert!(
        error.contains(r#"serviceaccounts "builder" not found"#),
        "{error}"
    );
    let second = account().metadata.uid.unwrap();
    let of_second = of(&second).await.unwrap();
    assert_ne!(of_second, of_first);
    assert_eq!(of(&second).await.unwrap(), of_second);
    assert_eq!(requests(), 3);
    assert_eq!(tokens.token(&pod, &wanted).await.unwrap().text, for_volumes);

    // The one before is gone: once its tokens are over there are no more.
    advance(Duration::from_secs(3601)).await;
    let error = of(&first).await.unwrap_err().to_string();
    assert!(
        error.contains("does not match the UID of the service account"),
        "{error}"
    );
    of(&second).await.unwrap();
    tokens.forget(&pod.uid());
    of(&second).await.unwrap();
    assert_eq!(requests(), 6, "forgotten with its pod");
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        ..Default::default()
    }
}

/// The next change, however long it takes.
async fn next(changes: &mut ConfigObjectChanges) -> String {
    let ConfigObjectRef {
        kind,
        namespace,
        name,
    } = changes.recv().await.unwrap();
    format!("{kind:?} {namespace}/{name}")
}

#[tokio::test(start_paused = true)]
async fn each_change_of_what_is_watched_is_reported() {
    let server = ApiServer::builder().record_reads().build();
    assert!(ApiServerConfigObjects::new(server.client()).changes().is_none());
    let watches = ConfigObjectWatches::new(server.client());
    let (objects, stop) = (watches.handle(), CancellationToken::new());
    let running = tokio::spawn(watches.run(|| vec![reader()], stop.clone()));
    let mut changes = objects.changes().unwrap();
    let nothing = |changes: &mut ConfigObjectChanges| assert!(changes.is_empty(), "{:?}", changes.try_recv());

    // The first read reports nothing: its reader has the object.
    assert_eq!(word(&objects).await, None);
    nothing(&mut changes);
    server.create(&config_map("first")).unwrap();
    assert_eq!(next(&mut changes).await, "ConfigMap default/words");
    assert_eq!(
        word(&objects).await.as_deref(),
        Some("first"),
        "it is there at once"
    );
    let mut changed: ConfigMap = server.get("default", "words").unwrap().unwrap();
    changed.data = config_map("second").data;
    server.replace(&changed).unwrap();
    assert_eq!(next(&mut changes).await, "ConfigMap default/words");
    assert_eq!(word(&objects).await.as_deref(), Some("second"));

    // What nobody reads is not watched.
    let mut other = config_map("other");
    other.metadata.name = Some("others".to_owned());
    server.create(&other).unwrap();
    sleep(Duration::from_secs(30)).await;
    nothing(&mut changes);

    // What changed while the server was away is reported after it is back.
    server.faults().on(Verb::Watch).connection_lost();
    server.faults().on(Verb::List).connection_lost();
    server.restart(kubelet_testing::api_server::Memory::Lost);
    sleep(Duration::from_secs(60)).await;
    server.delete::<ConfigMap>("default", "words").unwrap();
    sleep(Duration::from_secs(60)).await;
    nothing(&mut changes);
    server.faults().clear();
    assert_eq!(next(&mut changes).await, "ConfigMap default/words");
    assert_eq!(word(&objects).await, None);
    nothing(&mut changes);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waited_in_vain_gets_the_first_list_as_a_change() {
    let server = ApiServer::builder().build();
    server.create(&config_map("first")).unwrap();
    server.faults().on(Verb::Watch).connection_lost();
    server.faults().on(Verb::List).connection_lost();
    let watches = ConfigObjectWatches::new(server.client());
    let (objects, stop) = (watches.handle(), CancellationToken::new());
    let running = tokio::spawn(watches.run(|| vec![reader()], stop.clone()));
    let mut changes = objects.changes().unwrap();
    objects.config_map("default", "words").await.unwrap_err();
    server.faults().clear();
    assert_eq!(next(&mut changes).await, "ConfigMap default/words");
    assert_eq!(word(&objects).await.as_deref(), Some("first"));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_read_once() {
    let server = ApiServer::builder().record_reads().build();
    let mut fixed = config_map("first");
    fixed.immutable = Some(true);
    server.create(&fixed).unwrap();
    let watches = ConfigObjectWatches::new(server.client());
    let (objects, stop) = (watches.handle(), CancellationToken::new());
    let pods = Arc::new(Mutex::new(vec![reader()]));
    let there = pods.clone();
    let running = tokio::spawn(watches.run(move || there.lock().clone(), stop.clone()));
    assert_eq!(word(&objects).await.as_deref(), Some("first"));
    eventually!(server.open_watches(), |open| *open == 0);
    let asked = server.calls().count("watch configmaps");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(word(&objects).await.as_deref(), Some("first"));
    assert_eq!(
        server.calls().count("watch configmaps"),
        asked,
        "it cannot change"
    );

    // Deleted and created again, it is another object, which the next pod gets.
    pods.lock().clear();
    server.delete::<ConfigMap>("default", "words").unwrap();
    server.create(&config_map("second")).unwrap();
    sleep(Duration::from_secs(121)).await;
    assert_eq!(word(&objects).await.as_deref(), Some("second"));
    stop.cancel();
    running.await.unwrap();
}
