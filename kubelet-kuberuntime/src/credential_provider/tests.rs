use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

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
    let config = plugin.provide(image).await;
    config.into_values().next().map(|login| login.username)
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
    plugin.provide("r.io/a").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    plugin.provide("r.io/a").await;
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
