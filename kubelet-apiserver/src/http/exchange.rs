//! [`Exchange`]: a request and its response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT, WARNING};
use http::{Method, Response};
use serde_json::Value;

use super::answer::{ApiBody, json, refusal, stream, whole};
use super::media::{self, Accepted};
use super::parameters::Parameters;
use super::shape::Presenter;
use super::target::{ObjectPath, Target};
use super::watch::Watch;
use super::{discovery, openapi};
use crate::authorize;
use crate::call::{ApiCall, Verb};
#[cfg(feature = "tls")]
use crate::metrics::is_metrics;
#[cfg(feature = "tls")]
use crate::nodes::{self, NodeRequest};
use crate::objects::FieldValidation;
use crate::patch::PatchType;
use crate::request::{Attributes, User};
use crate::reviews::is_review;
use crate::server::Shared;
use crate::status_error::StatusError;
#[cfg(feature = "tls")]
use crate::store::Listed;
use crate::store::{Ending, FieldSelector, ListOptions, line, parse_revision};
use crate::tokens::ISSUER;
use crate::write::{Written, name_of, required_field_manager};

/// The shortest duration of a watch without a timeout (`--min-request-timeout`); the duration is up to twice as long.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1800);

/// The prefix of a token in a path.
pub(crate) const TOKEN_PATH: &str = "/token/";

/// One request whose head is parsed.
pub(super) struct Exchange {
    shared: Arc<Shared>,
    user: User,
    method: Method,
    #[cfg(feature = "tls")]
    uri: http::Uri,
    pub(super) target: Target,
    parameters: Parameters,
    headers: HeaderMap,
    accepted: Accepted,
    /// A fault: the watch gets `410 Gone`.
    pub(super) gone: bool,
    /// A fault: how the watch ends.
    pub(super) ends: Option<(Ending, Duration)>,
}

impl Exchange {
    /// Parses the head of a request: its user, its target, and the media type of the response.
    pub(super) fn new(
        shared: Arc<Shared>,
        user: Option<User>,
        head: &http::request::Parts,
    ) -> Result<Exchange, StatusError> {
        let parameters = Parameters::of(head.uri.query());
        let (token, path) = token_in(head.uri.path());
        let user = match (user, token) {
            (Some(user), _) => user,
            (None, Some(token)) => owner(&shared, token).ok_or_else(unauthorized)?,
            (None, None) => bearer(&shared, &head.headers)?,
        };
        let target = Target::of(shared.served(), path);
        // These documents choose their media type themselves.
        let accepted = match target {
            Target::OpenApiV2 | Target::Health => Ok(media::PLAIN),
            // Nodes choose it.
            Target::Objects(ref path) if discovery::is_forwarded(path.subresource) => Ok(media::PLAIN),
            _ => Accepted::of(&head.headers),
        };
        Ok(Exchange {
            user,
            method: head.method.clone(),
            #[cfg(feature = "tls")]
            uri: head.uri.clone(),
            target,
            parameters,
            headers: head.headers.clone(),
            accepted: accepted?,
            gone: false,
            ends: None,
            shared,
        })
    }

    /// The answer, once all that it shows is in the storage: a crash takes back nothing that a client saw, be it an object, its
    /// absence, or the start of a watch.
    pub(super) async fn answer_written(&self, body: Bytes) -> Result<Response<ApiBody>, StatusError> {
        let answer = self.answer(body);
        self.shared.until_written().await?;
        answer
    }

