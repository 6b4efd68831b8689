//! Drivers that fail, hang, die and lie.

use kubelet_testing::csi_driver::{CsiFault, CsiMethod, CsiTrouble, VOLUME_FILE};
use kubelet_volume::VolumePlugin;
use serde_json::json;
use tonic::Code;

use super::node::{LEFT, Node, inline, plain};

fn failing(method: CsiMethod, code: Code) -> CsiFault {
    CsiFault::on(method)
        .times(1)
        .then(CsiTrouble::Fails(code, "no".into()))
}

#[tokio::test]
async fn a_final_error_leaves_nothing_and_any_other_one_keeps_the_data() {
    for (code, is_final) in [
        (Code::Internal, true),
        (Code::InvalidArgument, true),
        (Code::Unknown, true),
        (Code::FailedPrecondition, true),
        (Code::Unavailable, false),
        (Code::Aborted, false),
        (Code::ResourceExhausted, false),
        (Code::DeadlineExceeded, false),
        (Code::Cancelled, false),
    ] {
        let node = Node::new();
        let spec = plain("pv-1");
        node.driver.fault(failing(CsiMethod::NodeStageVolume, code));
        let error = node.stage(&spec).await.unwrap_err();
        assert_eq!(error.is_uncertain(), !is_final, "{code:?}: {error}");
        let name = match code {
            Code::Cancelled => "Canceled".to_owned(),
            code => format!("{code:?}"),
        };
        assert_eq!(error.to_string(), format!("rpc error: code = {name} desc = no"));
        if is_final {
            node.assert_clean();
        }
        node.stage(&spec).await.unwrap();

        node.driver.fault(failing(CsiMethod::NodePublishVolume, code));
        let mount = node.mount("a", spec.clone());
        let error = node.plugin.set_up(&mount).await.unwrap_err();
        assert_eq!(error.is_uncertain(), !is_final, "{code:?}: {error}");
        assert_eq!(mount.dir.exists(), !is_final, "{code:?}");
        node.tear_down(&mount).await.unwrap();
        node.unstage(&spec).await.unwrap();
        node.assert_clean();
    }
}

