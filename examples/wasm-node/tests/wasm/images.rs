//! Images: files, layouts, registries, removal.

use kubelet_cri::verbs::{ContainerRuntime as _, ErrorClass, Images, RegistryLogin};
use wasm_node::WasmRuntime;

use crate::{KIT, Stage, layout, modules, registry};

fn kit() -> Vec<u8> {
    wat::parse_file(modules().join("kit.wat")).unwrap()
}

#[tokio::test]
async fn a_module_of_an_image_layout_runs() {
    let mut stage = Stage::new().await;
    let modules = stage.dir.path().join("modules");
    layout::make(&modules.join("app"), "v1", &kit());
    let wasm = WasmRuntime::builder(stage.dir.path().join("other")).modules(&modules).open().unwrap();
    stage.wasm = std::sync::Arc::new(wasm);
    let images = stage.wasm.images().unwrap();
    let pulled = images.pull("file/app:v1").await.unwrap();
    assert_eq!(pulled.id, format!("sha256:{}", layout::hex(&kit())));
    let mut spec = stage.spec(&["exits", "5"]);
    spec.image = "file/app:v1".to_owned();
    assert_eq!(stage.run(&spec).await.code, 5);

    assert_eq!(images.pull("file/app:v2").await.unwrap_err().class, ErrorClass::Gone);
    let blob = modules.join("app/blobs/sha256").join(layout::hex(&kit()));
    std::fs::write(blob, "other").unwrap();
    let error = images.pull("file/app:v1").await.unwrap_err();
    assert!(error.message.contains("has another digest"), "{error}");
}

#[tokio::test]
async fn a_registry_gives_its_image_to_who_has_the_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry::serve(kit()).await.to_string();
    let wasm = WasmRuntime::builder(dir.path()).insecure_registries(vec![registry.clone()]).open().unwrap();
    let (images, image) = (wasm.images().unwrap(), format!("{registry}/test/app:v1"));
    let (joe, eve) = (RegistryLogin::basic("joe", "secret"), RegistryLogin::basic("eve", "guess"));
    let pulled = images.pull_with_login(&image, &joe).await.unwrap();
    assert_eq!(pulled.names, [image.as_str()]);
    // What one may pull, another may not.
    images.pull_with_login(&image, &eve).await.unwrap_err();
    images.pull(&image).await.unwrap_err();
    let missing = images.pull_with_login(&format!("{registry}/test/other:v1"), &joe).await.unwrap_err();
    assert!(!missing.message.is_empty(), "{missing}");
}

#[tokio::test]
async fn images_are_listed_found_again_and_removed() {
    let stage = Stage::new().await;
    let images = stage.wasm.images().unwrap();
    let [image] = &images.list().await.unwrap()[..] else { panic!("one image") };
    assert_eq!((image.names.as_slice(), image.size), (&[format!("{KIT}:latest")][..], kit().len() as u64));

    let root = stage.dir.path().join("wasm");
    let again = WasmRuntime::builder(&root).open().unwrap();
    assert_eq!(again.images().unwrap().status(&image.id).await.unwrap().as_ref(), Some(image));

    images.remove(&image.id).await.unwrap();
    assert_eq!(images.status(KIT).await.unwrap(), None);
    images.remove(&image.id).await.unwrap();
    let left =
        std::fs::read_dir(root.join("images")).unwrap().filter(|it| it.as_ref().unwrap().path().is_file());
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn what_is_not_webassembly_is_no_image() {
    let stage = Stage::new().await;
    let images: &dyn Images = stage.wasm.images().unwrap();
    // The credentials of a registry do not matter.
    images.pull_with_login(KIT, &RegistryLogin::basic("joe", "secret")).await.unwrap();
    for (image, why) in [
        ("file/main.rs", "expected `(`"),
        ("file/missing.wat", "cannot read"),
        ("file/conformance", "cannot read"),
        (&*format!("file/kit.wat@sha256:{}", layout::hex(&kit())), "no digest"),
    ] {
        let error = images.pull(image).await.unwrap_err();
        assert!(error.message.contains(why), "{image}: {error}");
    }
}