    pub(super) fn answer(&self, body: Bytes) -> Result<Response<ApiBody>, StatusError> {
        if let Target::Objects(path) = &self.target {
            return self.objects(path, body);
        }
        if self.method != Method::GET && self.method != Method::HEAD {
            return Err(match self.target {
                Target::Nothing | Target::UnknownResource => no_such_resource(),
                _ => no_such_method(),
            });
        }
        let served = self.shared.served();
        let document = match &self.target {
            Target::Version => discovery::version(),
            Target::Health => return Ok(whole(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok"))),
            Target::CoreVersions if self.accepted.aggregated => return Ok(self.aggregated(true)),
            Target::Groups if self.accepted.aggregated => return Ok(self.aggregated(false)),
            Target::CoreVersions => discovery::core_versions(),
            Target::Groups => discovery::groups(served),
            Target::Group(group) => discovery::group(served, group),
            Target::Resources { group, version } => discovery::resources(served, group, version),
            Target::OpenApiV2 if self.accepts(openapi::V2_PROTOBUF_ASKED) => {
                return Ok(whole(200, openapi::V2_PROTOBUF, openapi::v2_protobuf()));
            }
            Target::OpenApiV2 => openapi::v2(),
            Target::OpenApiV3Index => openapi::v3_index(served),
            Target::OpenApiV3(path) => openapi::v3(served, path).ok_or_else(no_such_resource)?,
            Target::UnknownResource | Target::Nothing | Target::Objects(_) => return Err(no_such_resource()),
        };
        Ok(self.json(200, &document))
    }

    fn objects(&self, path: &ObjectPath, body: Bytes) -> Result<Response<ApiBody>, StatusError> {
        let attributes = self.attributes(path);
        authorize::authorize(&by_selected_name(&attributes), &self.shared.grants, &*self.shared)?;
        if !is_allowed(path, &attributes, &self.method) {
            return Err(no_such_method());
        }
        let validation = self.parameters.field_validation()?;
        let content_type = media::content_type(&self.headers);
        match attributes.verb {
            "get" => self.get(&attributes),
            "list" => self.list(&attributes),
            "watch" => self.watch(&attributes),
            "create" => {
                let body = media::json_body(content_type, body)?;
                let written = if is_review(attributes.resource) {
                    self.shared.review(&attributes, &body, validation)
                } else if attributes.subresource.is_empty() {
                    self.shared.create(&attributes, &body, validation)
                } else {
                    self.shared.post_subresource(&attributes, &body, validation)
                };
                Ok(self.written(&attributes, written?))
            }
            "update" => {
                let body = media::json_body(content_type, body)?;
                let written = self.shared.update(&attributes, &body, validation)?;
                Ok(self.written(&attributes, written))
            }
            "patch" => self.patch(&attributes, content_type, &body, validation),
            "delete" => {
                let options = self.parameters.delete_options(content_type, body)?;
                let written = self.shared.delete(&attributes, &options)?;
                Ok(self.written(&attributes, written))
            }
            _ => {
                let options = self.parameters.delete_options(content_type, body)?;
                let selection = self.parameters.selection(&attributes)?;
                let listed = self.shared.delete_collection(&attributes, &selection, &options)?;
                Ok(self.json(200, &self.presenter(&attributes).list(&listed)))
            }
        }
    }

    /// Whether a node answers this request.
    #[cfg(feature = "tls")]
    pub(super) fn is_for_node(&self) -> bool {
        matches!(&self.target, Target::Objects(path) if discovery::is_forwarded(path.subresource))
    }

    /// Forwards the request to a node.
    #[cfg(feature = "tls")]
    pub(super) async fn forward(
        &self,
        body: ApiBody,
        upgrade: Option<(hyper::upgrade::OnUpgrade, crate::listener::Streams)>,
    ) -> Result<Response<ApiBody>, StatusError> {
        let Target::Objects(path) = &self.target else {
            return Err(no_such_resource());
        };
        let mut attributes = self.attributes(path);
        authorize::authorize(&attributes, &self.shared.grants, &*self.shared)?;
        if !is_allowed(path, &attributes, &self.method) {
            return Err(no_such_method());
        }
        // A stream needs the permission to create, also when it starts with GET.
        if discovery::is_stream(path.subresource) && attributes.verb != "create" {
            attributes.verb = "create";
            authorize::authorize(&attributes, &self.shared.grants, &*self.shared)?;
        }
        let request = NodeRequest {
            shared: &self.shared,
            attributes: &attributes,
            method: &self.method,
            uri: &self.uri,
            tail: &path.tail,
            headers: &self.headers,
            body,
            upgrade,
        };
        nodes::forward(request).await
    }

    /// Whether the usage of nodes answers this request.
    #[cfg(feature = "tls")]
    pub(super) fn is_for_metrics(&self) -> bool {
        matches!(&self.target, Target::Objects(path) if is_metrics(path.resource))
    }

    /// The usage of nodes or pods.
    #[cfg(feature = "tls")]
    pub(super) async fn metrics(&self) -> Result<Response<ApiBody>, StatusError> {
        let Target::Objects(path) = &self.target else {
            return Err(no_such_resource());
        };
        let attributes = self.attributes(path);
        authorize::authorize(&by_selected_name(&attributes), &self.shared.grants, &*self.shared)?;
        let resource = attributes.resource;
        match attributes.verb {
            "get" => {
                let (namespace, name) = (&attributes.namespace, &attributes.name);
                let metrics = self.shared.metrics_of(resource, namespace, name).await?;
                Ok(self.json(200, &self.presenter(&attributes).object(&metrics)))
            }
            "list" => {
                let selection = self.parameters.selection(&attributes)?;
                let listed = Listed {
                    items: self.shared.metrics_list(resource, &selection).await,
                    revision: 0,
                    token: String::new(),
                    remaining: None,
                };
                let mut list = self.presenter(&attributes).list(&listed);
                // What is not stored has no revision.
                list["metadata"] = serde_json::json!({});
                Ok(self.json(200, &list))
            }
            _ => Err(no_such_method()),
        }
    }

    fn get(&self, attributes: &Attributes) -> Result<Response<ApiBody>, StatusError> {
        let asked = parse_revision(self.parameters.get("resourceVersion"))?;
        self.shared.with_store(|store| store.reaches(asked))?;
        let object = self
            .shared
            .lookup(attributes.resource, &attributes.namespace, &attributes.name)
            .ok_or_else(|| StatusError::not_found(attributes.resource, &attributes.name))?;
        Ok(self.json(200, &self.presenter(attributes).object(&object)))
    }

    fn list(&self, attributes: &Attributes) -> Result<Response<ApiBody>, StatusError> {
        let options = self.parameters.list_options()?;
        options.validate()?;
        let selection = self.parameters.selection(attributes)?;
        let listed = self.shared.list(attributes.resource, &selection, &options)?;
        Ok(self.json(200, &self.presenter(attributes).list(&listed)))
    }

    fn watch(&self, attributes: &Attributes) -> Result<Response<ApiBody>, StatusError> {
        let options = ListOptions {
            watch: true,
            ..self.parameters.list_options()?
        };
        options.validate()?;
        let selection = self.parameters.selection(attributes)?;
        let content_type = self.accepted.content_type();
        let resource = attributes.resource;
        let subscribed = if self.gone {
            let message = format!(
                "too old resource version: {} ({})",
                options.resource_version,
                self.shared.revision()
            );
            Err(StatusError::new(410, "Expired", message))
        } else {
            self.shared
                .with_store(|store| store.watch(resource, selection, &options))
        };
        let subscription = match subscribed {
            Ok(subscription) => subscription,
            // It is too late for an HTTP status, so the watch sends an error event.
            Err(error) if error.code == 410 => {
                let event = line("ERROR", &error.to_value());
                return Ok(whole(200, content_type, event));
            }
            Err(error) => return Err(error),
        };
        let timeout = match options.timeout_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => MIN_REQUEST_TIMEOUT.mul_f64(1.0 + self.shared.fork_rng().f64()),
        };
        let bookmarks = options.allow_watch_bookmarks;
        let presenter = self.presenter(attributes);
        let watch = Watch::new(
            self.shared.clone(),
            subscription.events,
            presenter,
            timeout,
            bookmarks,
            self.ends,
        );
        Ok(stream(content_type, watch.into_stream()))
    }

    fn patch(
        &self,
        attributes: &Attributes,
        content_type: &str,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Response<ApiBody>, StatusError> {
        let kind = PatchType::from_content_type(content_type).ok_or_else(|| {
            StatusError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with_details(serde_json::json!({}))
        })?;
        let patch = if kind == PatchType::Apply {
            required_field_manager(self.parameters.get("fieldManager"))?;
            media::yaml(body)?
        } else {
            serde_json::from_slice(body)
                .map_err(|e| StatusError::bad_request(format!("error decoding patch: {e}")))?
        };
        let force = self.parameters.is_true("force");
        let written = self.shared.patch(attributes, kind, &patch, force, validation)?;
        Ok(self.written(attributes, written))
    }

    fn attributes(&self, path: &ObjectPath) -> Attributes {
        // Authorizers see a namespace as being in itself.
        let namespace = if path.resource.plural == "namespaces" {
            String::new()
        } else {
            path.namespace.clone()
        };
        Attributes {
            user: self.user.clone(),
            verb: self.verb(path).map_or("", Verb::as_str),
            resource: path.resource,
            subresource: path.subresource,
            namespace,
            name: path.name.clone(),
            field_selector: self.parameters.get("fieldSelector").to_owned(),
            field_manager: self.field_manager(),
            dry_run: self.parameters.get("dryRun") == "All",
            now: self.shared.now(),
        }
    }

    /// The verb of the request; `None` for a method that no resource has.
    fn verb(&self, path: &ObjectPath) -> Option<Verb> {
        let collection = path.name.is_empty();
        Some(match self.method.as_str() {
            "GET" | "HEAD" if path.subresource.is_empty() && self.parameters.is_true("watch") => Verb::Watch,
            "GET" | "HEAD" if collection => Verb::List,
            "GET" | "HEAD" => Verb::Get,
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" => Verb::Patch,
            "DELETE" if collection => Verb::DeleteCollection,
            "DELETE" => Verb::Delete,
            _ => return None,
        })
    }

    /// The request as the record and the faults see it.
    pub(super) fn about(&self, path: &ObjectPath, body: &[u8]) -> ApiCall {
        let verb = self.verb(path).unwrap_or(Verb::Get);
        let resource = match path.subresource {
            "" => path.resource.plural.to_owned(),
            subresource => format!("{}/{subresource}", path.resource.plural),
        };
        let name = if verb == Verb::Create && path.name.is_empty() {
            name_in(body)
        } else {
            path.name.clone()
        };
        ApiCall {
            user: self.user.name.clone(),
            verb,
            resource,
            namespace: path.namespace.clone(),
            name,
            field_selector: self.parameters.get("fieldSelector").to_owned(),
            at: self.shared.now(),
            status: None,
        }
    }

    fn field_manager(&self) -> String {
        let given = self.parameters.get("fieldManager");
        if !given.is_empty() {
            return given.to_owned();
        }
        let agent = self.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        match agent.unwrap_or_default().split('/').next() {
            None | Some("") => "unknown".to_owned(),
            Some(agent) => agent.chars().take(128).collect(),
        }
    }

    fn presenter(&self, attributes: &Attributes) -> Presenter {
        Presenter {
            resource: attributes.resource,
            shape: self.accepted.shape,
            include_object: self.parameters.get("includeObject").to_owned(),
            now: attributes.now,
        }
    }

    fn written(&self, attributes: &Attributes, written: Written) -> Response<ApiBody> {
        let object = if written.object["kind"] == "Status" || !attributes.subresource.is_empty() {
            written.object
        } else {
            self.presenter(attributes).object(&written.object)
        };
        let mut response = self.json(written.code, &object);
        for warning in &written.warnings {
            let warning = format!("299 - {warning:?}");
            if let Ok(value) = HeaderValue::from_str(&warning) {
                response.headers_mut().append(WARNING, value);
            }
        }
        response
    }

    fn aggregated(&self, core: bool) -> Response<ApiBody> {
        let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        json(
            200,
            content_type,
            &discovery::aggregated(self.shared.served(), core),
            self.is_pretty(),
        )
    }

    fn json(&self, code: u16, body: &Value) -> Response<ApiBody> {
        json(code, self.accepted.content_type(), body, self.is_pretty())
    }

    pub(super) fn refuse(&self, error: &StatusError) -> Response<ApiBody> {
        refusal(error, self.accepted.content_type(), self.is_pretty())
    }

    fn is_pretty(&self) -> bool {
        self.parameters.is_true("pretty")
    }

    fn accepts(&self, media_type: &str) -> bool {
        let accepts = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(media_type));
        self.headers.get_all(ACCEPT).iter().any(accepts)
    }
}

/// Whether the path supports the method.
fn is_allowed(path: &ObjectPath, attributes: &Attributes, method: &Method) -> bool {
    let (collection, verb) = (path.name.is_empty(), attributes.verb);
    let everywhere = path.resource.namespaced && path.namespace.is_empty();
    if !path.subresource.is_empty() {
        return discovery::subresource_of(path.resource, path.subresource)
            .verbs
            .contains(&verb);
    }
    if is_review(path.resource) {
        return verb == "create" && collection;
    }
    match verb {
        "get" | "list" | "watch" => true,
        "create" => collection && !everywhere,
        "deletecollection" => !everywhere && path.resource.plural != "namespaces",
        "update" | "patch" | "delete" => !collection,
        _ => *method == Method::HEAD,
    }
}

/// The user of a request's token.
fn bearer(shared: &Shared, headers: &HeaderMap) -> Result<User, StatusError> {
    let Some(credentials) = headers.get(AUTHORIZATION) else {
        return Ok(User {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
        });
    };
    credentials
        .to_str()
        .ok()
        .and_then(|value| value.strip_prefix("Bearer "))
        .and_then(|token| owner(shared, token.trim()))
        .ok_or_else(unauthorized)
}

/// The user of a token for this server.
fn owner(shared: &Shared, token: &str) -> Option<User> {
    let identity = shared.authenticate(token, &[ISSUER]).ok()?;
    Some(identity.user)
}

/// The token at the start of a path. Our kubeconfigs put it there because kubectl sends no credentials over plain
/// HTTP.
fn token_in(path: &str) -> (Option<&str>, &str) {
    let Some(rest) = path.strip_prefix(TOKEN_PATH) else {
        return (None, path);
    };
    let (token, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (Some(token), rest)
}

/// The name for authorizers: a list or watch that selects one object has that object's name.
fn by_selected_name(attributes: &Attributes) -> Cow<'_, Attributes> {
    let selects = matches!(attributes.verb, "list" | "watch") && attributes.name.is_empty();
    // An invalid selector is rejected later.
    let fields = FieldSelector::parse(attributes.resource, &attributes.field_selector).unwrap_or_default();
    match fields.required("metadata.name").filter(|_| selects) {
        None => Cow::Borrowed(attributes),
        Some(name) => Cow::Owned(Attributes {
            name: name.to_owned(),
            ..attributes.clone()
        }),
    }
}

pub(super) fn unauthorized() -> StatusError {
    StatusError::new(401, "Unauthorized", "Unauthorized")
}

/// The name of the object in a body; empty if there is none.
fn name_in(body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    name_of(&object).to_owned()
}

fn no_such_resource() -> StatusError {
    StatusError::new(
        404,
        "NotFound",
        "the server could not find the requested resource",
    )
    .with_details(serde_json::json!({}))
}

fn no_such_method() -> StatusError {
    StatusError::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
    .with_details(serde_json::json!({}))
}