#[tokio::test]
async fn after_a_lost_answer_a_missing_driver_says_nothing_of_the_volume() {
    let mut node = Node::new();
    let spec = plain("pv-1");
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeStageVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost),
    );
    assert!(node.stage(&spec).await.unwrap_err().is_uncertain());
    node.stop_driver().await;
    let error = node.stage(&spec).await.unwrap_err();
    assert!(error.is_uncertain(), "it is still staged: {error:?}");
    let socket = node.socket();
    assert_eq!(
        error.to_string(),
        format!(
            "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix {}: connect: no such file or directory\"",
            socket.display()
        )
    );
    node.start_driver();
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn a_volume_that_fails_for_certain_after_a_lost_answer_is_cleaned_up_by_unmounting_it() {
    let node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.driver.fault(
        CsiFault::on(CsiMethod::NodePublishVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost),
    );
    assert!(node.plugin.set_up(&mount).await.unwrap_err().is_uncertain());
    assert!(node.plugin.path(&mount).join(VOLUME_FILE).exists());
    node.driver
        .fault(failing(CsiMethod::NodePublishVolume, Code::Internal));
    node.plugin.set_up(&mount).await.unwrap_err();
    // What is mounted stays until it is unmounted.
    assert!(mount.dir.join("vol_data.json").exists());
    node.tear_down(&mount).await.unwrap();
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn a_driver_that_dies_is_unavailable() {
    for trouble in [CsiTrouble::Dies, CsiTrouble::DiesAfterWork] {
        let mut node = Node::new();
        let spec = plain("pv-1");
        node.driver
            .fault(CsiFault::on(CsiMethod::NodeStageVolume).times(1).then(trouble));
        let error = node.stage(&spec).await.unwrap_err();
        assert!(error.is_uncertain(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("rpc error: code = Unavailable desc = error reading from server"),
            "{error}"
        );
        node.served.take().unwrap().died().await;
        node.start_driver();
        node.stage(&spec).await.unwrap();
        node.unstage(&spec).await.unwrap();
        node.assert_clean();
    }
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_its_own_volume_only() {
    let node = Node::new();
    let hung = plain("pv-hung");
    let well = plain("pv-well");
    let fault = CsiFault::on(CsiMethod::NodeStageVolume).volume("handle-of-pv-hung");
    node.driver.fault(fault.then(CsiTrouble::Hangs));
    let waits = node.stage(&hung);
    tokio::pin!(waits);
    tokio::select! {
        biased;
        _ = &mut waits => panic!("the call does not hang"),
        staged = node.stage(&well) => { staged.unwrap(); }
    }
    node.unstage(&well).await.unwrap();
}

/// The operation's two minutes pass at once, and the answer to a hung call is a deadline.
#[tokio::test]
async fn a_call_that_hangs_ends_after_two_minutes() {
    let node = Node::new();
    let spec = plain("pv-1");
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeStageVolume)
            .times(1)
            .then(CsiTrouble::HangsAfterWork),
    );
    let waits = node.stage(&spec);
    tokio::pin!(waits);
    // Until the driver has the call, the clock runs: a paused clock would jump while the socket is connected.
    tokio::select! {
        biased;
        _ = &mut waits => panic!("the call does not hang"),
        () = async {
            while node.calls_of(CsiMethod::NodeStageVolume).is_empty() || node.driver.staged().is_empty() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    tokio::time::pause();
    let error = waits.await.unwrap_err();
    tokio::time::resume();
    assert_eq!(
        error.to_string(),
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    assert!(error.is_uncertain());
    // The volume is staged: the data to unstage it are there.
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn capabilities_that_change_between_calls_do_no_harm() {
    let node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    node.driver.set_capabilities([]);
    node.tear_down(&mount).await.unwrap();
    // A driver that says it stages nothing is not asked to unstage: what it staged stays, with its data.
    node.unstage(&spec).await.unwrap();
    assert!(node.calls_of(CsiMethod::NodeUnstageVolume).is_empty());
    assert_eq!(node.driver.staged().len(), 1);
    use kubelet_volume::csi::v1::node_service_capability::rpc::Type as Capability;
    node.driver.set_capabilities([Capability::StageUnstageVolume]);
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn unmounting_is_retried_until_the_driver_confirms_it() {
    let node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    node.driver
        .fault(failing(CsiMethod::NodeUnpublishVolume, Code::Internal));
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeUnpublishVolume)
            .times(2)
            .then(CsiTrouble::AnswerLost),
    );
    let error = node.tear_down(&mount).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Internal desc = no"
    );
    node.tear_down(&mount).await.unwrap_err();
    assert!(mount.dir.join("vol_data.json").exists());
    while node.tear_down(&mount).await.is_err() {}
    node.driver
        .fault(failing(CsiMethod::NodeUnstageVolume, Code::Internal));
    let error = node.unstage(&spec).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kubernetes.io/csi: attacher.UnmountDevice failed: rpc error: code = Internal desc = no"
    );
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

/// Whatever goes wrong and however often, each volume is in the end staged once or not at all, and nothing that is
/// published is unstaged.
#[tokio::test]
async fn random_faults_leave_no_volume_behind() {
    for seed in 0..20 {
        let mut node = Node::new();
        for (number, trouble) in [
            CsiTrouble::AnswerLost,
            CsiTrouble::Fails(Code::Internal, "no".into()),
            CsiTrouble::Fails(Code::Aborted, "busy".into()),
            CsiTrouble::DiesAfterWork,
            CsiTrouble::Dies,
        ]
        .into_iter()
        .enumerate()
        {
            let fault = CsiFault::on_any_volume_call()
                .times(12)
                .rate(0.2, seed * 7 + number as u64);
            node.driver.fault(fault.then(trouble));
        }
        let spec = plain("pv-1");
        let mounts = ["a", "b"].map(|pod| node.mount(pod, spec.clone()));
        while node.stage(&spec).await.is_err() {
            revive(&mut node).await;
        }
        for mount in &mounts {
            while node.plugin.set_up(mount).await.is_err() {
                revive(&mut node).await;
            }
        }
        assert_eq!(node.driver.published().len(), 2, "seed {seed}");
        if seed % 2 == 0 {
            node.restart_agent();
        }
        for mount in &mounts {
            while node.tear_down(mount).await.is_err() {
                revive(&mut node).await;
            }
        }
        while node.unstage(&spec).await.is_err() {
            revive(&mut node).await;
        }
        node.assert_clean();
    }
}

/// Serves the driver again if it died.
async fn revive(node: &mut Node) {
    if !node.socket().exists() {
        if let Some(served) = node.served.take() {
            served.died().await;
        }
        node.start_driver();
    }
}

#[tokio::test]
async fn a_driver_that_only_claims_to_unmount_is_asked_again() {
    let node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeUnpublishVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost),
    );
    node.tear_down(&mount).await.unwrap_err();
    // The driver has forgotten it, but its mount is there.
    let target = node.plugin.path(&mount);
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(target.join(VOLUME_FILE), "").unwrap();
    let error = node.tear_down(&mount).await.unwrap_err().to_string();
    assert!(
        error.ends_with(&format!("{} is still mounted", target.display())),
        "{error}"
    );
    assert!(mount.dir.join("vol_data.json").exists());
    std::fs::remove_file(target.join(VOLUME_FILE)).unwrap();
    node.tear_down(&mount).await.unwrap();
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

/// As a driver does that was killed between its mount and its note of it.
#[tokio::test]
async fn what_a_driver_leaves_mounted_twice_is_unmounted() {
    let node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    let target = node.plugin.path(&mount);
    let left = || {
        std::fs::create_dir_all(&target).unwrap();
        std::fs::write(target.join(VOLUME_FILE), LEFT).unwrap();
    };
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeUnpublishVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost),
    );
    node.tear_down(&mount).await.unwrap_err();
    left();
    let error = node.tear_down(&mount).await.unwrap_err().to_string();
    assert!(error.ends_with("is still mounted"), "{error}");
    assert!(target.join(VOLUME_FILE).exists());
    node.tear_down(&mount).await.unwrap();
    assert!(!mount.dir.exists());

    // The next mount begins anew: its driver is asked again, too.
    node.plugin.set_up(&mount).await.unwrap();
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeUnpublishVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost),
    );
    node.tear_down(&mount).await.unwrap_err();
    left();
    node.tear_down(&mount).await.unwrap_err();
    assert!(target.join(VOLUME_FILE).exists());
    node.tear_down(&mount).await.unwrap();
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

/// Some drivers delete an inline volume when they unpublish it, and do not know it when they are asked again.
#[tokio::test]
async fn an_inline_volume_that_its_driver_no_longer_knows_is_gone() {
    let lost = || {
        CsiFault::on(CsiMethod::NodeUnpublishVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost)
    };
    let mut node =
        Node::with(json!({"volumeLifecycleModes": ["Ephemeral", "Persistent"], "attachRequired": false}));
    let mount = node.mount("a", inline(json!({})));
    node.plugin.set_up(&mount).await.unwrap();
    node.driver.fault(lost());
    node.tear_down(&mount).await.unwrap_err();
    node.restart_agent();
    node.driver
        .fault(failing(CsiMethod::NodeUnpublishVolume, Code::NotFound));
    node.tear_down(&mount).await.unwrap();
    assert!(!mount.dir.exists());

    // A persistent volume outlives its pods: that its driver does not know it is an error.
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    node.driver
        .fault(failing(CsiMethod::NodeUnpublishVolume, Code::NotFound));
    let error = node.tear_down(&mount).await.unwrap_err().to_string();
    assert!(error.ends_with("code = NotFound desc = no"), "{error}");
    node.tear_down(&mount).await.unwrap();
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}
