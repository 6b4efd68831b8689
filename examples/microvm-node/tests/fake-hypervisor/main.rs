//! An engine without virtualization: the part of cloud-hypervisor's API that the example uses. A guest is a shell that runs the file
//! of its first disk, with the second one as `$CONFIG` and the third one as `$EXIT`. The power button is a SIGTERM.
//!
//! It writes each request into the file `requests` beside its socket.

mod guest;

use std::convert::Infallible;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use pico_args::Arguments;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::{Mutex, Notify};

use guest::Guest;

/// How long between two looks at the socket.
const LOOK: Duration = Duration::from_secs(5);

struct Vmm {
    requests: PathBuf,
    vm: Mutex<Vm>,
    shut_down: Notify,
}

#[derive(Default)]
struct Vm {
    config: Option<Value>,
    guest: Option<Guest>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = Arguments::from_env();
    let socket: PathBuf = arguments.value_from_str("--api-socket")?;
    if !arguments.contains("--no-shutdown") {
        return Err("this engine stays when a guest ends: --no-shutdown is missing".into());
    }
    if let [unknown, ..] = &arguments.finish()[..] {
        return Err(format!("unknown argument {unknown:?}").into());
    }
    // To see what the agent does with an engine that does not start.
    if let Ok(why) = std::fs::read_to_string(socket.with_file_name("../../broken")) {
        return Err(why.into());
    }
    let listener = UnixListener::bind(&socket)?;
    let requests = socket.with_file_name("requests");
    let vmm = Arc::new(Vmm { requests, vm: Mutex::default(), shut_down: Notify::new() });
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            () = vmm.shut_down.notified() => break,
            // A test that failed has removed its folder.
            () = tokio::time::sleep(LOOK) => match socket.exists() {
                true => continue,
                false => break,
            },
        };
        let vmm = vmm.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let vmm = vmm.clone();
                async move { Ok::<_, Infallible>(vmm.answer(request).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
    Ok(())
}

/// `Err` is what the API refuses.
type Answer = Result<Option<Value>, String>;

impl Vmm {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let action = format!("{} {}", parts.method, parts.uri.path().trim_start_matches("/api/v1/"));
        let answer = match self.note(&action, &body) {
            Ok(()) => self.act(&action, &body).await,
            Err(error) => Err(error.to_string()),
        };
        let (status, body) = match answer {
            Ok(None) => (StatusCode::NO_CONTENT, String::new()),
            Ok(Some(answer)) => (StatusCode::OK, answer.to_string()),
            Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, json!([why]).to_string()),
        };
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        response
    }

    async fn act(&self, action: &str, body: &[u8]) -> Answer {
        let mut vm = self.vm.lock().await;
        if vm.guest.as_ref().is_some_and(Guest::has_ended) {
            vm.guest = None;
        }
        match action {
            "GET vmm.ping" => return Ok(Some(json!({"version": "v52.0", "pid": std::process::id()}))),
            "PUT vmm.shutdown" => {
                end(&mut vm).await;
                self.shut_down.notify_one();
            }
            "PUT vm.create" if vm.config.is_some() => return Err("VM is already created".into()),
            "PUT vm.create" => {
                let config: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
                vm.config = Some(config);
            }
            "PUT vm.boot" if vm.guest.is_some() => return Err("VM is already running".into()),
            "PUT vm.boot" => {
                let config = vm.config.as_ref().ok_or("VM is not created")?;
                vm.guest =
                    Some(Guest::boot(config).await.map_err(|error| format!("VM boot failed: {error}"))?);
            }
            "GET vm.info" => {
                let config = vm.config.as_ref().ok_or("VM is not created")?;
                let state = if vm.guest.is_some() { "Running" } else { "Created" };
                return Ok(Some(json!({"config": config, "state": state, "memory_actual_size": 0})));
            }
            "GET vm.counters" => {
                vm.guest.as_ref().ok_or("VM is not running")?;
                return Ok(Some(json!({"_disk0": {"read_bytes": 4096}})));
            }
            "PUT vm.power-button" => vm.guest.as_ref().ok_or("VM is not running")?.press_power_button(),
            "PUT vm.shutdown" if vm.guest.is_none() => return Err("VM is not running".into()),
            "PUT vm.shutdown" => end(&mut vm).await,
            "PUT vm.delete" => {
                end(&mut vm).await;
                vm.config = None;
            }
            other => return Err(format!("no such action: {other}")),
        }
        Ok(None)
    }

    fn note(&self, action: &str, body: &[u8]) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.requests)?;
        file.write_all(format!("{action} {}\n", String::from_utf8_lossy(body)).as_bytes())
    }
}

async fn end(vm: &mut Vm) {
    if let Some(guest) = vm.guest.take() {
        guest.kill().await;
    }
}

/// A path of the config.
fn path<'a>(config: &'a Value, pointer: &str) -> std::io::Result<&'a Path> {
    let path = config.pointer(pointer).and_then(Value::as_str);
    path.map(Path::new).ok_or_else(|| std::io::Error::other(format!("{pointer} is missing")))
}
