//! One client certificate after another.

use std::time::Duration;

use kubelet_core::Jitter;
use kubelet_testing::api_server::{ApiServerBuilder, Verb};
use kubelet_testing::eventually;

use super::rig::{Rig, Running};

#[tokio::test(start_paused = true)]
async fn at_seventy_to_ninety_percent() {
    let hours = Duration::from_secs(3 * 3600);
    let mut parts = Vec::new();
    for seed in 0..8 {
        let rig = Rig::new(|server| server.sign_certificates().signing_duration(hours));
        let running = Running::start(rig.access().jitter(Jitter::from_seed(seed)).open().await.unwrap());
        let mut old = running.next().await;
        for _ in 0..5 {
            let new = running.next().await;
            let age = rig.clock.now().duration_since(old.not_before());
            parts.push(age.as_secs_f64() / old.lifetime().as_secs_f64());
            assert_ne!(new.chain_pem(), old.chain_pem());
            assert_ne!(new.key_pem(), old.key_pem());
            old = new;
        }
        // The first is the bootstrap's; the node itself asks for the others.
        let requests = rig.requests();
        assert_eq!(requests.len(), 6);
        let own = requests
            .iter()
            .filter(|r| r.spec.username.as_deref() == Some("system:node:node-1"));
        assert_eq!(
            own.filter(|r| r.metadata.name.as_ref().unwrap().starts_with("csr-"))
                .count(),
            5
        );
        running.end().await;
    }
    assert!(
        parts.iter().all(|part| (0.699..0.901).contains(part)),
        "{parts:?}"
    );
    let spread = parts.iter().cloned().fold(0.0, f64::max) - parts.iter().cloned().fold(1.0, f64::min);
    assert!(spread > 0.1, "{parts:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_back_off_as_the_kubelets() {
    let rig = Rig::new(|server| {
        server
            .sign_certificates()
            .signing_duration(Duration::from_secs(24 * 3600))
    });
    let running = rig.run().await;
    running.next().await;
    rig.server.calls().clear();
    let faults = rig.server.faults();
    faults
        .on(Verb::Create)
        .resource("certificatesigningrequests")
        .first(8)
        .fails(500, "etcdserver: no leader");
    running.next().await;
    let calls = rig.server.calls().all();
    let creates: Vec<_> = calls
        .iter()
        .filter(|call| call.verb == Verb::Create)
        .map(|call| call.at)
        .collect();
    assert_eq!(creates.len(), 9);
    let waits = creates
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).as_secs_f64());
    for (wait, base) in waits.zip([2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0, 32.0]) {
        assert!(
            (base..base * 1.1 + 0.01).contains(&wait),
            "{wait} s and not {base} s"
        );
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_waited_for() {
    let rig = Rig::new(|server| {
        server
            .sign_certificates()
            .signing_duration(Duration::from_secs(24 * 3600))
    });
    let running = rig.run().await;
    let first = running.next().await;
    rig.server.down_for(Duration::from_secs(30 * 3600));
    // It has expired. The API server does not answer, so the agent keeps trying.
    rig.sleep(29 * 3600).await;
    assert!(running.certificates.current().is_none());
    assert_eq!(running.certificates.ttl_seconds(), f64::INFINITY);
    assert!(
        running
            .certificates
            .last_error()
            .unwrap()
            .starts_with("create certificatesigningrequest: ")
    );
    // The bootstrap's token is of use again.
    let second = running.next().await;
    assert!(second.not_before() > first.not_after());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_costs_nothing_but_time() {
    let rig = Rig::new(ApiServerBuilder::sign_approved_certificates);
    let faults = rig.server.faults();
    faults
        .on(Verb::Watch)
        .first(2)
        .broken_after(Duration::from_secs(3));
    faults.on(Verb::Watch).nth(3).gone();
    faults.on(Verb::List).nth(2).fails(503, "away");
    let running = rig.run().await;
    eventually!(rig.server.faults().injected(), |injected| injected.len() == 4);
    rig.decide(&rig.request(), "Approved").await;
    running.next().await;
    assert_eq!(running.certificates.last_error(), None);
    running.end().await;
}
