//! What a flag sets, and how the text of its value is read: as pflag and the kubelet's own flag types read it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::WrittenAmount;

use super::numbers::{parse_int, parse_level};
use super::program::Version;
use super::{comma_separated, reserved_memory, taints};
use crate::feature_gates;
use crate::kubelet_configuration::{GoDuration, MemoryReservation, VModuleItem};
use crate::names;

/// The place that a flag's value goes to, and by that the flag's type.
pub(super) enum Slot<'a> {
    Bool(&'a mut bool),
    Int(&'a mut i64),
    Int32(&'a mut i32),
    Int64(&'a mut i64),
    Text(&'a mut String),
    Duration(&'a mut GoDuration),
    Ip(&'a mut String),
    /// Comma-separated, quoted where need be; given several times the values add up.
    List(&'a mut Vec<String>),
    /// `a=b,c=d`; adds up.
    Map(&'a mut BTreeMap<String, String>),
    /// `a=b`, one at a time, commas included; adds up.
    MapEntry(&'a mut BTreeMap<String, String>),
    /// `a<b,c<d`; adds up.
    Thresholds(&'a mut BTreeMap<String, String>),
    /// `a=b,c`; adds up, to what is there as well.
    Labels(&'a mut BTreeMap<String, String>),
    /// `A=true,B=false`; adds up.
    Gates(&'a mut BTreeMap<String, bool>),
    /// `a:b,a:c`; adds up.
    Headers(&'a mut BTreeMap<String, Vec<String>>),
    Quantity(&'a mut Quantity),
    ReservedMemory(&'a mut Vec<MemoryReservation>),
    Taints(&'a mut Vec<Taint>),
    Level(&'a mut u32),
    /// `pattern=N,…`; adds up, to what is there as well.
    VModule(&'a mut Vec<VModuleItem>),
    Version(&'a mut Version),
}

impl Slot<'_> {
    /// Reads a value. The `first` one of a flag replaces what is there, where others add up.
    pub(super) fn set(self, value: &str, first: bool) -> Result<(), String> {
        match self {
            Self::Bool(slot) => *slot = parse_bool(value)?,
            Self::Int(slot) | Self::Int64(slot) => *slot = parse_int(value)?,
            Self::Int32(slot) => *slot = parse_int(value)?,
            Self::Text(slot) => value.clone_into(slot),
            Self::Duration(slot) => *slot = value.parse::<GoDuration>().map_err(|error| error.to_string())?,
            // As if it was not given.
            Self::Ip(_) if value.is_empty() => {}
            Self::Ip(slot) => {
                names::ip_address(value).map_err(|_| format!("{value:?} is not a valid IP address"))?;
                value.clone_into(slot);
            }
            Self::List(slot) => {
                let values = comma_separated::parse(value)?;
                cleared(slot, first).extend(values);
            }
            Self::Map(slot) => set_pairs(cleared(slot, first), value, '=')?,
            Self::MapEntry(slot) => {
                let (key, value) = pair(value, '=')?;
                cleared(slot, first).insert(key, value);
            }
            Self::Thresholds(slot) => set_pairs(cleared(slot, first), value, '<')?,
            Self::Labels(slot) => {
                for label in entries(value) {
                    let (key, value) = label.split_once('=').unwrap_or((label, ""));
                    slot.insert(key.trim().to_owned(), value.trim().to_owned());
                }
            }
            Self::Gates(slot) => {
                let gates = feature_gates::parse(value).map_err(|error| error.to_string())?;
                cleared(slot, first).extend(gates);
            }
            Self::Headers(slot) => {
                let slot = cleared(slot, first);
                for header in entries(value) {
                    let (name, value) = pair(header, ':')?;
                    slot.entry(name).or_default().push(value);
                }
            }
            Self::Quantity(slot) => {
                let amount = value.parse::<WrittenAmount>();
                *slot = amount.map_err(|error| error.to_string())?.into();
            }
            // As if it was not given.
            Self::ReservedMemory(_) if value.is_empty() => {}
            Self::ReservedMemory(slot) => {
                let reservations = reserved_memory::parse(value)?;
                cleared(slot, first).extend(reservations);
            }
            Self::Taints(slot) => *slot = taints::parse(value)?,
            Self::Level(slot) => *slot = parse_level(value)?,
            Self::VModule(slot) => {
                for item in entries(value) {
                    slot.push(parse_vmodule_item(item)?);
                }
            }
            Self::Version(slot) => *slot = value.parse()?,
        }
        Ok(())
    }

    /// What the kubelet's help calls the type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int32(_) => "int32",
            Self::Int64(_) => "int64",
            Self::Text(_) => "string",
            Self::Duration(_) => "duration",
            Self::Ip(_) => "ip",
            Self::List(_) => "stringSlice",
            Self::Map(_) | Self::MapEntry(_) | Self::Thresholds(_) | Self::Labels(_) => "mapStringString",
            Self::Gates(_) => "mapStringBool",
            Self::Headers(_) => "colonSeparatedMultimapStringString",
            Self::Quantity(_) => "quantity",
            Self::ReservedMemory(_) => "reserved-memory",
            Self::Taints(_) => "[]v1.Taint",
            Self::Level(_) => "Level",
            Self::VModule(_) => "pattern=N,...",
            Self::Version(_) => "version",
        }
    }

    /// What the flag means without a value; one must be given unless there is such a meaning.
    pub(super) fn no_value_means(&self) -> Option<&'static str> {
        matches!(self, Self::Bool(_) | Self::Version(_)).then_some("true")
    }

    /// What is there, as the kubelet's help shows the default. Maps and the like have an empty one.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Bool(slot) => slot.to_string(),
            Self::Int(slot) | Self::Int64(slot) => slot.to_string(),
            Self::Int32(slot) => slot.to_string(),
            Self::Text(slot) | Self::Ip(slot) => (**slot).clone(),
            Self::Duration(slot) => slot.to_string(),
            Self::List(slot) => format!("[{}]", slot.join(",")),
            Self::Quantity(slot) => slot.0.clone(),
            Self::Level(slot) => slot.to_string(),
            Self::Version(slot) => slot.to_string(),
            Self::Map(_)
            | Self::MapEntry(_)
            | Self::Thresholds(_)
            | Self::Labels(_)
            | Self::Gates(_)
            | Self::Headers(_)
            | Self::ReservedMemory(_)
            | Self::Taints(_)
            | Self::VModule(_) => String::new(),
        }
    }
}

/// The slot, emptied before the first value.
fn cleared<T: Default>(slot: &mut T, first: bool) -> &mut T {
    if first {
        *slot = T::default();
    }
    slot
}

fn entries(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').filter(|entry| !entry.is_empty())
}

fn set_pairs(map: &mut BTreeMap<String, String>, value: &str, separator: char) -> Result<(), String> {
    for entry in entries(value) {
        let (key, value) = pair(entry, separator)?;
        map.insert(key, value);
    }
    Ok(())
}

fn pair(entry: &str, separator: char) -> Result<(String, String), String> {
    let (key, value) = entry
        .split_once(separator)
        .ok_or_else(|| format!("malformed pair {entry:?}, expect string{separator}string"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn parse_bool(value: &str) -> Result<bool, String> {
    feature_gates::parse_bool(value).ok_or_else(|| format!("{value:?} is not a boolean"))
}

fn parse_vmodule_item(item: &str) -> Result<VModuleItem, String> {
    let malformed = || format!("{item:?} does not have the pattern=N format");
    let (file_pattern, level) = item.split_once('=').ok_or_else(malformed)?;
    if file_pattern.is_empty() || level.is_empty() || level.contains('=') {
        return Err(malformed());
    }
    Ok(VModuleItem {
        file_pattern: file_pattern.to_owned(),
        verbosity: parse_level(level)?,
    })
}
