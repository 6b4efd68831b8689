//! What an agent would refuse at its start, and how it is collected, so that all of it is reported at once.

use std::fmt;

use kubelet_config::kubelet_configuration::Origin;

use crate::error::{Error, Result};

/// A reason for which an agent with these settings would not start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The field of the configuration, such as `evictionSoft[memory.available]`, or the flag, such as `--kubeconfig`. Empty if
    /// neither is the cause.
    pub field: String,
    /// What is wrong. It names values and files.
    pub what: String,
    /// What found it.
    pub found_by: FoundBy,
    /// Where the field was set, if it is known.
    pub origin: Option<Origin>,
}

/// What finds a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundBy {
    /// The validation of the configuration, whoever runs it.
    Validation,
    /// The start of the agent, on whatever machine.
    Start,
    /// The start of the agent on this machine. On another one the settings may work.
    ThisNode,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Validation => "validate",
            Self::Start => "start",
            Self::ThisNode => "this node",
        })
    }
}

impl Problem {
    pub(crate) fn new(field: impl Into<String>, what: impl Into<String>, found_by: FoundBy) -> Self {
        Self {
            field: field.into(),
            what: what.into(),
            found_by,
            origin: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what.starts_with(&self.field) {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.field, self.what),
        }
    }
}

/// Collects what is wrong, so that all of it can be reported at once.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Problem>,
    of_machine: bool,
}

impl Problems {
    /// What is found from now on is wrong on this machine.
    pub(crate) fn of_machine(&mut self) {
        self.of_machine = true;
    }

    /// Adds a problem of this field, once. A problem of the machine is left out if the settings have one of the field or of a part
    /// of it: what is wrong everywhere is wrong here, too.
    pub(crate) fn add(&mut self, field: impl Into<String>, what: impl Into<String>) {
        let (field, what) = (field.into(), what.into());
        let found_by = if self.of_machine {
            FoundBy::ThisNode
        } else {
            FoundBy::Start
        };
        let is_known = |known: &Problem| match known.found_by == found_by {
            true => known.field == field && known.what == what,
            false => is_part(&known.field, &field),
        };
        if self.found.iter().any(is_known) {
            return;
        }
        self.found.push(Problem::new(field, what, found_by));
    }

    /// Notes an error of this field.
    pub(crate) fn note<T>(&mut self, field: &str, result: Result<T, impl Into<Error>>) {
        match result.map_err(Into::into) {
            Ok(_) => {}
            Err(Error::Misconfigured { problems }) => {
                problems.into_iter().for_each(|problem| self.add(field, problem));
            }
            Err(error) => self.add(field, error.to_string()),
        }
    }

    /// Notes an error whose text begins with its field: `evictionSoft[memory.available]: …`.
    pub(crate) fn note_named(&mut self, error: &impl fmt::Display) {
        let text = error.to_string();
        let end = text.find([':', ' ']).unwrap_or_default();
        self.add(&text[..end], text.as_str());
    }

    pub(crate) fn into_found(self) -> Vec<Problem> {
        self.found
    }

    pub(crate) fn into_result(self) -> Result<()> {
        match self.found.is_empty() {
            true => Ok(()),
            false => Err(Error::Misconfigured {
                problems: self.found.iter().map(ToString::to_string).collect(),
            }),
        }
    }
}

/// Whether `field` is `of`, or a part of it: `evictionSoft[memory.available]` is one of `evictionSoft`.
pub(crate) fn is_part(field: &str, of: &str) -> bool {
    let rest = field.strip_prefix(of).filter(|_| !of.is_empty());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_field_once() {
        let mut problems = Problems::default();
        problems.add("port", "port 70000: too large");
        problems.add("--kubeconfig", "not found");
        problems.note_named(&"evictionSoft[memory.available]: no grace period");
        problems.of_machine();
        // The settings have said it.
        problems.add("evictionSoft", "cannot be measured");
        problems.add("podLogsDir", "cannot be written");
        let found: Vec<String> = problems.into_found().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "port 70000: too large",
                "--kubeconfig: not found",
                "evictionSoft[memory.available]: no grace period",
                "podLogsDir: cannot be written"
            ]
        );
    }

    #[test]
    fn parts_of_a_field() {
        assert!(is_part("a", "a") && is_part("a[b]", "a") && is_part("a.b", "a"));
        assert!(!is_part("ab", "a") && !is_part("a", "a[b]") && !is_part("a", ""));
    }
}
