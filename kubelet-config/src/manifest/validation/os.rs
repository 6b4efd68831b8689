//! What goes with one operating system only.

use k8s_openapi::api::core::v1::{Container, PodSpec, SecurityContext, WindowsSecurityContextOptions};

use super::visit::visit_containers;
use super::{Field, Problems, names};

const NOT_FOR_WINDOWS: &str = "cannot be set for a windows pod";
const MAX_GMSA_CREDENTIAL_SPEC_LENGTH: usize = 64 << 10;
const MAX_DOMAIN_LENGTH: usize = 256;
const MAX_USER_LENGTH: usize = 104;

/// Signals by which a Linux container can be asked to stop.
const SIGNALS: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

pub(super) fn validate(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let context = spec.security_context.as_ref();
    let of_pod = context.and_then(|context| context.windows_options.as_ref());
    if let Some(options) = of_pod {
        let field = field.child("securityContext").child("windowsOptions");
        validate_windows_options(options, &field, problems);
    }
    visit_containers(spec, field, |container, field| {
        if let Some(options) = windows_options(container) {
            let field = field.child("securityContext").child("windowsOptions");
            validate_windows_options(options, &field, problems);
        }
    });
    validate_host_process(spec, field, problems);
    match spec.os.as_ref().map(|os| os.name.as_str()) {
        Some("") => problems.required(&field.child("os").child("name"), ""),
        Some("linux") => validate_linux(spec, field, problems),
        Some("windows") => validate_windows(spec, field, problems),
        Some(other) => problems.unless_one_of(&field.child("os"), other, &["linux", "windows"]),
        None => {}
    }
}

