//! Pulls an image: permits, credentials, events and metrics (`pullImage`, `puller.go`, `helpers.go`).

use std::time::Duration;

use kubelet_core::runtime::SyncFailure;
use kubelet_core::{GoDuration, PodExt, PodUid};
use tokio::time::Instant;

use super::keyring::Credentials;
use super::{Request, failure};
use kubelet_cri::{Code, Error, v1};

impl Request<'_> {
    /// Pulls it, unless it is in back-off after a failed pull.
    pub(super) async fn pull(
        &self,
        spec: v1::ImageSpec,
        credentials: &[Credentials],
    ) -> Result<String, SyncFailure> {
        let uid = self.wanted.pod.uid();
        if let Err(waiting) = self.manager.back_off.check(&uid, self.image) {
            let message = format!("Back-off pulling image {:?}", self.image);
            self.note("BackOff", message.clone());
            return Err(SyncFailure {
                back_off_until: Some(waiting.until),
                ..failure("ImagePullBackOff", format!("{message}: {}", waiting.error))
            });
        }
        let pulling = self.manager.records.begin(self.image).await.map_err(|error| {
            let message = format!(
                "Failed to record image pull intent for container image {:?}: {error}",
                self.image
            );
            failure(&error, message)
        })?;

        if let Some(statuses) = &self.manager.statuses {
            statuses.record_image_started_pulling(&uid);
        }
        self.note("Pulling", format!("Pulling image {:?}", self.image));
        let asked = Instant::now();
        let turn = match &self.manager.turns {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let started = Instant::now();
        let (image_ref, used) = match self.pull_with_any(&spec, credentials).await {
            Ok(pulled) => pulled,
            Err(text) => {
                drop(turn);
                let failure = self.pull_failed(&uid, text);
                pulling.ended(None).await;
                return Err(failure);
            }
        };
        self.finished_pulling();
        // Only for the event, which shows the size 0 if this fails.
        let size = self.manager.status(&spec).await;
        let size = size.ok().flatten().map_or(0, |image| image.size);
        drop(turn);
        let waited = asked.elapsed();
        self.note(
            "Pulled",
            format!(
                "Successfully pulled image {:?} in {} ({} including waiting). Image size: {size} bytes.",
                self.image,
                to_millis(started.elapsed()),
                to_millis(waited)
            ),
        );
        metrics::histogram!("kubelet_image_pull_duration_seconds", "image_size_in_bytes" => size_bucket(size))
            .record(waited.as_secs_f64());
        self.manager.back_off.collect_garbage();
        pulling.ended(Some((&image_ref, used))).await;
        Ok(image_ref)
    }

    /// Tries the credentials one after the other until a pull succeeds; pulls without credentials if there are none.
    /// Returns the reference of the image, and the credentials of the pull.
    async fn pull_with_any<'c>(
        &self,
        spec: &v1::ImageSpec,
        credentials: &'c [Credentials],
    ) -> Result<(String, Option<&'c Credentials>), String> {
        if !self.manager.throttle.try_take() {
            return Err("pull QPS exceeded".to_owned());
        }
        if credentials.is_empty() {
            return Ok((self.pull_with(spec, None).await?, None));
        }
        let mut errors = Vec::new();
        for credentials in credentials {
            match self.pull_with(spec, Some(credentials)).await {
                Ok(image_ref) => return Ok((image_ref, Some(credentials))),
                Err(error) => errors.push(error),
            }
        }
        Err(aggregate(errors))
    }

    async fn pull_with(
        &self,
        spec: &v1::ImageSpec,
        credentials: Option<&Credentials>,
    ) -> Result<String, String> {
        let request = v1::PullImageRequest {
            image: Some(spec.clone()),
            auth: credentials.map(Credentials::auth_config),
            sandbox_config: Some(self.wanted.sandbox_config.clone()),
        };
        match self.manager.service.pull_image(request).await {
            Ok(response) if response.image_ref.is_empty() => {
                Err(format!("imageRef of image {:?} is not set", spec.image))
            }
            Ok(response) => Ok(response.image_ref),
            Err(error) => Err(pull_error_text(&error)),
        }
    }

    /// Some runtimes begin their message with an error name of CRI (`evalCRIPullErr`).
    fn pull_failed(&self, uid: &PodUid, text: String) -> SyncFailure {
        self.warn("Failed", format!("Failed to pull image {:?}: {text}", self.image));
        let words = [
            ("RegistryUnavailable", "the registry is unavailable"),
            ("SignatureValidationFailed", "the signature validation failed"),
        ];
        let said = words.iter().find_map(|(word, meaning)| {
            let rest = text.strip_prefix(word)?;
            let message = format!("image pull failed for {} because {meaning}{rest}", self.image);
            Some((*word, message))
        });
        let (reason, message) = said.unwrap_or(("ErrImagePull", text));
        let kept = format!("{reason}: {message}");
        self.manager.back_off.failed(uid, self.image, kept);
        failure(reason, message)
    }
}

/// Joins several errors, each once (`utilerrors.NewAggregate`).
pub(crate) fn aggregate(errors: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match &distinct[..] {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The code `Unknown` is omitted. Then the text begins with the runtime's message, in which the error name is searched.
fn pull_error_text(error: &Error) -> String {
    match error.code() {
        Code::Unknown => error.message(),
        _ => error.rpc_text(),
    }
}

/// Without fractions of a millisecond, for messages.
fn to_millis(duration: Duration) -> GoDuration {
    GoDuration::from_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// The label of `image_pull_duration_seconds` (`GetImageSizeBucket`).
fn size_bucket(bytes: u64) -> &'static str {
    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;
    let at_most = [
        (0, "N/A"),
        (10 * MB, "0-10MB"),
        (100 * MB, "10MB-100MB"),
        (500 * MB, "100MB-500MB"),
        (GB, "500MB-1GB"),
        (5 * GB, "1GB-5GB"),
        (10 * GB, "5GB-10GB"),
        (20 * GB, "10GB-20GB"),
        (30 * GB, "20GB-30GB"),
        (40 * GB, "30GB-40GB"),
        (60 * GB, "40GB-60GB"),
        (100 * GB, "60GB-100GB"),
    ];
    let bucket = at_most.iter().find(|(most, _)| bytes <= *most);
    bucket.map_or("GT100GB", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_together() {
        let of = |errors: &[&str]| aggregate(errors.iter().map(|error| (*error).to_owned()).collect());
        assert_eq!(of(&["a"]), "a");
        assert_eq!(of(&["a", "a"]), "a");
        assert_eq!(of(&["a", "b", "a"]), "[a, b]");
    }

    #[test]
    fn sizes_have_labels() {
        let cases = [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 << 20, "0-10MB"),
            ((10 << 20) + 1, "10MB-100MB"),
            (200 << 30, "GT100GB"),
        ];
        for (bytes, label) in cases {
            assert_eq!(size_bucket(bytes), label);
        }
    }
}
