//! A headless Chromium, driven by its DevTools protocol.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(120);

/// The headless Chromium of this machine. `None` if there is none; with `CI=true` that is a failure.
pub(crate) fn find_chromium() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium-headless-shell", "chromium"];
    let mut candidates = std::env::split_paths(&paths).flat_map(|dir| names.map(|name| dir.join(name)));
    let found = candidates.find(|path| path.is_file());
    if found.is_none() {
        let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!is_ci, "chromium-headless-shell is missing");
        use std::io::Write as _;
        // Not `eprintln!`: the test harness would capture it.
        drop(writeln!(
            std::io::stderr(),
            "SKIPPED: console: chromium-headless-shell is missing"
        ));
    }
    found
}

/// A page in a running browser. Drop kills the browser.
pub(crate) struct Page {
    _browser: Child,
    socket: WebSocketStream<TcpStream>,
    session: Option<String>,
    last: u64,
}

impl Page {
    /// Starts a browser and opens a page in it.
    pub(crate) async fn open(chromium: &Path, profile: &Path, url: &str) -> Self {
        let mut command = Command::new(chromium);
        // Within a container there is no other sandbox, and no graphics.
        command.args([
            "--headless",
            "--no-sandbox",
            "--no-zygote",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]);
        command
            .arg("--remote-debugging-port=0")
            .arg(format!("--user-data-dir={}", profile.display()));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut browser = command.spawn().unwrap();
        let mut lines = BufReader::new(browser.stderr.take().unwrap()).lines();
        let listens = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("chromium ended");
                if let Some(url) = line.strip_prefix("DevTools listening on ") {
                    return url.trim().to_owned();
                }
            }
        };
        let devtools = timeout(GUARD, listens).await.expect("chromium does not listen");
        let address = devtools.trim_start_matches("ws://").split('/').next().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(devtools.as_str(), stream)
            .await
            .unwrap();
        let mut page = Self {
            _browser: browser,
            socket,
            session: None,
            last: 0,
        };
        let target = page.call("Target.createTarget", json!({"url": url})).await;
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.call("Target.attachToTarget", target).await;
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        page
    }

    /// The result of a call, `Null` for an error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut request = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.socket
            .send(Message::text(request.to_string()))
            .await
            .unwrap();
        let answered = async {
            loop {
                let message = self.socket.next().await.expect("chromium ended").unwrap();
                let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap_or_default();
                if message["id"] == self.last {
                    return message["result"].clone();
                }
            }
        };
        timeout(GUARD, answered).await.expect("chromium does not answer")
    }

    /// The value of an expression.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        self.call("Runtime.evaluate", params).await["result"]["value"].clone()
    }

    /// Waits in the page until a condition holds.
    pub(crate) async fn until(&mut self, condition: &str) {
        let look = format!(
            "new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        let waiting = async {
            // While the page loads, its context may be replaced.
            while self.evaluate(&look).await != json!(true) {}
        };
        if timeout(GUARD, waiting).await.is_err() {
            panic!("not within {GUARD:?}: {condition}");
        }
    }

    /// Presses a key that types this text, or none.
    pub(crate) async fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", params).await;
        }
    }
}
