//! The relist of the generic PLEG through a real unix socket, with our client and the generic runtime manager: 1,000
//! idle pods with two containers each. It also measures the time to decode the two list responses, and its share of
//! the whole.
//!
//! `cargo bench -p benches --bench pleg_socket`
//!
//! The runtime has its own thread, as a real one has its own process. Its responses are prepared as bytes, so the
//! cost of building a list is not measured. The duration of a relist is the PLEG's own metric,
//! `kubelet_pleg_relist_duration_seconds`.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::panic, reason = "a bench ends where it cannot go on")]
#![allow(clippy::print_stdout, reason = "a share is no measure of criterion's")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use criterion::{Criterion, criterion_group, criterion_main};
use futures::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{PodCache, Result, RuntimeReader};
use kubelet_cri::{CriClient, RuntimeService, v1};
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const PODS: usize = 1_000;

/// How many times each is measured for the share, and how many times in a row.
const ROUNDS: usize = 40;
const AT_A_TIME: usize = 5;

/// The responses of a runtime with idle pods.
struct Served {
    sandboxes: v1::ListPodSandboxResponse,
    containers: v1::ListContainersResponse,
}

impl Served {
    /// With a kubelet's labels and annotations.
    fn new() -> Self {
        let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
        for index in 0..PODS {
            let (uid, name) = (
                format!("8f6f3a52-7c1d-4b0e-9a55-{index:012}"),
                format!("pod-{index}"),
            );
            let created_at = 1_700_000_000_000_000_000 + index as i64 * 1_000_000;
            let id = |kind: &str| format!("{kind:0>8}{index:056}");
            let labels = texts(&[
                ("io.kubernetes.pod.name", &name),
                ("io.kubernetes.pod.namespace", "bench"),
                ("io.kubernetes.pod.uid", &uid),
            ]);
            let mut sandbox_labels = labels.clone();
            sandbox_labels.extend(texts(&[("app", "web"), ("pod-template-hash", "5d59d67564")]));
            sandboxes.push(v1::PodSandbox {
                id: id("5"),
                metadata: Some(v1::PodSandboxMetadata {
                    name: name.clone(),
                    uid: uid.clone(),
                    namespace: "bench".to_owned(),
                    attempt: 0,
                }),
                state: v1::PodSandboxState::SandboxReady as i32,
                created_at,
                labels: sandbox_labels,
                annotations: texts(&[
                    ("kubernetes.io/config.seen", "2026-01-01T00:00:00.000000000Z"),
                    ("kubernetes.io/config.source", "api"),
                ]),
                ..Default::default()
            });
            for container in ["a", "b"] {
                let mut labels = labels.clone();
                labels.extend(texts(&[("io.kubernetes.container.name", container)]));
                let image = format!("sha256:{:064x}", 7);
                containers.push(v1::Container {
                    id: id(container),
                    pod_sandbox_id: id("5"),
                    metadata: Some(v1::ContainerMetadata {
                        name: container.to_owned(),
                        attempt: 0,
                    }),
                    image: Some(v1::ImageSpec {
                        image: image.clone(),
                        ..Default::default()
                    }),
                    image_ref: image.clone(),
                    image_id: image,
                    state: v1::ContainerState::ContainerRunning as i32,
                    created_at,
                    labels,
                    annotations: texts(&[
                        ("io.kubernetes.container.hash", "5f3b1c2d"),
                        ("io.kubernetes.container.restartCount", "0"),
                        (
                            "io.kubernetes.container.terminationMessagePath",
                            "/dev/termination-log",
                        ),
                        ("io.kubernetes.container.terminationMessagePolicy", "File"),
                        ("io.kubernetes.pod.terminationGracePeriod", "30"),
                    ]),
                });
            }
        }
        Self {
            sandboxes: v1::ListPodSandboxResponse { items: sandboxes },
            containers: v1::ListContainersResponse { containers },
        }
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A runtime behind a socket, with prepared responses.
struct Ready {
    version: Bytes,
    sandboxes: Bytes,
    containers: Bytes,
}

type Body = StreamBody<stream::Iter<std::vec::IntoIter<std::result::Result<Frame<Bytes>, Infallible>>>>;

impl Ready {
    fn new(served: &Served) -> Self {
        let version = v1::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "containerd".to_owned(),
            runtime_version: "2.0.0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        };
        Self {
            version: framed(&version),
            sandboxes: framed(&served.sandboxes),
            containers: framed(&served.containers),
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let call = request.uri().path().rsplit('/').next().unwrap_or_default();
        let message = match call {
            "Version" => Some(&self.version),
            "ListPodSandbox" => Some(&self.sandboxes),
            "ListContainers" => Some(&self.containers),
            _ => None,
        };
        let code = if message.is_some() { "0" } else { "12" };
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static(code),
        )]);
        let message = message.map(|message| Ok(Frame::data(message.clone())));
        let frames: Vec<_> = message
            .into_iter()
            .chain([Ok(Frame::trailers(trailers))])
            .collect();
        let mut response = Response::new(StreamBody::new(stream::iter(frames)));
        let content_type = HeaderValue::from_static("application/grpc");
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, content_type);
        response
    }

    /// Serves on its own thread until `shutdown`.
    fn serve(self, path: PathBuf, shutdown: CancellationToken) -> std::thread::JoinHandle<()> {
        let (bound, is_bound) = std::sync::mpsc::channel();
        let ready = Arc::new(self);
        let thread = std::thread::spawn(move || {
            let serving = async {
                let socket = UnixListener::bind(&path).unwrap_or_else(|error| panic!("{error}"));
                let _ = bound.send(());
                while let Ok((connection, _)) = socket.accept().await {
                    let ready = ready.clone();
                    let service = service_fn(move |request| {
                        let answer = ready.answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .max_send_buf_size(4 << 20)
                        .serve_connection(TokioIo::new(connection), service);
                    tokio::spawn(connection);
                }
            };
            runtime().block_on(shutdown.run_until_cancelled(serving));
        });
        let _ = is_bound.recv();
        thread
    }
}

/// A message in a gRPC frame: no compression, and its length.
fn framed(message: &impl Message) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.encoded_len()).unwrap_or_else(|error| panic!("{error}")));
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}

