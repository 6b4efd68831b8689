//! Reads the credentials of a Docker configuration: `.dockercfg`, or `.docker/config.json`, which has the same content
//! in `auths`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

/// Go accepts base64 with trailing bits that are not zero.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Credentials by the location of the registry (`DockerConfig`).
pub(crate) type DockerConfig = BTreeMap<String, Login>;

/// `DockerConfigEntry`
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
    /// Only used in the hash of the credentials.
    pub(crate) email: String,
}

// Without the password.
kubelet_core::impl_debug!(Login: username, email);

/// Reads the content of `.docker/config.json`, or of a secret's `.dockerconfigjson`.
pub(super) fn parse_config_json(json: &[u8]) -> Result<DockerConfig, String> {
    let config = object(parse(json)?)?;
    match field(&config, "auths") {
        None => Ok(DockerConfig::new()),
        Some(auths) => logins(auths),
    }
}

/// Reads the content of `.dockercfg`.
pub(super) fn parse_dockercfg(json: &[u8]) -> Result<DockerConfig, String> {
    logins(&parse(json)?)
}

/// An error must not show the text, which has secrets.
fn parse(json: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("invalid JSON in the Docker configuration at line {line} column {column}")
    })
}

fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(object) => Ok(object),
        Value::Null => Ok(Map::new()),
        _ => Err("the Docker configuration is not an object".to_owned()),
    }
}

fn logins(value: &Value) -> Result<DockerConfig, String> {
    let entries = object(value.clone())?;
    let logins = entries.into_iter().map(|(location, entry)| {
        let login = login(entry).map_err(|problem| format!("{location}: {problem}"))?;
        Ok((location, login))
    });
    logins.collect()
}

fn login(entry: Value) -> Result<Login, String> {
    let entry = object(entry)?;
    let text = |name: &str| match field(&entry, name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{name} is not a string")),
    };
    let mut login = Login {
        username: text("username")?,
        password: text("password")?,
        email: text("email")?,
    };
    let auth = text("auth")?;
    if !auth.is_empty() {
        (login.username, login.password) = decode_auth(&auth)?;
    }
    Ok(login)
}

/// Go matches field names case-insensitively.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        let mut fields = object.iter();
        fields
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    })
}

/// `decodeDockerConfigFieldAuth`
fn decode_auth(auth: &str) -> Result<(String, String), String> {
    let auth: Vec<u8> = auth.bytes().filter(|byte| !b"\r\n".contains(byte)).collect();
    let decoded = BASE64
        .decode(auth)
        .map_err(|_| "the auth field is not base64".to_owned())?;
    let decoded = String::from_utf8_lossy(&decoded);
    match decoded.split_once(':') {
        Some((username, password)) => Ok((username.to_owned(), password.to_owned())),
        None => Err("unable to parse auth field, must be formatted as base64(username:password)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login_of(username: &str, password: &str, email: &str) -> Login {
        Login {
            username: username.into(),
            password: password.into(),
            email: email.into(),
        }
    }

    #[test]
    fn both_forms_are_read() {
        let dockercfg =
            br#"{"https://r.io": {"username": "u", "password": "p", "email": "e"}, "q.io": null}"#;
        let config = parse_dockercfg(dockercfg).unwrap();
        assert_eq!(config["https://r.io"], login_of("u", "p", "e"));
        assert_eq!(config["q.io"], Login::default());

        // base64 of `user:pa:ss`, with and without padding, and with field names in another case, which Go accepts.
        for auth in ["dXNlcjpwYTpzcw==", "dXNlcjpwYTpzcw", "dXNlcjpw\\nYTpzcw==\\n"] {
            let json = format!(r#"{{"Auths": {{"r.io": {{"Auth": "{auth}", "username": "not this"}}}}}}"#);
            let config = parse_config_json(json.as_bytes()).unwrap();
            assert_eq!(config["r.io"], login_of("user", "pa:ss", ""), "{auth}");
        }
        assert!(parse_config_json(b"{}").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_without_what_is_secret() {
        let cases = [
            ("{", "invalid JSON in the Docker configuration at line 1 column 1"),
            ("[]", "the Docker configuration is not an object"),
            (
                r#"{"auths": {"r.io": {"auth": "c2VjcmV0"}}}"#,
                "r.io: unable to parse auth field, must be formatted as base64(username:password)",
            ),
            (
                r#"{"auths": {"r.io": {"auth": "secret!"}}}"#,
                "r.io: the auth field is not base64",
            ),
            (
                r#"{"auths": {"r.io": {"password": 1}}}"#,
                "r.io: password is not a string",
            ),
        ];
        for (json, problem) in cases {
            assert_eq!(
                parse_config_json(json.as_bytes()),
                Err(problem.to_owned()),
                "{json}"
            );
        }
    }
}
