use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ServiceAccount;
use kubelet_core::{NoServiceAccounts, PodExt};
use parking_lot::Mutex;

use super::service_account::ServiceAccountTokenCacheType::{ServiceAccount as OfAccount, Token};
use super::*;
use crate::counted::Counted;

/// A plugin in shell. It writes its requests to the file `requests`.
struct Program {
    dir: tempfile::TempDir,
}

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

impl Program {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let requests = dir.path().join("requests");
        let text = format!(
            "#!/bin/sh\nread request\necho \"$request\" >> {}\n{script}\n",
            requests.display()
        );
        // Written elsewhere first: a file that is open for writing cannot be executed, and a process that is being
        // forked may still hold it open.
        let (draft, path) = (dir.path().join("draft"), dir.path().join("plugin"));
        std::fs::write(&draft, text).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
        let copied = std::process::Command::new("cp")
            .arg("-p")
            .args([&draft, &path])
            .status();
        assert!(copied.unwrap().success());
        Self { dir }
    }

    /// It answers with this, plus version and kind.
    fn answering(fields: &str) -> Self {
        let answer = format!(r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}",{fields}}}"#);
        Self::new(&format!("cat <<'END'\n{answer}\nEND"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("plugin")
    }

    fn provider(&self) -> CredentialProvider {
        CredentialProvider::new("test", self.path(), vec!["r.io".into(), "*.q.io/team".into()])
    }

    fn requests(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("requests")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

async fn user(plugin: &Plugin, image: &str) -> Option<String> {
    let provided = plugin.provide(image, &Pod::default(), &NoServiceAccounts).await;
    assert_eq!(provided.account, None);
    provided.config.into_values().next().map(|login| login.username)
}

/// The service account `ns/builder`, with a token for each pod. Keeps the audiences that were asked for.
#[derive(Default)]
struct Accounts {
    annotations: BTreeMap<String, String>,
    uid: Mutex<String>,
    audiences: Mutex<Vec<String>>,
}

impl Accounts {
    fn annotated(annotations: &[(&str, &str)]) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            annotations: annotations.iter().map(owned).collect(),
            ..Self::default()
        }
    }
}

#[async_trait]
impl ServiceAccounts for Accounts {
    async fn account(&self, pod: &Pod) -> kubelet_core::Result<ServiceAccount> {
        let name = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.as_deref());
        if name != Some("builder") {
            return NoServiceAccounts.account(pod).await;
        }
        let mut account = ServiceAccount::default();
        account.metadata.namespace = Some("ns".into());
        account.metadata.name = Some("builder".into());
        account.metadata.uid = Some(self.uid.lock().clone());
        account.metadata.annotations = Some(self.annotations.clone());
        Ok(account)
    }

    async fn account_token(&self, pod: &Pod, uid: &str, audience: &str) -> kubelet_core::Result<String> {
        assert_eq!(uid, *self.uid.lock());
        self.audiences.lock().push(audience.to_owned());
        Ok(format!("token-of-{}", pod.uid()))
    }
}

fn pod(uid: &str, account: Option<&str>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.into());
    pod.metadata.namespace = Some("ns".into());
    let spec = pod.spec.get_or_insert_default();
    spec.service_account_name = account.map(str::to_owned);
    pod
}

