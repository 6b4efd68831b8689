//! Registration on sockets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use kubelet_core::Disk;
use kubelet_plugins::{Plugin, PluginHandler};
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::devices::v1beta1::{RegisterRequest, registration_server};
use kubelet_resources::devices::{DEVICE_MANAGER_STATE, DeviceManager, KUBELET_SOCKET};
use kubelet_testing::{MemoryDevicePlugin, eventually};
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use super::GPU;
use crate::manager::Pods;
use crate::pods::machine;

/// Plugins that are built with the kubelet's stub do not register on the socket when they find this file beside it. The kubelet has the
/// code that writes it, and never calls it.
#[tokio::test]
async fn no_file_keeps_plugins_from_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let manager = DeviceManager::builder(folder.path(), Arc::new(StateFolder::new(folder.path())));
    let manager = manager.disk(Disk::inline()).start(&machine(1, 1, 1, 1)).await;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run(Pods::ready(&[]), shutdown.clone()));
    let socket = folder.path().join(KUBELET_SOCKET);
    eventually!(socket.exists(), |exists| *exists);
    assert!(!folder.path().join("DEPRECATION").exists());
    shutdown.cancel();
    running.await.unwrap();
}

/// Clients of grpc-go that dial the path of a socket with a dialer of their own send it as their authority: most device plugins.
#[tokio::test]
async fn a_plugin_may_send_the_path_of_the_socket_as_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let manager = DeviceManager::builder(folder.path(), Arc::new(StateFolder::new(folder.path())));
    let manager = manager.disk(Disk::inline()).start(&machine(1, 1, 1, 1)).await;
    let (devices, shutdown) = (manager.handle(), CancellationToken::new());
    let running = tokio::spawn(manager.run(Pods::ready(&[]), shutdown.clone()));
    let socket = folder.path().join(KUBELET_SOCKET);
    eventually!(socket.exists(), |exists| *exists);
    let plugin = MemoryDevicePlugin::new(GPU).device("a", [0]);
    let _served = plugin.serve(&folder.path().join("gpu.sock")).unwrap();

    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let headers = [
        // POST, http, the path, the authority, the type of the content, and a header with a new name.
        &[0x83, 0x86, 0x44][..],
        &text("/v1beta1.Registration/Register"),
        &[0x41],
        &text("%2Fvar%2Flib%2Fkubelet%2Fdevice-plugins%2Fkubelet.sock"),
        &[0x5f],
        &text("application/grpc"),
        &[0x40],
        &text("te"),
        &text("trailers"),
    ];
    let request = RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: "gpu.sock".to_owned(),
        resource_name: GPU.to_owned(),
        options: None,
    };
    let request = request.encode_to_vec();
    let message = [&[0, 0, 0, 0, u8::try_from(request.len()).unwrap()][..], &request].concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
    };
    let sent = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, &headers.concat()),
        frame(0, 1, 1, &message),
    ];
    let mut stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
    stream.write_all(&sent.concat()).await.unwrap();
    let offered = || {
        devices
            .allocatable_devices()
            .remove(GPU)
            .unwrap_or_default()
            .len()
    };
    eventually!(offered(), |offered| *offered == 1);
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn plugins_register_on_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device-plugins");
    fs::create_dir(&path).unwrap();
    // What an agent before left: plugins watch for the removal of their sockets.
    drop(std::os::unix::net::UnixListener::bind(path.join("old.sock")).unwrap());
    fs::write(path.join("other"), "").unwrap();

    let store = Arc::new(StateFolder::new(&path));
    let manager = DeviceManager::builder(&path, store)
        .disk(Disk::inline())
        .start(&machine(1, 1, 1, 1))
        .await;
    let devices = manager.handle();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run(Pods::ready(&[]), shutdown.clone()));
    let socket = path.join(KUBELET_SOCKET);
    eventually!(socket.exists(), |exists| *exists);
    assert!(!path.join("old.sock").exists());
    assert!(path.join("other").exists());
    assert!(devices.check().is_ok());

    let plugin = MemoryDevicePlugin::new(GPU).device("a", [0]);
    let served = plugin.serve(&path.join("gpu.sock")).unwrap();
    let refused = served.register(&socket, "v1alpha1").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unknown);
    assert_eq!(
        refused.message(),
        "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]"
    );
    let odd = MemoryDevicePlugin::new("gpu");
    let refused = odd
        .serve(&path.join("odd.sock"))
        .unwrap()
        .register(&socket, "v1beta1")
        .await;
    assert_eq!(
        refused.unwrap_err().message(),
        "the ResourceName \"gpu\" is invalid"
    );
    served.register(&socket, "v1beta1").await.unwrap();
    eventually!(devices.allocatable_devices(), |devices| devices
        .get(GPU)
        .is_some_and(|all| all.len() == 1));
    eventually!(
        fs::read_to_string(path.join(DEVICE_MANAGER_STATE)).unwrap_or_default(),
        |text| text.contains(r#"{"example.com/gpu":["a"]}"#)
    );

    // Its socket goes, and its connection breaks.
    served.stop().await;
    eventually!(devices.allocatable_devices(), |devices| devices[GPU].is_empty());
    let gone = plugin.serve(&path.join("gpu.sock")).unwrap();
    gone.stop().await;
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn plugins_register_through_the_plugin_watcher() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(StateFolder::new(folder.path()));
    let manager = DeviceManager::builder(folder.path(), store)
        .start(&machine(1, 1, 1, 1))
        .await;
    let devices = manager.handle();
    let plugin = |name: &str, version: &str, socket: &str| {
        Plugin::new(kubelet_plugins::DEVICE_PLUGIN, name, folder.path().join(socket)).versions([version])
    };
    let refused = |plugin: Plugin| {
        let devices = devices.clone();
        async move { devices.validate(&plugin).await.unwrap_err().to_string() }
    };
    assert_eq!(
        refused(plugin(GPU, "v2", "a")).await,
        "manager version, v1beta1, is not among plugin supported versions [v2]"
    );
    assert_eq!(
        refused(plugin("gpu", "v1beta1", "a")).await,
        "invalid name of device plugin socket: the ResourceName \"gpu\" is invalid"
    );
    let nobody = devices
        .register(&plugin(GPU, "v1beta1", "nobody"))
        .await
        .unwrap_err();
    assert!(
        nobody.to_string().starts_with("failed to dial device plugin: "),
        "{nobody}"
    );

    let fake = MemoryDevicePlugin::new(GPU).device("a", []);
    let first = fake.serve(&folder.path().join("first")).unwrap();
    let second = fake.serve(&folder.path().join("second")).unwrap();
    let healthy = || devices.allocatable_devices().get(GPU).map_or(0, |all| all.len());
    devices.validate(&plugin(GPU, "v1beta1", "first")).await.unwrap();
    devices.register(&plugin(GPU, "v1beta1", "first")).await.unwrap();
    eventually!(healthy(), |healthy| *healthy == 1);
    // During an update a second one registers, then the first one goes.
    devices.register(&plugin(GPU, "v1beta1", "second")).await.unwrap();
    devices.deregister(&plugin(GPU, "v1beta1", "first")).await;
    assert_eq!(healthy(), 1);
    devices.deregister(&plugin(GPU, "v1beta1", "second")).await;
    assert_eq!(healthy(), 0);
    drop((first, second));
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    manager.run(Pods::ready(&[]), shutdown).await;
}

