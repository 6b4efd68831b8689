//! Runs a plugin, with the request on its standard input and the answer on its standard output (`execPlugin`).

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::GoDuration;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::CredentialProvider;
use super::service_account::Identity;

/// How long a plugin may take; the kubelet has no setting for it.
const PLUGIN_DEADLINE: Duration = Duration::from_secs(60);

/// The answer of a plugin (`CredentialProviderResponse`).
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Answer {
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(rename = "apiVersion")]
    _api_version: String,
    /// `Image`, `Registry` or `Global`: the cache key of the credentials.
    #[serde(default)]
    pub(super) cache_key_type: String,
    /// `None`: the duration in the plugin's settings.
    #[serde(default, deserialize_with = "duration")]
    pub(super) cache_duration: Option<Duration>,
    /// Credentials by image pattern.
    #[serde(default)]
    pub(super) auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Clone, Deserialize)]
enum Kind {
    CredentialProviderResponse,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Auth {
    #[serde(default)]
    pub(super) username: String,
    #[serde(default)]
    pub(super) password: String,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let duration = Option::<GoDuration>::deserialize(deserializer)?;
    // What is cached for less than no time is over at once.
    Ok(duration.map(|duration| Duration::try_from(duration).unwrap_or_default()))
}

/// What a plugin is asked (`CredentialProviderRequest`).
#[derive(Clone)]
pub(super) struct Question {
    /// The full name of the image, without tag and digest.
    pub(super) image: String,
    /// The service account of the pod. `None`: the plugin gets no token.
    pub(super) account: Option<Arc<Identity>>,
}

/// Calls the plugin for an image. An error contains nothing of its standard output, which may have secrets.
pub(super) async fn ask(provider: &CredentialProvider, question: &Question) -> Result<Answer, String> {
    let (name, image) = (&provider.name, &question.image);
    let mut request = json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": provider.api_version,
        "image": image,
    });
    if let Some(account) = &question.account {
        request["serviceAccountToken"] = account.token.as_str().into();
        if !account.annotations.is_empty() {
            request["serviceAccountAnnotations"] = json!(account.annotations);
        }
    }
    let began = Instant::now();
    let ran = timeout(PLUGIN_DEADLINE, run(provider, &request)).await;
    let took = began.elapsed().as_secs_f64();
    metrics::histogram!("kubelet_credential_provider_plugin_duration", "plugin_name" => name.clone())
        .record(took);
    let failed = |why: String| {
        metrics::counter!("kubelet_credential_provider_plugin_errors_total", "plugin_name" => name.clone())
            .increment(1);
        format!("error execing credential provider plugin {name} for image {image}: {why}")
    };
    let output = match ran {
        Err(_) => return Err(failed("context deadline exceeded".to_owned())),
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {said}", output.status)));
    }
    decode(&output.stdout, &provider.api_version)
}

async fn run(provider: &CredentialProvider, request: &Value) -> io::Result<std::process::Output> {
    let mut child = Command::new(&provider.program)
        .args(&provider.args)
        .envs(&provider.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    let request = format!("{request}\n");
    let write = async {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read its request may still answer.
            let _ = stdin.write_all(request.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    output
}

fn decode(stdout: &[u8], api_version: &str) -> Result<Answer, String> {
    let json: Value = serde_json::from_slice(stdout)
        .map_err(|_| "error reading GVK from response: it is not JSON".to_owned())?;
    let actual = json["apiVersion"].as_str().unwrap_or_default();
    if actual != api_version {
        return Err(format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{api_version}, actual \
             apiVersion:{actual}"
        ));
    }
    // An error of serde may quote the invalid text, which may be a secret.
    serde_json::from_value(json)
        .map_err(|_| "error decoding credential provider plugin response from stdout".to_owned())
}