#[tokio::test]
async fn it_is_asked_about_images_that_match() {
    let program =
        Program::answering(r#""cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"p"}}"#);
    let plugin = Plugin::new(program.provider());
    assert_eq!(user(&plugin, "r.io/app").await.as_deref(), Some("u"));
    assert_eq!(user(&plugin, "a.q.io/team/app").await.as_deref(), Some("u"));
    assert_eq!(user(&plugin, "a.q.io/other").await, None);
    assert_eq!(
        program.requests(),
        ["r.io/app", "a.q.io/team/app"].map(|image| format!(
            r#"{{"apiVersion":"{V1}","image":"{image}","kind":"CredentialProviderRequest"}}"#
        ))
    );
}

#[tokio::test]
async fn arguments_and_environment_reach_it() {
    let program = Program::new(&format!(
        "echo '{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"{V1}\",\"cacheKeyType\":\"Image\",\
         \"auth\":{{\"r.io\":{{\"username\":\"'$1-$TOKEN-$PATH'\",\"password\":\"p\"}}}}}}'"
    ));
    let mut provider = program.provider();
    provider.args = vec!["one".into(), "two".into()];
    provider.env = [("TOKEN".to_owned(), "three".to_owned())].into();
    let path = std::env::var("PATH").unwrap();
    assert_eq!(
        user(&Plugin::new(provider), "r.io/app").await,
        Some(format!("one-three-{path}"))
    );
}

#[tokio::test]
async fn answers_are_kept_for_what_they_say() {
    // key, duration, the default in seconds, how often it is called
    let cases = [
        ("Image", "", 60, 2),
        ("Image", "", 0, 4),
        ("Image", r#""cacheDuration":"0s","#, 60, 4),
        ("Image", r#""cacheDuration":"-1m","#, 60, 4),
        ("Image", r#""cacheDuration":null,"#, 60, 2),
        ("Registry", r#""cacheDuration":"1h30m","#, 0, 1),
        ("Global", "", 60, 1),
    ];
    for (key, duration, default, times) in cases {
        let fields = format!(
            r#"{duration}"cacheKeyType":"{key}","auth":{{"r.io":{{"username":"u","password":"p"}}}}"#
        );
        let program = Program::answering(&fields);
        let mut provider = program.provider();
        provider.default_cache_duration = Duration::from_secs(default);
        let plugin = Plugin::new(provider);
        for image in ["r.io/a", "r.io/b", "r.io/a", "r.io/b"] {
            assert_eq!(user(&plugin, image).await.as_deref(), Some("u"));
        }
        assert_eq!(program.requests().len(), times, "{key} {duration} {default}");
    }
}

#[tokio::test]
async fn answers_expire() {
    let program = Program::answering(r#""cacheDuration":"10m","cacheKeyType":"Global","auth":{"r.io":{}}"#);
    let plugin = Plugin::new(program.provider());
    user(&plugin, "r.io/a").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    user(&plugin, "r.io/a").await;
    assert_eq!(program.requests().len(), 2);
}

#[tokio::test]
async fn who_asks_the_same_at_once_waits_for_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    let answer = format!(
        r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"Image","auth":{{"r.io":{{"username":"u"}}}}}}"#
    );
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    let program = Program::new(&format!("{wait}\necho '{answer}'"));
    let plugin = Plugin::new(program.provider());
    let both = async { tokio::join!(user(&plugin, "r.io/a"), user(&plugin, "r.io/a")) };
    let open = async {
        while program.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        std::fs::write(&gate, "").unwrap();
    };
    let (both, ()) = tokio::join!(both, open);
    assert_eq!(both, (Some("u".into()), Some("u".into())));
    assert_eq!(program.requests().len(), 1);
}

#[tokio::test]
async fn a_plugin_that_fails_gives_nothing() {
    let good = r#""cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"p"}}"#;
    let cases = [
        "exit 3".to_owned(),
        "echo no JSON".to_owned(),
        format!(r#"echo '{{"kind":"CredentialProviderResponse","apiVersion":"other/v1",{good}}}'"#),
        format!(r#"echo '{{"kind":"Other","apiVersion":"{V1}",{good}}}'"#),
        format!(r#"echo '{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","more":1,{good}}}'"#),
        format!(
            r#"echo '{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","auth":{{"r.io":{{"username":"u"}}}}}}'"#
        ),
    ];
    for script in cases {
        let program = Program::new(&script);
        let plugin = Plugin::new(program.provider());
        assert_eq!(user(&plugin, "r.io/a").await, None, "{script}");
        assert_eq!(program.requests().len(), 1, "{script}");
    }
}

#[tokio::test]
async fn a_plugin_gets_what_it_asks_for_of_the_pods_service_account() {
    // the pod's account, whether one is required, required and optional annotations; what the plugin gets, if it is called
    type Case<'a> = (
        Option<&'a str>,
        bool,
        &'a [&'a str],
        &'a [&'a str],
        Option<&'a str>,
    );
    let cases: [Case<'_>; 8] = [
        (
            Some("builder"),
            true,
            &[],
            &[],
            Some(r#""serviceAccountToken":"token-of-1""#),
        ),
        (
            Some("builder"),
            true,
            &["a/role"],
            &["a/team", "a/none"],
            Some(
                r#""serviceAccountAnnotations":{"a/role":"r","a/team":"t"},"serviceAccountToken":"token-of-1""#,
            ),
        ),
        (Some("builder"), true, &["a/none"], &[], None),
        (None, true, &[], &[], None),
        (Some(""), true, &[], &[], None),
        (None, false, &[], &["a/team"], Some("")),
        (
            Some("builder"),
            false,
            &[],
            &["a/none"],
            Some(r#""serviceAccountToken":"token-of-1""#),
        ),
        (Some("deleted"), false, &[], &[], None),
    ];
    for (account, require, required, optional, expected) in cases {
        let program =
            Program::answering(r#""cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"p"}}"#);
        let mut provider = program.provider();
        let mut attributes = ServiceAccountTokenAttributes::new("registry", OfAccount);
        attributes.require_service_account = require;
        attributes.required_annotation_keys = required.iter().map(|key| (*key).to_owned()).collect();
        attributes.optional_annotation_keys = optional.iter().map(|key| (*key).to_owned()).collect();
        provider.token_attributes = Some(attributes);
        let plugin = Plugin::new(provider);
        let accounts = Accounts::annotated(&[("a/role", "r"), ("a/team", "t"), ("a/other", "o")]);
        let provided = plugin.provide("r.io/a", &pod("1", account), &accounts).await;

        let of_account = expected.filter(|more| !more.is_empty());
        assert_eq!(
            provided.config.len(),
            usize::from(expected.is_some()),
            "{account:?}"
        );
        assert_eq!(provided.account.is_some(), of_account.is_some(), "{account:?}");
        assert_eq!(accounts.audiences.lock().len(), usize::from(of_account.is_some()));
        assert!(
            accounts
                .audiences
                .lock()
                .iter()
                .all(|audience| audience == "registry")
        );
        let more = of_account.map(|more| format!(",{more}")).unwrap_or_default();
        let request =
            format!(r#"{{"apiVersion":"{V1}","image":"r.io/a","kind":"CredentialProviderRequest"{more}}}"#);
        assert_eq!(
            program.requests(),
            Vec::from_iter(expected.map(|_| request)),
            "{account:?}"
        );
    }
}

#[tokio::test]
async fn credentials_are_kept_for_an_account_or_a_token() {
    for (cache_type, times) in [(OfAccount, 2), (Token, 3)] {
        let program = Program::answering(
            r#""cacheDuration":"1h","cacheKeyType":"Global","auth":{"r.io":{"username":"u","password":"p"}}"#,
        );
        let mut provider = program.provider();
        provider.token_attributes = Some(ServiceAccountTokenAttributes::new("registry", cache_type));
        let (plugin, accounts) = (Plugin::new(provider), Accounts::default());
        for (uid, image) in [("1", "r.io/a"), ("1", "r.io/b"), ("2", "r.io/a")] {
            plugin.provide(image, &pod(uid, Some("builder")), &accounts).await;
        }
        // The account is deleted and created again.
        "new".clone_into(&mut accounts.uid.lock());
        let provided = plugin
            .provide("r.io/a", &pod("1", Some("builder")), &accounts)
            .await;
        assert_eq!(provided.account.unwrap().uid, "new");
        assert_eq!(program.requests().len(), times, "{cache_type:?}");
    }
}

#[tokio::test]
async fn a_token_is_no_password_that_is_kept_for_an_account() {
    for (cache_type, known) in [(OfAccount, 0), (Token, 1)] {
        let program = Program::answering(
            r#""cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"token-of-1"}}"#,
        );
        let mut provider = program.provider();
        provider.token_attributes = Some(ServiceAccountTokenAttributes::new("registry", cache_type));
        let plugin = Plugin::new(provider);
        let provided = plugin
            .provide("r.io/a", &pod("1", Some("builder")), &Accounts::default())
            .await;
        assert_eq!(provided.config.len(), known, "{cache_type:?}");
    }
}

#[test]
fn what_is_wrong_with_one_is_told() {
    let program = Program::new("");
    assert_eq!(program.provider().problem(), None);
    let problem = |change: fn(&mut CredentialProvider)| {
        let mut provider = program.provider();
        change(&mut provider);
        provider.problem().unwrap()
    };
    assert_eq!(
        problem(|provider| provider.program = Path::new("/no/such/file").into()),
        "credential provider test: plugin binary executable /no/such/file did not exist"
    );
    assert_eq!(
        problem(|provider| provider.api_version = "v7".into()),
        "credential provider test: api_version \"v7\" is not supported"
    );
    assert_eq!(
        problem(|provider| provider.token_attributes = Some(ServiceAccountTokenAttributes::new("", Token))),
        "credential provider test: the audience of its token is empty"
    );
    assert_eq!(
        problem(|provider| {
            let mut attributes = ServiceAccountTokenAttributes::new("registry", Token);
            attributes.required_annotation_keys = vec!["a/role".into()];
            provider.token_attributes = Some(attributes);
        }),
        "credential provider test: required_annotation_keys need require_service_account"
    );
    assert_eq!(
        problem(|provider| {
            provider.api_version = V1.replace("v1", "v1beta1");
            provider.token_attributes = Some(ServiceAccountTokenAttributes::new("registry", Token));
        }),
        "credential provider test: api_version \"credentialprovider.kubelet.k8s.io/v1beta1\" has no token_attributes"
    );
    assert_eq!(
        problem(|provider| provider.match_images.clear()),
        "credential provider test: match_images is empty"
    );
}

#[test]
fn runs_and_errors_count_by_plugin() {
    let counted = Counted::of("kubelet_credential_provider_plugin_", async {
        // Real programs need real time.
        tokio::time::resume();
        let good =
            Program::answering(r#""cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"p"}}"#);
        let bad = Program::new("exit 1");
        for (name, program) in [("good", &good), ("bad", &bad)] {
            let mut provider = program.provider();
            provider.name = name.to_owned();
            let plugin = Plugin::new(provider);
            for image in ["r.io/a", "r.io/b"] {
                user(&plugin, image).await;
            }
        }
    });
    let expected = [("duration bad", 2), ("duration good", 2), ("errors_total bad", 2)];
    assert_eq!(
        counted,
        expected.map(|(metric, count)| (metric.to_owned(), count))
    );
}
