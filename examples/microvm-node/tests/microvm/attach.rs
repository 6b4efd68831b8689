//! `kubectl attach -i`: the console of the guest.

use kubelet_cri::verbs::{ClientStreams, ContainerRuntime as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use crate::{ECHO, Stage, patiently};

#[tokio::test]
async fn a_client_types_at_the_console_and_sees_it() {
    let stage = Stage::with_pod(ECHO).await;
    let mut spec = stage.spec();
    spec.stdin = true;
    stage.vms.start(&spec).await.unwrap();
    stage.says("booted").await;
    let ((typed, mut keyboard), (shown, mut screen)) = (duplex(64), duplex(64));
    let mut streams = ClientStreams::default();
    streams.stdin = Some(Box::new(typed));
    streams.stdout = Some(Box::new(shown));
    let client = async {
        keyboard.write_all(b"hello\n").await.unwrap();
        let mut said = [0; 16];
        screen.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"you typed hello\n");
        stage.end(0).await;
    };
    let attach = stage.vms.attach().unwrap();
    let (attached, ()) = patiently(async { tokio::join!(attach.attach(&spec.key, streams), client) }).await;
    attached.unwrap();
    assert_eq!(stage.log(), ["stdout F booted", "stdout F you typed hello"]);
}

#[tokio::test]
async fn nobody_types_without_stdin() {
    let stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    let mut streams = ClientStreams::default();
    streams.stdin = Some(Box::new(tokio::io::empty()));
    let refused = stage.vms.attach().unwrap().attach(&spec.key, streams).await.unwrap_err();
    assert!(refused.message.contains("does not set stdin"), "{refused}");
    stage.end(0).await;
}
