//! Static pods from a URL, served by the test byte for byte.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet_config::{Error, HttpSource, PodConfig, PodSource, SourceStatus, SourceUpdate};
use kubelet_core::PodExt;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Far longer than anything here takes.
const GUARD: Duration = Duration::from_secs(60);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct Server {
    listener: TcpListener,
    tls: Option<tokio_rustls::TlsAcceptor>,
}

struct Asked {
    head: String,
    stream: Box<dyn Stream>,
}

impl Server {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, tls: None }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn source(&self) -> HttpSource {
        let url = format!("http://127.0.0.1:{}/pods", self.port());
        source(&url)
    }

    async fn asked(&self) -> Asked {
        timeout(GUARD, async {
            loop {
                let (stream, _) = self.listener.accept().await.unwrap();
                let mut stream: Box<dyn Stream> = match &self.tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => continue,
                    },
                };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap().to_lowercase();
                return Asked { head, stream };
            }
        })
        .await
        .expect("a request")
    }

    /// Answers this many requests in the same way.
    async fn serve(&self, times: usize, body: &str) {
        for _ in 0..times {
            self.asked().await.ok(body).await;
        }
    }
}

impl Asked {
    async fn raw(mut self, text: &[u8]) {
        let _ = self.stream.write_all(text).await;
        let _ = self.stream.shutdown().await;
    }

    async fn ok(self, body: &str) {
        self.status("200 OK", body).await;
    }

    async fn status(self, status: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.raw(text.as_bytes()).await;
    }

    async fn redirect(self, location: &str) {
        let text = format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        self.raw(text.as_bytes()).await;
    }
}

fn source(url: &str) -> HttpSource {
    HttpSource::new(url, "node-1")
        .unwrap()
        .check_frequency(Duration::from_millis(1))
}

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    )
}

fn list(names: &[&str]) -> String {
    let item = |name: &&str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let items: Vec<_> = names.iter().map(item).collect();
    json!({"apiVersion": "v1", "kind": "PodList", "items": items}).to_string()
}