/// Nothing changes, so each status is read once.
struct Listed(CriRuntime);

#[async_trait]
impl RuntimeReader for Listed {
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        self.0.pods(all).await
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let now = tokio::time::Instant::now();
        Ok(Arc::new(PodStatus::empty(pod.uid.clone(), pod.key.clone(), now)))
    }
}

/// Sends the duration of each relist.
struct Relists(mpsc::UnboundedSender<Duration>);

impl Recorder for Relists {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() == "kubelet_pleg_relist_duration_seconds" {
            Histogram::from_arc(Arc::new(RelistDuration(self.0.clone())))
        } else {
            Histogram::noop()
        }
    }
}

struct RelistDuration(mpsc::UnboundedSender<Duration>);

impl HistogramFn for RelistDuration {
    fn record(&self, seconds: f64) {
        // The receiver is gone once the bench is over.
        let _ = self.0.send(Duration::from_secs_f64(seconds));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

fn relist(criterion: &mut Criterion) {
    let served = Served::new();
    let responses = [
        served.sandboxes.encode_to_vec(),
        served.containers.encode_to_vec(),
    ];
    let decode = || {
        let [sandboxes, containers] = black_box(&responses);
        black_box(v1::ListPodSandboxResponse::decode(&sandboxes[..])).ok();
        black_box(v1::ListContainersResponse::decode(&containers[..])).ok();
    };
    criterion.bench_function("decode the two list responses, 1000 pods", |bencher| {
        bencher.iter(decode);
    });

    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("cri.sock");
    let shutdown = CancellationToken::new();
    let server = Ready::new(&served).serve(path.clone(), shutdown.clone());
    let tokio = runtime();
    let client = tokio.block_on(CriClient::connect(format!("unix://{}", path.display())));
    let client = Arc::new(client.unwrap_or_else(|error| panic!("{error}")));
    let call = async || {
        let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default());
        let containers = client.list_containers(v1::ListContainersRequest::default());
        let _ = black_box(futures::join!(sandboxes, containers));
    };
    criterion.bench_function("the two calls through a socket, 1000 pods", |bencher| {
        bencher.iter(|| tokio.block_on(call()));
    });

    let manager = CriRuntime::builder(client.clone(), client.clone())
        .root_dir(folder.path().join("root"))
        .pod_logs_dir(folder.path().join("logs"))
        .build();
    let manager = tokio.block_on(manager).unwrap_or_else(|error| panic!("{error}"));
    criterion.bench_function("the list of pods through a socket, 1000 pods", |bencher| {
        bencher.iter(|| tokio.block_on(manager.pods(true)));
    });

    let (relists, mut took) = mpsc::unbounded_channel();
    let relists = Relists(relists);
    let _recorded = metrics::set_default_local_recorder(&relists);
    let pleg = GenericPleg::new(Arc::new(Listed(manager)), PodCache::new())
        .with_relist_period(Duration::from_millis(1));
    let watching = tokio.spawn(pleg.run(shutdown.clone()));
    let mut next_relists = |count: usize| -> Vec<Duration> {
        while took.try_recv().is_ok() {}
        let next = async {
            let mut relists = Vec::with_capacity(count);
            while relists.len() < count {
                relists.extend(took.recv().await);
            }
            relists
        };
        tokio.block_on(next)
    };
    // The first relist finds the pods.
    next_relists(2);
    criterion.bench_function("idle relist through a socket, 1000 pods", |bencher| {
        bencher.iter_custom(|turns| {
            let turns = usize::try_from(turns).unwrap_or(usize::MAX);
            next_relists(turns).into_iter().sum()
        });
    });
    // Alternate, because the speed of a machine varies.
    let (mut decoding, mut relists) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..AT_A_TIME {
            let started = Instant::now();
            decode();
            decoding.push(started.elapsed());
        }
        relists.extend(next_relists(AT_A_TIME));
    }
    let (decoding, relist) = (median(decoding), median(relists));
    println!(
        "idle relist through a socket: {relist:?}, of which decoding {decoding:?}, {:.0} %: {:.2} x decoding",
        100.0 * decoding.as_secs_f64() / relist.as_secs_f64(),
        relist.as_secs_f64() / decoding.as_secs_f64(),
    );
    shutdown.cancel();
    let _ = tokio.block_on(watching);
    let _ = server.join();
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30);
    targets = relist
}
criterion_main!(benches);
