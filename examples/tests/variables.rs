//! The variables that set how much a test does.

/// The number in this variable, if it is set.
pub(crate) fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}
