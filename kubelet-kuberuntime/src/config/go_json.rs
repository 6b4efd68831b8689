//! JSON as Go's `encoding/json` writes it, because the JSON in annotations and hashes must have the kubelet's bytes.
//!
//! Go writes fields in the order of its types, omits empty fields, and escapes `<`, `>`, `&` and two line separators.
//! `k8s-openapi` and `serde_json` have another order and other escapes.

use k8s_openapi::api::core::v1::{
    ContainerPort, ExecAction, HTTPGetAction, HTTPHeader, LifecycleHandler, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

/// A string.
pub(crate) fn string(text: &str) -> String {
    escape_html(&Value::from(text).to_string())
}

/// `v1.LifecycleHandler`
pub(crate) fn lifecycle_handler(handler: &LifecycleHandler) -> String {
    let LifecycleHandler {
        exec,
        http_get,
        sleep,
        tcp_socket,
    } = handler;
    Object::new()
        .field("exec", exec.as_ref().map(exec_action))
        .field("httpGet", http_get.as_ref().map(http_get_action))
        .field("tcpSocket", tcp_socket.as_ref().map(tcp_socket_action))
        .field("sleep", sleep.as_ref().map(sleep_action))
        .end()
}

/// `[]v1.ContainerPort`
pub(crate) fn container_ports(ports: &[ContainerPort]) -> String {
    array(ports.iter().map(|port| {
        Object::new()
            .field("name", text(port.name.as_deref()))
            .field("hostPort", port.host_port.filter(|port| *port != 0))
            .field("containerPort", Some(port.container_port))
            .field("protocol", text(port.protocol.as_deref()))
            .field("hostIP", text(port.host_ip.as_deref()))
            .end()
    }))
}

fn exec_action(action: &ExecAction) -> String {
    let command = action.command.as_deref().filter(|command| !command.is_empty());
    Object::new()
        .field(
            "command",
            command.map(|args| array(args.iter().map(|arg| string(arg)))),
        )
        .end()
}

fn http_get_action(action: &HTTPGetAction) -> String {
    let headers = action
        .http_headers
        .as_deref()
        .filter(|headers| !headers.is_empty());
    Object::new()
        .field("path", text(action.path.as_deref()))
        .field("port", Some(int_or_string(&action.port)))
        .field("host", text(action.host.as_deref()))
        .field("scheme", text(action.scheme.as_deref()))
        .field(
            "httpHeaders",
            headers.map(|headers| array(headers.iter().map(http_header))),
        )
        .end()
}

fn http_header(header: &HTTPHeader) -> String {
    Object::new()
        .field("name", Some(string(&header.name)))
        .field("value", Some(string(&header.value)))
        .end()
}

fn tcp_socket_action(action: &TCPSocketAction) -> String {
    Object::new()
        .field("port", Some(int_or_string(&action.port)))
        .field("host", text(action.host.as_deref()))
        .end()
}

fn sleep_action(action: &SleepAction) -> String {
    Object::new().field("seconds", Some(action.seconds)).end()
}

fn int_or_string(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => json!(number).to_string(),
        IntOrString::String(name) => string(name),
    }
}

/// A string that Go omits if it is empty.
fn text(value: Option<&str>) -> Option<String> {
    value.filter(|value| !value.is_empty()).map(string)
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// An object whose fields are written in the given order.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self(String::from("{"))
    }

    /// `value` is already JSON; `None` omits the field.
    fn field(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            if self.0.len() > 1 {
                self.0.push(',');
            }
            self.0.push_str(&format!("\"{name}\":{}", value.to_string()));
        }
        self
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// These characters occur only inside of strings, so all of them may be replaced.
fn escape_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_as_go_does() {
        assert_eq!(string("a<b>&\"\u{2028}"), r#""a\u003cb\u003e\u0026\"\u2028""#);
        let handler = LifecycleHandler {
            http_get: Some(HTTPGetAction {
                host: Some("h".into()),
                http_headers: Some(vec![HTTPHeader {
                    name: "A".into(),
                    value: String::new(),
                }]),
                path: Some("/".into()),
                port: IntOrString::Int(80),
                scheme: Some("HTTP".into()),
            }),
            ..Default::default()
        };
        assert_eq!(
            lifecycle_handler(&handler),
            r#"{"httpGet":{"path":"/","port":80,"host":"h","scheme":"HTTP","httpHeaders":[{"name":"A","value":""}]}}"#
        );
        let ports = [ContainerPort {
            container_port: 80,
            host_port: Some(0),
            protocol: Some("TCP".into()),
            ..Default::default()
        }];
        assert_eq!(
            container_ports(&ports),
            r#"[{"containerPort":80,"protocol":"TCP"}]"#
        );
    }
}
