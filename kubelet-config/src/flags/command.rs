//! From arguments to flags and their values, by clap with pflag's habits.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::flag::Flag;
use crate::{Error, Result};

/// Arguments that are no flags.
const COMMANDS: &str = "commands";

/// The kubelet's flags.
pub(super) fn command() -> Command {
    let commands = Arg::new(COMMANDS)
        .num_args(0..)
        .action(ArgAction::Append)
        .value_parser(clap::value_parser!(OsString))
        .hide(true);
    Command::new("kubelet")
        .about("The node agent of Kubernetes")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(Flag::all().map(arg))
        .arg(commands)
}

fn arg(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.name())
        .long(flag.name())
        .short(flag.shorthand())
        .help(flag.help())
        .value_name(flag.kind())
        .action(ArgAction::Append)
        .value_parser(clap::value_parser!(OsString));
    match flag.no_value_means() {
        // The next argument is not its value.
        Some(meaning) => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(meaning),
        None => arg.allow_hyphen_values(true),
    }
}

/// What a command line has.
pub(super) struct Parsed {
    /// The flags given, with the text of their values, in order.
    pub(super) given: Vec<(&'static Flag, String)>,
    /// The first argument that is no flag.
    pub(super) command: Option<String>,
    /// What else there is, for a command with flags of its own.
    pub(super) matches: ArgMatches,
}

/// # Errors
///
/// [`Error::Argument`], and [`Error::Flag`] for a value that is not UTF-8.
pub(super) fn parse(command: Command, args: Vec<OsString>) -> Result<Parsed> {
    let args = normalize(&command, args);
    let mut matches = command.try_get_matches_from(args).map_err(refused)?;
    let command = matches
        .remove_many::<OsString>(COMMANDS)
        .and_then(|mut commands| commands.next())
        .map(|command| command.to_string_lossy().into_owned());
    let mut given = Vec::new();
    for flag in Flag::all() {
        let (Some(at), Some(values)) = (
            matches.indices_of(flag.name()),
            matches.get_many::<OsString>(flag.name()),
        ) else {
            continue;
        };
        for (at, value) in at.zip(values) {
            let value = value.to_str().ok_or_else(|| Error::Flag {
                flag: flag.name().to_owned(),
                value: value.to_string_lossy().into_owned(),
                message: "it is not UTF-8".into(),
            })?;
            given.push((at, flag, value.to_owned()));
        }
    }
    given.sort_by_key(|&(at, ..)| at);
    let given = given.into_iter().map(|(_, flag, value)| (flag, value)).collect();
    Ok(Parsed {
        given,
        command,
        matches,
    })
}

/// Reads `_` in names of flags as `-` (`WordSepNormalizeFunc`), and leaves values alone.
fn normalize(command: &Command, args: Vec<OsString>) -> Vec<OsString> {
    let takes_next = |arg: &Arg| {
        let takes_value = arg.get_num_args().is_none_or(|values| values.takes_values());
        takes_value
            && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
            && !arg.is_require_equals_set()
    };
    let mut args = args.into_iter();
    let mut normalized = Vec::new();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        let mut value_follows = false;
        if text == "--" {
            normalized.push(arg);
            break;
        } else if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long
                .split_once('=')
                .map_or((long, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            let known = command.get_arguments().find(|arg| arg.get_long() == Some(&name));
            value_follows = value.is_none() && known.is_some_and(takes_next);
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            normalized.push(format!("--{name}{value}").into());
        } else {
            if let Some(letters) = text.strip_prefix('-') {
                value_follows = shorthand_wants_value(command, letters, takes_next);
            }
            normalized.push(arg);
        }
        if value_follows {
            normalized.extend(args.next());
        }
    }
    normalized.extend(args);
    normalized
}

/// Whether a value follows these shorthands: the last takes one.
fn shorthand_wants_value(command: &Command, letters: &str, takes_next: impl Fn(&Arg) -> bool) -> bool {
    for (at, letter) in letters.char_indices() {
        let Some(known) = command
            .get_arguments()
            .find(|arg| arg.get_short() == Some(letter))
        else {
            return false;
        };
        if takes_next(known) {
            return at + letter.len_utf8() == letters.len();
        }
    }
    false
}

fn refused(error: clap::Error) -> Error {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.clone(),
        Some(ContextValue::Strings(arguments)) => arguments.join(" "),
        _ => String::new(),
    };
    let message = match error.kind() {
        ErrorKind::UnknownArgument => "unknown flag".to_owned(),
        ErrorKind::InvalidValue | ErrorKind::NoEquals | ErrorKind::TooFewValues => {
            "the flag needs an argument".to_owned()
        }
        _ => error.to_string().trim_end().to_owned(),
    };
    Error::Argument { argument, message }
}
