//! The versions of CSI that a driver has.

/// A version as plugins write it: two numbers or more, with dots, and whatever follows them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(Vec<u64>);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

impl Version {
    /// (`version.ParseGeneric`)
    fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim_start();
        let trimmed = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let end = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let numbers = trimmed[..end].trim_end_matches('.');
        // "1..2": the numbers end at the first dot without a number.
        let numbers = numbers.split("..").next().unwrap_or_default();
        if numbers.is_empty() || numbers.starts_with('.') {
            return Err(format!("could not parse {text:?} as version"));
        }
        let parts: Vec<&str> = numbers.split('.').collect();
        if parts.len() < 2 {
            return Err(format!("illegal version string {text:?}"));
        }
        if parts[0].len() > 1 && parts[0].starts_with('0') {
            return Err(format!(
                "illegal zero-prefixed version component {:?} in {text:?}",
                parts[0]
            ));
        }
        let parsed: Result<Vec<u64>, _> = parts.iter().map(|part| part.parse()).collect();
        parsed
            .map(Self)
            .map_err(|error| format!("illegal non-numeric version component in {text:?}: {error}"))
    }

    fn major(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Whether it is older; a missing number is 0, so `1.0` is not older than `1.0.0`.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let length = self.0.len().max(other.0.len());
        let at = |version: &Self, index: usize| version.0.get(index).copied().unwrap_or_default();
        (0..length)
            .map(|index| at(self, index).cmp(&at(other, index)))
            .find(|order| order.is_ne())
            .is_some_and(std::cmp::Ordering::is_lt)
    }
}

/// The highest version that this node can use too (`HighestSupportedVersion`). It must be 1.x.
pub(crate) fn highest_supported(versions: &[String]) -> Result<Version, String> {
    let mut highest: Option<Version> = None;
    let mut problem = None;
    for text in versions.iter().rev() {
        match Version::parse(text) {
            Ok(version) if version.major() > 1 => {}
            Ok(version)
                if highest
                    .as_ref()
                    .is_none_or(|highest| highest.is_older_than(&version)) =>
            {
                highest = Some(version);
            }
            Ok(_) => {}
            Err(error) => problem = Some(error),
        }
    }
    let Some(highest) = highest else {
        let listed = versions.join(" ");
        let problem = problem.as_deref().unwrap_or("<nil>");
        return Err(format!(
            "could not find a highest supported version from versions ([{listed}]) reported: {problem}"
        ));
    };
    if highest.major() != 1 {
        return Err(format!(
            "highest supported version reported is {highest}, must be v1.x"
        ));
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_1_counts() {
        for (versions, expected) in [
            (&["1.0.0"][..], Ok("1.0.0")),
            (&["v1.2", "1.10.0-rc1", "0.3.0"], Ok("1.10.0")),
            (&["2.0.0", "1.1.0"], Ok("1.1.0")),
            (
                &["0.3.0", "0.2.0"],
                Err("highest supported version reported is 0.3.0, must be v1.x"),
            ),
            (
                &["2.0", "3.1"],
                Err("could not find a highest supported version from versions ([2.0 3.1]) reported: <nil>"),
            ),
            (
                &["x", "1"],
                Err(
                    "could not find a highest supported version from versions ([x 1]) reported: could not parse \"x\" as version",
                ),
            ),
            (
                &["01.2"],
                Err(
                    "could not find a highest supported version from versions ([01.2]) reported: illegal zero-prefixed version component \"01\" in \"01.2\"",
                ),
            ),
        ] {
            let listed: Vec<String> = versions.iter().map(ToString::to_string).collect();
            let found = highest_supported(&listed).map(|version| version.to_string());
            assert_eq!(
                found,
                expected.map(str::to_string).map_err(str::to_string),
                "{versions:?}"
            );
        }
    }
}
