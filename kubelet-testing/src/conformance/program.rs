//! The programs in the kit's containers.

/// A program that containers run. [`Fixture::workload`](super::Fixture::workload) defines how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Program {
    /// Runs until its stop signal or SIGKILL, and does nothing.
    Forever,
    /// Exits at once with this code.
    Exits(i32),
    /// Cannot be started, because there is no such program.
    Missing,
    /// Writes the lines `one` and `two` to its standard output and the line `three` to its standard error, and exits
    /// with code 0. Only for the capability `logs`.
    Prints,
    /// Writes `1`, `2`, `3` and so on to its standard output, one number a line, several each second, until it ends.
    /// Only for the capability `logs`.
    Counts,
    /// Runs until it gets its stop signal, then exits with this code. Only for the capability `signals`. It must be
    /// ready for the signal when `start` returns, or, if the runtime has the capability `logs`, when it writes the
    /// line `ready`.
    Heeds(i32),
    /// Runs and ignores its stop signal. It is ready as above.
    Ignores,
}

impl Program {
    /// As a command of a POSIX shell in the image.
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
            // Child processes inherit ignored signals.
            Self::Ignores => "trap '' TERM; echo ready; while :; do sleep 1000; done".to_owned(),
        };
        Workload::new(image, ["sh", "-c", &script])
    }

    /// In a few words: `exits 3`. A runtime in memory may use this as the command.
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

/// What a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The image. It must exist: no clause pulls it.
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
