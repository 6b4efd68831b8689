//! Life cycle hooks that are HTTP requests (`runHTTPHandler`).

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Pod};
use kubelet_core::{Event, EventType, PodExt, RuntimeReader};

use crate::probe::http::{HttpRequest, LIFECYCLE_USER_AGENT};
use crate::runtime::CriRuntime;

impl CriRuntime {
    /// Calls the hook. Any answer of the server counts as success. If the server answers HTTP to an HTTPS request, the
    /// hook is called again with HTTP.
    pub(crate) async fn http_hook(
        &self,
        pod: &Pod,
        container: &Container,
        action: &HTTPGetAction,
    ) -> Result<(), String> {
        let ip = match action.host.as_deref() {
            None | Some("") => self.first_ip(pod).await?,
            Some(_) => String::new(),
        };
        let request = HttpRequest::new(action, container, &ip, LIFECYCLE_USER_AGENT)?;
        let error = match self.http.get(&request, None).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !error.spoke_http || self.http.get(&request.downgraded(), None).await.is_err() {
            return Err(error.message);
        }
        metrics::counter!("kubelet_lifecycle_handler_http_fallbacks_total").increment(1);
        let message = format!(
            "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
            request.url.authority()
        );
        self.recorder.record(Event::about(
            pod,
            EventType::Warning,
            "LifecycleHTTPFallback",
            message,
        ));
        Ok(())
    }

    /// Reads the IP from the runtime, because the cached status of the pod may be older than its sandbox.
    async fn first_ip(&self, pod: &Pod) -> Result<String, String> {
        let running = self.pod(&pod.uid()).await;
        let running = running
            .map_err(|error| error.to_string())
            .and_then(|pod| pod.ok_or("pod not found".into()));
        let running =
            running.map_err(|error| format!("unable to get pod, event handlers may be invalid: {error}"))?;
        let status = self.read_pod_status(&running).await;
        let status = status
            .map_err(|error| format!("unable to get pod status, event handlers may be invalid: {error}"))?;
        let first = status.ips.first().map(ToString::to_string);
        first.ok_or_else(|| "failed to find networking container".to_owned())
    }
}