/// The manager makes its folder, and looks for the sockets of plugins only there.
#[tokio::test]
async fn sockets_of_plugins_are_in_a_folder_of_the_group() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("device-plugins");
    let manager = DeviceManager::builder(&path, Arc::new(StateFolder::new(&path)))
        .disk(Disk::inline())
        .start(&machine(1, 1, 1, 1))
        .await;
    let (devices, shutdown) = (manager.handle(), CancellationToken::new());
    let running = tokio::spawn(manager.run(Pods::ready(&[]), shutdown.clone()));
    eventually!(path.join(KUBELET_SOCKET).exists(), |exists| *exists);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o027, 0, "{mode:o}");

    let plugin = MemoryDevicePlugin::new(GPU).device("a", [0]);
    let served = plugin.serve(&path.join("gpu.sock")).unwrap();
    let request = RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: "/gpu.sock".to_owned(),
        resource_name: GPU.to_owned(),
        options: None,
    };
    let registered =
        registration_server::Registration::register(&devices, tonic::Request::new(request)).await;
    registered.unwrap();
    eventually!(devices.allocatable_devices(), |devices| devices
        .get(GPU)
        .is_some_and(|all| all.len() == 1));
    served.stop().await;
    shutdown.cancel();
    running.await.unwrap();
}
