//! All for which an agent with a kubelet's flags and configuration would not start.

use kubelet_config::flags::KubeletServer;
use kubelet_config::kubelet_configuration::Origin;

use crate::agent::NodeAgent;
use crate::error::Error;
use crate::problem::{FoundBy, Problem, is_part};
use crate::settings::Settings;

/// Where the agent is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Machine {
    /// On a machine that is not known, in a cluster. Only what is wrong everywhere is found.
    Any,
    /// On this one. Without `--kubeconfig`, it runs without a cluster.
    This,
}

/// All for which the agent would refuse these flags and this configuration, each with its field and with where it was set: what the
/// validation found, and what the start would find. The start asks the same ([`NodeAgentBuilder::build`]). Nothing is left behind,
/// and neither the runtime nor the API server is asked.
///
/// Use [`CommandLine::examine`](kubelet_config::flags::CommandLine::examine) to load a configuration with all its problems.
///
/// [`NodeAgentBuilder::build`]: crate::NodeAgentBuilder::build
///
/// # Cancel safety
///
/// May be dropped and called again.
pub async fn problems(server: &KubeletServer, machine: Machine) -> Vec<Problem> {
    let invalid = server.invalid.iter().map(|error| {
        let what = format!("Invalid value: {}: {}", error.value, error.detail);
        Problem::new(&error.field, what, FoundBy::Validation)
    });
    let mut found: Vec<Problem> = invalid.collect();
    let (mut settings, unusable) = Settings::examine(server);
    if let Some(error) = unusable {
        let field = "--image-credential-provider-config";
        let problems = of_file(error).into_iter();
        found.extend(problems.map(|problem| Problem::new(field, problem, FoundBy::Start)));
    }
    if server.flags.exit_on_lock_contention && server.flags.lock_file_path.is_empty() {
        let (field, what) = ("--exit-on-lock-contention", super::NO_LOCK_FILE);
        found.push(Problem::new(field, what, FoundBy::Start));
    }
    if machine == Machine::Any && settings.kubeconfig.as_os_str().is_empty() {
        // The file is not read.
        settings.kubeconfig = "kubeconfig".into();
    }
    let agent = NodeAgent::builder(settings).cri();
    let of_start = match machine {
        Machine::Any => agent.problems(),
        Machine::This => agent.problems_on_this_machine().await,
    };
    // A value that is not valid is wrong in more than one way. The first is enough.
    let invalid = found.len();
    for problem in of_start {
        let is_known =
            |known: &Problem| is_part(&known.field, &problem.field) || is_part(&problem.field, &known.field);
        if !found[..invalid].iter().any(is_known) {
            found.push(problem);
        }
    }
    for problem in &mut found {
        problem.origin = match problem.field.starts_with("--") {
            true => Some(Origin::CommandLine),
            false => server.origins.of(&problem.field).cloned(),
        };
    }
    found
}

/// The problems of a file, each with its path.
fn of_file(error: kubelet_config::Error) -> Vec<String> {
    match error {
        kubelet_config::Error::Configuration { file, problems, .. } => {
            let file = file
                .map(|file| format!("{}: ", file.display()))
                .unwrap_or_default();
            problems
                .into_iter()
                .map(|problem| format!("{file}{problem}"))
                .collect()
        }
        other => vec![Error::from(other).to_string()],
    }
}