struct Updates(BoxStream<'static, SourceUpdate>);

impl Updates {
    fn of(source: HttpSource) -> Self {
        Self(Box::new(source).updates())
    }

    /// `Snapshot(a,b)`
    async fn next(&mut self) -> String {
        match timeout(GUARD, self.0.next())
            .await
            .expect("a word")
            .expect("no end")
        {
            SourceUpdate::Snapshot(pods) => {
                let names: Vec<_> = pods.iter().map(|pod| pod.key().name.to_string()).collect();
                format!("Snapshot({})", names.join(","))
            }
            SourceUpdate::Unavailable { message } => format!("Unavailable({message})"),
            SourceUpdate::Available => "Available".into(),
            SourceUpdate::Problem { item, message } => format!("Problem({item}: {message})"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_pod_or_a_list_in_yaml_or_json_and_nothing_where_nothing_changed() {
    let server = Server::new().await;
    let mut updates = Updates::of(server.source());
    let serving = async {
        server.serve(3, &pod("a")).await;
        server.serve(3, &list(&["b", "c"])).await;
        server.serve(1, &list(&[])).await;
        let yaml = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: d}\n  spec: {containers: [{name: c, image: i}]}\n";
        server.serve(1, yaml).await;
        server.serve(1, &format!("{}---\n{}", pod("e"), pod("f"))).await;
    };
    let listening = async {
        let mut told = Vec::new();
        while told.len() < 6 {
            told.push(updates.next().await);
        }
        told
    };
    let ((), told) = tokio::join!(serving, listening);
    assert_eq!(
        told[..4],
        [
            "Snapshot(a-node-1)",
            "Snapshot(b-node-1,c-node-1)",
            "Snapshot()",
            "Snapshot(d-node-1)"
        ]
    );
    assert!(told[4].starts_with("Problem(http://127.0.0.1:") && told[4].contains("more than one document"));
    assert_eq!(told[5], "Snapshot(e-node-1)");
}

#[tokio::test]
async fn it_sends_its_headers() {
    let server = Server::new().await;
    let headers = BTreeMap::from([
        ("X-Token".to_owned(), vec!["one".to_owned(), "two".to_owned()]),
        ("Host".to_owned(), vec!["elsewhere".to_owned()]),
    ]);
    let url = format!("http://me:secret@127.0.0.1:{}/pods?node=1", server.port());
    let mut updates = Updates::of(source(&url).headers(&headers).unwrap());
    let answered = async {
        let asked = server.asked().await;
        let head = asked.head.clone();
        asked.status("404 Not Found", "no").await;
        head
    };
    let (head, told) = tokio::join!(answered, updates.next());
    assert!(head.starts_with("get /pods?node=1 http/1.1\r\n"), "{head}");
    for line in [
        "x-token: one",
        "x-token: two",
        "authorization: basic bwu6c2vjcmv0",
    ] {
        assert!(head.contains(line), "{head}");
    }
    assert!(
        head.contains(&format!("host: 127.0.0.1:{}\r\n", server.port())),
        "{head}"
    );
    assert!(
        told.contains("404 Not Found") && !told.contains("secret"),
        "{told}"
    );
}

#[tokio::test]
async fn four_failures_are_reported_and_the_pods_stay() {
    let server = Server::new().await;
    let config = PodConfig::builder().source(server.source()).build().unwrap();
    let handle = config.handle();
    let (tx, mut merged) = mpsc::channel(50);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(config.run(tx, shutdown.clone()));
    server.serve(1, &pod("a")).await;
    assert_eq!(merged.recv().await.unwrap().pods.len(), 1);
    for status in ["500 Internal Server Error", "404 Not Found", "204 No Content"] {
        server.asked().await.status(status, &pod("b")).await;
    }
    server.serve(2, "").await;
    // The next request shows that what came before it was taken in.
    let asked = server.asked().await;
    let SourceStatus::Stale { message, .. } = handle.source_status("http") else {
        panic!()
    };
    assert!(
        message.contains("zero-length") && message.contains("debug"),
        "{message}"
    );
    asked.ok(&pod("a")).await;
    let asked = server.asked().await;
    assert_eq!(
        handle.source_status("http"),
        SourceStatus::Ready,
        "the same body is good news too"
    );
    asked.ok(&pod("c")).await;
    let ops: Vec<_> = [merged.recv().await.unwrap().op, merged.recv().await.unwrap().op].into();
    assert_eq!(format!("{ops:?}"), "[Remove, Add]", "nothing in between");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let large = "#".repeat(10 << 20);
    let cases: [(Vec<u8>, &[&str]); 7] = [
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nkind:".into(),
            &["end of file"],
        ),
        (b"no HTTP at all\r\n\r\n".into(), &["HTTP"]),
        (
            format!("HTTP/1.1 200 OK\r\n\r\n{large}").into_bytes(),
            &["too large"],
        ),
        (
            b"HTTP/1.1 200 OK\r\n\r\nkind: Service\napiVersion: v1".into(),
            &["Service"],
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n[1".into(), &["couldn't parse"]),
        (
            format!("HTTP/1.1 200 OK\r\n\r\n{}", list(&["good", "Bad_", "", "fine"])).into_bytes(),
            &["items[1]", "Bad_", "items[2]", "name is needed"],
        ),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://\r\n\r\n".into(),
            &["cannot follow", "http://"],
        ),
    ];
    for (answer, expected) in cases {
        let server = Server::new().await;
        let mut updates = Updates::of(server.source());
        let answered = async { server.asked().await.raw(&answer).await };
        let (told, ()) = tokio::join!(updates.next(), answered);
        assert!(told.starts_with("Unavailable(http://127.0.0.1:"), "{told}");
        for part in expected {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    // Nobody there.
    let server = Server::new().await;
    let mut updates = Updates::of(server.source());
    drop(server);
    assert!(updates.next().await.to_lowercase().contains("refused"));
    // Nobody answers.
    let server = Server::new().await;
    let mut updates = Updates::of(server.source().timeout(Duration::from_millis(20)));
    let (told, _held) = tokio::join!(updates.next(), server.asked());
    assert!(told.contains("within 20ms"), "{told}");
}

#[tokio::test]
async fn an_empty_body_at_first_means_no_pods() {
    let server = Server::new().await;
    let mut updates = Updates::of(server.source());
    let (first, ()) = tokio::join!(updates.next(), server.serve(1, ""));
    assert_eq!(first, "Snapshot()");
    assert!(updates.next().await.contains("zero-length"));
}

#[tokio::test]
async fn redirects_are_followed_without_secrets_to_another_host() {
    let server = Server::new().await;
    let headers = BTreeMap::from([
        ("Authorization".to_owned(), vec!["Bearer secret".to_owned()]),
        ("X-Mine".to_owned(), vec!["kept".to_owned()]),
    ]);
    let mut updates = Updates::of(server.source().headers(&headers).unwrap());
    let serving = async {
        server.asked().await.redirect("/there").await;
        let asked = server.asked().await;
        assert!(
            asked.head.starts_with("get /there ") && asked.head.contains("secret"),
            "{}",
            asked.head
        );
        asked
            .redirect(&format!("http://localhost:{}/elsewhere", server.port()))
            .await;
        let asked = server.asked().await;
        assert!(
            !asked.head.contains("secret") && asked.head.contains("x-mine: kept"),
            "{}",
            asked.head
        );
        asked.ok(&pod("a")).await;
        for _ in 0..10 {
            server.asked().await.redirect("/pods").await;
        }
    };
    let listening = async { (updates.next().await, updates.next().await) };
    let ((), told) = tokio::join!(serving, listening);
    assert_eq!(told.0, "Snapshot(a-node-1)");
    assert!(told.1.contains("stopped after 10"), "{}", told.1);
}

#[tokio::test]
async fn tls_is_checked() {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let mut server = Server::new().await;
    server.tls = Some(Arc::new(tls).into());
    let url = format!("https://localhost:{}/", server.port());

    let mut stranger = Updates::of(source(&url));
    let told = tokio::select! {
        told = stranger.next() => told,
        _ = server.asked() => panic!("the stranger was trusted"),
    };
    assert!(told.contains("certificate"), "{told}");

    let mut roots = rustls::RootCertStore::empty();
    roots.add(signed.cert.der().clone()).unwrap();
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut friend = Updates::of(source(&url).tls_config(trusting));
    let body = pod("a");
    let (told, ()) = tokio::join!(friend.next(), server.serve(1, &body));
    assert_eq!(told, "Snapshot(a-node-1)");
}

#[tokio::test]
async fn dropping_the_source_ends_its_connection() {
    let server = Server::new().await;
    let mut updates = Updates::of(server.source());
    let mut asked = tokio::select! {
        asked = server.asked() => asked,
        told = updates.next() => panic!("{told}"),
    };
    drop(updates);
    let end = timeout(GUARD, asked.stream.read_u8()).await.expect("an end");
    assert!(end.is_err());
}

#[test]
fn an_unusable_url_is_rejected_at_once() {
    for url in [
        "http://h",
        "https://me:secret@host/",
        "http://[::1]/",
        "http://me:secret@[::1]:80",
    ] {
        assert!(HttpSource::new(url, "n").is_ok(), "{url}");
    }
    for (url, why) in [
        ("ftp://host/", "not an http or https URL"),
        ("/pods", "not an http or https URL"),
        ("http://", "http://"),
        ("http://a b/", "http://a b/"),
        ("https://me:secret@host:x/", "\"x\" is not a port"),
    ] {
        let Err(Error::Misconfigured { problems }) = HttpSource::new(url, "n") else {
            panic!("{url}")
        };
        assert!(
            problems[0].contains(why) && !problems[0].contains("secret"),
            "{problems:?}"
        );
    }
}