/// The signal by which a container is asked to stop.
pub(super) fn validate_stop_signal(signal: &str, spec: &PodSpec, field: &Field, problems: &mut Problems) {
    match spec.os.as_ref().map(|os| os.name.as_str()) {
        None => problems.forbidden(field, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => problems.unless_one_of(field, signal, &["SIGKILL", "SIGTERM"]),
        Some("linux") if !is_real_time(signal) => problems.unless_one_of(field, signal, &SIGNALS),
        Some(_) => {}
    }
}

/// `SIGRTMIN` to `SIGRTMIN+15` and `SIGRTMAX-14` to `SIGRTMAX`.
fn is_real_time(signal: &str) -> bool {
    let numbered = |prefix: &str, most: u8| {
        signal.strip_prefix(prefix).is_some_and(|number| {
            let parsed = number
                .parse::<u8>()
                .ok()
                .filter(|number| (1..=most).contains(number));
            parsed.is_some_and(|parsed| parsed.to_string() == number)
        })
    };
    matches!(signal, "SIGRTMIN" | "SIGRTMAX") || numbered("SIGRTMIN+", 15) || numbered("SIGRTMAX-", 14)
}

fn validate_linux(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let why = "windows options cannot be set for a linux pod";
    let context = spec.security_context.as_ref();
    if context.is_some_and(|context| context.windows_options.is_some()) {
        problems.forbidden(&field.child("securityContext").child("windowsOptions"), why);
    }
    visit_containers(spec, field, |container, field| {
        if windows_options(container).is_some() {
            problems.forbidden(&field.child("securityContext").child("windowsOptions"), why);
        }
    });
}

fn validate_windows(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    for (name, set) in [
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        ("shareProcessNamespace", spec.share_process_namespace.is_some()),
    ] {
        if set {
            problems.forbidden(&field.child(name), NOT_FOR_WINDOWS);
        }
    }
    if let Some(context) = &spec.security_context {
        let field = field.child("securityContext");
        for (name, set) in [
            ("appArmorProfile", context.app_armor_profile.is_some()),
            ("seLinuxOptions", context.se_linux_options.is_some()),
            ("seccompProfile", context.seccomp_profile.is_some()),
            ("fsGroup", context.fs_group.is_some()),
            ("fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
            ("sysctls", context.sysctls.is_some()),
            ("runAsUser", context.run_as_user.is_some()),
            ("runAsGroup", context.run_as_group.is_some()),
            ("supplementalGroups", context.supplemental_groups.is_some()),
            (
                "supplementalGroupsPolicy",
                context.supplemental_groups_policy.is_some(),
            ),
            ("seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
        ] {
            if set {
                problems.forbidden(&field.child(name), NOT_FOR_WINDOWS);
            }
        }
    }
    visit_containers(spec, field, |container, field| {
        if let Some(context) = &container.security_context {
            validate_windows_container(context, &field.child("securityContext"), problems);
        }
    });
}

fn validate_windows_container(context: &SecurityContext, field: &Field, problems: &mut Problems) {
    for (name, set) in [
        ("appArmorProfile", context.app_armor_profile.is_some()),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        ("seccompProfile", context.seccomp_profile.is_some()),
        ("capabilities", context.capabilities.is_some()),
        (
            "readOnlyRootFilesystem",
            context.read_only_root_filesystem.is_some(),
        ),
        ("privileged", context.privileged.is_some()),
        (
            "allowPrivilegeEscalation",
            context.allow_privilege_escalation.is_some(),
        ),
        ("procMount", context.proc_mount.is_some()),
        ("runAsUser", context.run_as_user.is_some()),
        ("runAsGroup", context.run_as_group.is_some()),
    ] {
        if set {
            problems.forbidden(&field.child(name), NOT_FOR_WINDOWS);
        }
    }
}

/// Containers that are processes of the host: all of a pod's or none, and on the host's network.
fn validate_host_process(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let context = spec.security_context.as_ref();
    let of_pod = context
        .and_then(|context| context.windows_options.as_ref())
        .and_then(|options| options.host_process);
    let (mut all, mut on_host) = (0, 0);
    visit_containers(spec, field, |container, field| {
        all += 1;
        let own = windows_options(container).and_then(|options| options.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let field = field
                .child("securityContext")
                .child("windowsOptions")
                .child("hostProcess");
            let why = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            problems.invalid(&field, own, &why);
        }
        on_host += usize::from(own.or(of_pod) == Some(true));
    });
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let why =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        problems.invalid(field, "", why);
    }
    if spec.host_network != Some(true) {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        problems.invalid(&field.child("hostNetwork"), false, why);
    }
}

fn windows_options(container: &Container) -> Option<&WindowsSecurityContextOptions> {
    container.security_context.as_ref()?.windows_options.as_ref()
}

fn validate_windows_options(options: &WindowsSecurityContextOptions, field: &Field, problems: &mut Problems) {
    if let Some(name) = &options.gmsa_credential_spec_name {
        problems.unless_formed(&field.child("gmsaCredentialSpecName"), name, names::dns_subdomain);
    }
    let lengths = 1..=MAX_GMSA_CREDENTIAL_SPEC_LENGTH;
    if let Some(length) = options.gmsa_credential_spec.as_ref().map(String::len)
        && !lengths.contains(&length)
    {
        let why = "gmsaCredentialSpec cannot be an empty string and must be under 64 KiB";
        problems.invalid(&field.child("gmsaCredentialSpec"), length, why);
    }
    if let Some(user) = &options.run_as_user_name
        && let Err(why) = user_name(user)
    {
        problems.invalid(&field.child("runAsUserName"), user, why);
    }
}

/// `<domain>\<user>` or `<user>`.
fn user_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("runAsUserName cannot be an empty string");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return Err("runAsUserName cannot contain control characters");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, user)) if user.contains('\\') => {
            return Err("runAsUserName cannot contain more than one backslash");
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    if domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN_LENGTH) {
        return Err("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_windows_domain(domain)) {
        return Err("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        return Err("runAsUserName's User cannot be empty");
    }
    if user.len() > MAX_USER_LENGTH {
        return Err("runAsUserName's User length must not be longer than 104 characters");
    }
    if user.chars().all(|c| c == '.' || c == ' ') {
        return Err("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        return Err("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    Ok(())
}

fn is_net_bios(domain: &str) -> bool {
    let length = domain.chars().count();
    (1..=15).contains(&length) && !domain.starts_with('.') && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_windows_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_signals() {
        for good in [
            "SIGRTMIN",
            "SIGRTMIN+1",
            "SIGRTMIN+15",
            "SIGRTMAX-14",
            "SIGRTMAX-1",
            "SIGRTMAX",
        ] {
            assert!(is_real_time(good), "{good}");
        }
        for bad in [
            "SIGRTMIN+0",
            "SIGRTMIN+16",
            "SIGRTMIN+01",
            "SIGRTMAX-15",
            "SIGRTMAX-+1",
            "SIGTERM",
        ] {
            assert!(!is_real_time(bad), "{bad}");
        }
    }

    #[test]
    fn windows_users() {
        for (name, good) in [
            ("user", true),
            ("NT AUTHORITY\\SYSTEM", true),
            ("example.com\\user", true),
            ("", false),
            ("a\\b\\c", false),
            (".a*\\user", false),
            ("domain\\", false),
            ("...", false),
            ("a@b", false),
            ("a\tb", false),
        ] {
            assert_eq!(user_name(name).is_ok(), good, "{name:?}");
        }
    }
}
