//! The kubelet's command line, as of v1.36 (`cmd/kubelet/app/options`): so that an agent can be started with a
//! kubelet's arguments.
//!
//! ```
//! use kubelet_config::flags::CommandLine;
//! use kubelet_config::kubelet_configuration::validation::Host;
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("config.yaml");
//!
//! std::fs::write(
//!     &file,
//!     r#"{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
//!         "maxPods": 50, "port": 10350}"#,
//! )?;
//! let file = file.to_string_lossy();
//! let args = ["--config", &file, "--max_pods=7", "--node-labels=example.com/rack=r1"];
//!
//! let command_line = CommandLine::parse(args)?;
//! assert_eq!(command_line.flags().node_labels["example.com/rack"], "r1");
//! assert_eq!(command_line.deprecated().next().unwrap().name(), "max-pods");
//!
//! // The file counts where no flag says otherwise.
//! let server = command_line.load(&Host::default())?;
//! assert_eq!((server.configuration.max_pods, server.configuration.port), (7, 10350));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod comma_separated;
mod command;
mod configuration_flags;
mod flag;
mod kubelet_flags;
mod node_labels;
mod numbers;
mod own_flags;
mod program;
mod reserved_memory;
mod server;
mod slot;
mod table;
mod taints;

pub use flag::Flag;
pub use kubelet_flags::KubeletFlags;
pub use program::Version;
pub use server::KubeletServer;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use flag::{Cadvisor, Target};
use program::Program;

use crate::{Error, KubeletConfiguration, Result};

/// A kubelet's command line, read and checked flag by flag.
///
/// Flags are read as the kubelet reads them: `--flag=value` and `--flag value`, `--bool` and `--bool=false`, `_` for
/// `-` in a name, `-v=4`, `--` before what is no flag. A flag given twice has its last value, lists and maps add up.
#[derive(Clone, Debug)]
pub struct CommandLine {
    given: Vec<(&'static Flag, String)>,
    flags: KubeletFlags,
    program: Program,
}

impl CommandLine {
    /// Reads arguments, without the program's name before them.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a flag that is unknown or has no value, [`Error::Flag`] for a value that is none of
    /// its flag's, [`Error::UnknownCommand`] for an argument that is no flag.
    pub fn parse<I>(args: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Ok(Self::parse_with(Self::command(), args)?.0)
    }

    /// As [`parse`](Self::parse), for an agent that has flags of its own: `command` is [`command`](Self::command)
    /// with more arguments.
    ///
    /// ```
    /// use clap::{Arg, ArgAction};
    /// use kubelet_config::flags::CommandLine;
    ///
    /// let dry_run = Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue);
    /// let command = CommandLine::command().arg(dry_run);
    /// let (command_line, matches) = CommandLine::parse_with(command, ["--dry-run", "--node-ip=::"])?;
    /// assert!(matches.get_flag("dry-run"));
    /// assert_eq!(command_line.flags().node_ip, "::");
    /// # Ok::<(), kubelet_config::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_with<I>(command: clap::Command, args: I) -> Result<(Self, clap::ArgMatches)>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let args = args.into_iter().map(Into::into).collect();
        let parsed = command::parse(command, args)?;
        let mut command_line = Self {
            given: parsed.given,
            flags: KubeletFlags::default(),
            program: Program::default(),
        };
        command_line.read_values()?;
        match parsed.command {
            Some(command) => Err(Error::UnknownCommand { command }),
            None => Ok((command_line, parsed.matches)),
        }
    }

    /// The kubelet's flags as clap has them, for its help, or to add others to. Parse with it through
    /// [`parse_with`](Self::parse_with): some habits of the kubelet's flags are not clap's.
    pub fn command() -> clap::Command {
        command::command()
    }

    /// The flags that are no fields of the configuration.
    pub fn flags(&self) -> &KubeletFlags {
        &self.flags
    }

    /// Whether `--help` was given. Then print the help of [`command`](Self::command) and exit.
    pub fn help(&self) -> bool {
        self.program.help
    }

    /// What `--version` was given for.
    pub fn version(&self) -> &Version {
        &self.program.version
    }

    /// All flags that were given, with the text of their values, in order.
    pub fn given(&self) -> impl Iterator<Item = (&'static Flag, &str)> {
        self.given.iter().map(|(flag, value)| (*flag, value.as_str()))
    }

    /// All flags of the kubelet and their values, given or not, as `/flagz` shows them. A value that only the file of
    /// `--config` sets is not among them.
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        let (mut flags, mut program) = (self.flags.clone(), self.program.clone());
        let mut configuration = KubeletConfiguration::without_file();
        // The values were read before, so they are valid.
        drop(self.apply(&mut configuration));
        let value = |flag: &'static Flag| match flag.target {
            Target::Kubelet(slot) => slot(&mut flags).show(),
            Target::Configuration { slot, .. } => slot(&mut configuration).show(),
            Target::Program(slot) => slot(&mut program).show(),
            Target::Cadvisor { default, .. } => {
                let given = self
                    .given()
                    .filter(|(given, _)| given.name() == flag.name())
                    .last();
                given.map_or(default, |(_, value)| value).to_owned()
            }
        };
        let names = Flag::all().map(Flag::name);
        names.zip(Flag::all().map(value)).collect()
    }

    /// The deprecated flags that were given. [`Flag::deprecated`] says why.
    pub fn deprecated(&self) -> impl Iterator<Item = &'static Flag> {
        let mut seen = BTreeSet::new();
        self.given()
            .map(|(flag, _)| flag)
            .filter(move |flag| flag.deprecated().is_some() && seen.insert(flag.name()))
    }

    /// Validates the [`flags`](Self::flags) (`ValidateKubeletFlags`).
    ///
    /// # Errors
    ///
    /// [`Error::NodeLabels`] for labels that a node may not give itself.
    pub fn check(&self) -> Result<()> {
        node_labels::validate(&self.flags.node_labels)
    }

    /// Sets the fields of a configuration that flags were given for.
    ///
    /// # Errors
    ///
    /// [`Error::Flag`], but not if the command line was parsed.
    pub fn apply(&self, configuration: &mut KubeletConfiguration) -> Result<()> {
        let mut seen = BTreeSet::new();
        for (flag, value) in &self.given {
            if let Target::Configuration { slot, .. } = flag.target {
                let first = seen.insert(flag.name());
                slot(configuration)
                    .set(value, first)
                    .map_err(|message| refused(flag, value, message))?;
            }
        }
        Ok(())
    }

    /// Reads all values in the order in which they were given, so that the error is about the first wrong one.
    fn read_values(&mut self) -> Result<()> {
        let mut configuration = KubeletConfiguration::without_file();
        let mut cadvisor = Cadvisor::default();
        let mut seen = BTreeSet::new();
        for (flag, value) in &self.given {
            let slot = match flag.target {
                Target::Kubelet(slot) => slot(&mut self.flags),
                Target::Configuration { slot, .. } => slot(&mut configuration),
                Target::Cadvisor { slot, .. } => slot(&mut cadvisor),
                Target::Program(slot) => slot(&mut self.program),
            };
            let first = seen.insert(flag.name());
            slot.set(value, first)
                .map_err(|message| refused(flag, value, message))?;
        }
        Ok(())
    }
}

fn refused(flag: &Flag, value: &str, message: String) -> Error {
    Error::Flag {
        flag: flag.name().to_owned(),
        value: value.to_owned(),
        message,
    }
}
