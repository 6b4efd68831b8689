//! Lists with only the fields that a relist needs: they make the same calls, and read the same values as the full
//! lists.

use kubelet_cri::v1::*;
use kubelet_cri::{ListedContainer, ListedSandbox, RuntimeService};

use super::sample::sample;
use super::toy::{Do, toy_and_client};

#[tokio::test]
async fn they_read_what_the_whole_answer_has() {
    let (_folder, toy, served, client) = toy_and_client().await;
    toy.on("ListContainers", Do::Answer(sample("ListContainersResponse")));
    toy.on("ListPodSandbox", Do::Answer(sample("ListPodSandboxResponse")));

    let whole = client
        .list_containers(ListContainersRequest::default())
        .await
        .unwrap();
    let listed = client
        .listed_containers(ListContainersRequest::default())
        .await
        .unwrap();
    assert_eq!(listed.len(), 2);
    for (listed, whole) in listed.iter().zip(&whole.containers) {
        assert_eq!(*listed, ListedContainer::from(whole.clone()));
        assert_eq!(
            (listed.id(), listed.pod_sandbox_id()),
            (&*whole.id, &*whole.pod_sandbox_id)
        );
        let metadata = whole.metadata.as_ref().unwrap();
        assert_eq!(listed.name(), Some(&*metadata.name));
        let image = whole.image.as_ref().unwrap();
        assert_eq!(listed.image(), Some(&*image.image));
        assert_eq!(listed.image_runtime_handler(), image.runtime_handler);
        assert_eq!(
            (listed.image_ref(), listed.image_id()),
            (&*whole.image_ref, &*whole.image_id)
        );
        assert_eq!(
            (listed.state(), listed.created_at()),
            (whole.state(), whole.created_at)
        );
        for (key, value) in &whole.labels {
            assert_eq!(listed.label(key), Some(&**value));
        }
        for (key, value) in &whole.annotations {
            assert_eq!(listed.annotation(key), Some(&**value));
        }
        assert_eq!((listed.label("none"), listed.annotation("none")), (None, None));
    }

    let whole = client
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .unwrap();
    let listed = client
        .listed_sandboxes(ListPodSandboxRequest::default())
        .await
        .unwrap();
    assert_eq!(listed.len(), 2);
    for (listed, whole) in listed.iter().zip(&whole.items) {
        assert_eq!(*listed, ListedSandbox::from(whole.clone()));
        let metadata = whole.metadata.as_ref().unwrap();
        assert_eq!((listed.id(), listed.uid()), (&*whole.id, Some(&*metadata.uid)));
        assert_eq!(
            (listed.namespace(), listed.name()),
            (&*metadata.namespace, &*metadata.name)
        );
        assert_eq!(listed.attempt(), metadata.attempt);
        assert_eq!(
            (listed.state(), listed.created_at()),
            (whole.state(), whole.created_at)
        );
        for (key, value) in &whole.labels {
            assert_eq!(listed.label(key), Some(&**value));
        }
    }
    let calls: Vec<_> = toy.requests().into_iter().map(|(call, _)| call).collect();
    assert_eq!(
        calls,
        [
            "ListContainers",
            "ListContainers",
            "ListPodSandbox",
            "ListPodSandbox"
        ]
    );
    served.stop().await;
}
