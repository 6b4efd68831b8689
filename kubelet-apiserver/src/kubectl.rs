//! Finds `kubectl` for tests that run it.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

/// Names the program, if it is not in `PATH` or has another name.
const VARIABLE: &str = "KUBECTL";

/// Finds the `kubectl` of this machine: the program that the variable `KUBECTL` names, else the one in `PATH`.
///
/// Returns `None` if there is none. It then writes a line to standard error, which the test harness does not capture:
/// `SKIPPED: <test>: kubectl is missing (…)`. A test returns in this case, so it passes on machines without `kubectl`:
///
/// ```no_run
/// # fn main() -> kubelet_apiserver::Result<()> {
/// let Some(kubectl) = kubelet_apiserver::find_kubectl()? else { return Ok(()) };
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::NoKubectl`] in place of `None` where the environment has `CI=true`.
pub fn find_kubectl() -> Result<Option<PathBuf>> {
    let program = env::var_os(VARIABLE)
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| OsString::from("kubectl"));
    let found = in_path(Path::new(&program));
    if found.is_none() {
        if in_ci() {
            return Err(Error::NoKubectl);
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        // Not `eprintln!`: the test harness would capture it.
        let _ = writeln!(io::stderr(), "SKIPPED: {test}: {}", Error::NoKubectl);
    }
    Ok(found)
}

/// The file of a program: a name is looked up in `PATH`, a path is taken as it is.
fn in_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(|path| path.is_file());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Whether this runs in continuous integration, where a missing program is a failure.
fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}
