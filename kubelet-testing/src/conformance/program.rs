//! What the kit has containers do.

/// A program that the clauses have containers run. A fixture says how: see [`Fixture::workload`](super::Fixture::workload).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Program {
    /// Runs until it is ended, by its stop signal or by force; does nothing.
    Forever,
    /// Ends by itself at once, with this code.
    Exits(i32),
    /// Cannot be started: there is no such program.
    Missing,
    /// Writes the line `one` and the line `two` to its standard output, the line `three` to its standard error, and ends
    /// with code 0. Asked for of those who offer `logs`.
    Prints,
    /// Writes `1`, `2`, `3` and so on to its standard output, a line each, some each second, until it is ended. Asked for of
    /// those who offer `logs`.
    Counts,
    /// Runs until it gets its stop signal, then ends with this code. Asked for of those who offer `signals`. It must be
    /// ready for the signal when `start` returns, or, if the runtime offers `logs` too, when it writes the line `ready`.
    Heeds(i32),
    /// Runs, and does not heed its stop signal; ready for it as above.
    Ignores,
}

impl Program {
    /// As a command of a POSIX shell that the image has.
    pub fn in_shell(&self, image: impl Into<String>) -> Workload {
        let script = match self {
            Self::Forever => "exec sleep 2147483647".to_owned(),
            Self::Exits(code) => format!("exit {code}"),
            Self::Missing => {
                return Workload::new(image, ["/there/is/no/such/program"]);
            }
            Self::Prints => "echo one; echo three >&2; echo two".to_owned(),
            Self::Counts => "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done".to_owned(),
            Self::Heeds(code) => {
                format!("trap 'exit {code}' TERM; echo ready; while :; do sleep 1000 & wait $!; done")
            }
            // What is ignored stays so in the children.
            Self::Ignores => "trap '' TERM; echo ready; while :; do sleep 1000; done".to_owned(),
        };
        Workload::new(image, ["sh", "-c", &script])
    }

    /// In a few words: `exits 3`. A runtime in memory may take them for its command.
    pub fn words(&self) -> Vec<String> {
        let (word, code) = match self {
            Self::Forever => ("forever", None),
            Self::Exits(code) => ("exits", Some(code)),
            Self::Missing => ("missing", None),
            Self::Prints => ("prints", None),
            Self::Counts => ("counts", None),
            Self::Heeds(code) => ("heeds", Some(code)),
            Self::Ignores => ("ignores", None),
        };
        [word.to_owned()]
            .into_iter()
            .chain(code.map(i32::to_string))
            .collect()
    }
}

/// What a container is asked to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The image. It must be there: no clause pulls it.
    pub image: String,
    /// The container's `command`.
    pub command: Vec<String>,
    /// The container's `args`.
    pub args: Vec<String>,
    /// The container's `env`.
    pub env: Vec<(String, String)>,
}

impl Workload {
    /// This command in this image.
    pub fn new<S: Into<String>>(image: impl Into<String>, command: impl IntoIterator<Item = S>) -> Self {
        Self {
            image: image.into(),
            command: command.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}
