//! The same server over TLS.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube_client::api::ListParams;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use kubelet_apiserver::{ApiServer, User};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::refusal;

#[tokio::test]
async fn knows_its_clients_by_their_tokens() {
    let server = ApiServer::builder().sign_certificates().build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let (served, stop) = (server.clone(), shutdown.clone());
    let task = tokio::spawn(async move { served.serve_tls(listener, stop).await });

    let text = server.kubeconfig_tls(address, User::bootstrapper("abcdef"));
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let mut stranger = config.clone();
    stranger.auth_info = Default::default();
    let client = Client::try_from(config).unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    requests.list(&ListParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    assert_eq!(refusal(pods.list(&ListParams::default()).await).0, 403);
    let pods: Api<Pod> = Api::default_namespaced(Client::try_from(stranger).unwrap());
    let error = refusal(pods.list(&ListParams::default()).await);
    assert!(matches!(error.0, 401 | 403), "{error:?}");

    shutdown.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn needs_an_authority() {
    let server = ApiServer::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = server
        .serve_tls(listener, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "this API server signs no certificates");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_handshake_is_disconnected() {
    let server = ApiServer::builder().sign_certificates().build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = server.serve_tls(listener, shutdown.clone());
    let calling = async {
        let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut nothing = [0; 1];
        let read = tokio::io::AsyncReadExt::read(&mut silent, &mut nothing).await;
        assert_eq!(read.unwrap_or_default(), 0);
        shutdown.cancel();
    };
    let (served, ()) = tokio::join!(serving, calling);
    served.unwrap();
}
