//! What a flag is: its name, its target, its help.

use super::kubelet_flags::KubeletFlags;
use super::program::Program;
use super::slot::Slot;
use crate::kubelet_configuration::GoDuration;
use crate::{FeatureGate, FeatureGates, FeatureStage, KubeletConfiguration};

/// A flag of the kubelet v1.36.
#[derive(Debug)]
pub struct Flag {
    pub(super) name: &'static str,
    shorthand: Option<char>,
    about: &'static str,
    deprecated: Option<&'static str>,
    pub(super) target: Target,
}

/// What a flag sets.
#[derive(Debug)]
pub(super) enum Target {
    Kubelet(fn(&mut KubeletFlags) -> Slot<'_>),
    Configuration {
        field: &'static str,
        slot: fn(&mut KubeletConfiguration) -> Slot<'_>,
    },
    Cadvisor {
        default: &'static str,
        slot: fn(&mut Cadvisor) -> Slot<'_>,
    },
    Program(fn(&mut Program) -> Slot<'_>),
}

/// Holds values that are checked but not used.
#[derive(Debug, Default)]
pub(super) struct Cadvisor {
    pub(super) bool: bool,
    pub(super) int: i64,
    pub(super) text: String,
    pub(super) duration: GoDuration,
}

impl Flag {
    /// Without the dashes, e.g. `max-pods`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The one letter that stands for the name.
    pub fn shorthand(&self) -> Option<char> {
        self.shorthand
    }

    /// What the kubelet's help calls the type, e.g. `int32`.
    pub fn kind(&self) -> &'static str {
        self.with_default(|slot| slot.kind())
    }

    /// The value without the flag and without a file.
    pub fn default_value(&self) -> String {
        match self.target {
            Target::Cadvisor { default, .. } => default.to_owned(),
            _ => self.with_default(|slot| slot.show()),
        }
    }

    /// What the flag means without a value. A flag without such a meaning takes the next argument for its value.
    pub fn no_value_means(&self) -> Option<&'static str> {
        self.with_default(|slot| slot.no_value_means())
    }

    /// The field of the configuration that it sets, e.g. `maxPods`.
    pub fn field(&self) -> Option<&'static str> {
        match self.target {
            Target::Configuration { field, .. } => Some(field),
            _ => None,
        }
    }

    /// What to use instead, if the flag is deprecated.
    pub fn deprecated(&self) -> Option<String> {
        let why = self.deprecated?;
        Some(match self.target {
            Target::Configuration { field, .. } => format!("{why} {field}"),
            _ => why.to_owned(),
        })
    }

    /// One line of help; and for the feature gates one for each that may be set.
    pub(super) fn help(&self) -> String {
        let mut help = match self.target {
            Target::Configuration { field, .. } => format!("The configuration's field {field}"),
            Target::Cadvisor { .. } => "Without effect: there is no cAdvisor".to_owned(),
            _ => self.about.to_owned(),
        };
        let default = self.default_value();
        if !matches!(default.as_str(), "" | "[]") && self.name != "help" {
            help.push_str(&format!(" [default: {default}]"));
        }
        if self.deprecated.is_some() {
            help.push_str(" [deprecated]");
        }
        if self.name == "feature-gates" {
            let unfinished =
                |gate: &&FeatureGate| matches!(gate.stage, FeatureStage::Alpha | FeatureStage::Beta);
            for gate in FeatureGates::known().filter(unfinished) {
                help.push_str(&format!("\n{gate}"));
            }
        }
        help
    }

    fn with_default<T>(&self, read: impl FnOnce(Slot<'_>) -> T) -> T {
        match &self.target {
            Target::Kubelet(slot) => read(slot(&mut KubeletFlags::default())),
            Target::Configuration { slot, .. } => read(slot(&mut KubeletConfiguration::without_file())),
            Target::Cadvisor { slot, .. } => read(slot(&mut Cadvisor::default())),
            Target::Program(slot) => read(slot(&mut Program::default())),
        }
    }

    pub(super) const fn of_kubelet(
        name: &'static str,
        about: &'static str,
        slot: fn(&mut KubeletFlags) -> Slot<'_>,
    ) -> Self {
        Self::new(name, about, Target::Kubelet(slot))
    }

    /// Deprecated unless [`kept`](Self::kept).
    pub(super) const fn of_configuration(
        name: &'static str,
        field: &'static str,
        slot: fn(&mut KubeletConfiguration) -> Slot<'_>,
    ) -> Self {
        Self::new(name, "", Target::Configuration { field, slot })
            .deprecated_for("in the file of --config, set the field")
    }

    /// Deprecated unless [`kept`](Self::kept).
    pub(super) const fn of_cadvisor(
        name: &'static str,
        default: &'static str,
        slot: fn(&mut Cadvisor) -> Slot<'_>,
    ) -> Self {
        Self::new(name, "", Target::Cadvisor { default, slot })
            .deprecated_for("it is a flag of cAdvisor that the kubelet registered by mistake")
    }

    pub(super) const fn of_program(
        name: &'static str,
        about: &'static str,
        slot: fn(&mut Program) -> Slot<'_>,
    ) -> Self {
        Self::new(name, about, Target::Program(slot))
    }

    pub(super) const fn deprecated_for(self, why: &'static str) -> Self {
        Self {
            deprecated: Some(why),
            ..self
        }
    }

    pub(super) const fn kept(self) -> Self {
        Self {
            deprecated: None,
            ..self
        }
    }

    pub(super) const fn short(self, shorthand: char) -> Self {
        Self {
            shorthand: Some(shorthand),
            ..self
        }
    }

    const fn new(name: &'static str, about: &'static str, target: Target) -> Self {
        Self {
            name,
            shorthand: None,
            about,
            deprecated: None,
            target,
        }
    }
}

/// A table of flags: the name, the second argument of `$of`, the slot of a field, and what else is said of the flag.
macro_rules! flags {
    ($of:ident: $($name:literal, $text:literal, $slot:ident($($field:ident).+) $(.$said:ident($($argument:literal)?))*;)*) => {
        &[$(Flag::$of($name, $text, |target| Slot::$slot(&mut target.$($field).+)) $(.$said($($argument)?))*),*]
    };
}
pub(super) use flags;
