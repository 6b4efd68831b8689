//! `--register-with-taints`: `key=value:effect,key:effect` (`utilflag.RegisterWithTaintsVar`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;

use crate::names;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A taint with `-` at its end is one to take away; it is checked and left out.
pub(super) fn parse(text: &str) -> Result<Vec<Taint>, String> {
    let mut taints = Vec::new();
    if text.is_empty() {
        return Ok(taints);
    }
    let mut seen = BTreeSet::new();
    for spec in text.split(',') {
        if let Some(removed) = spec.strip_suffix('-') {
            taint(removed)?;
            continue;
        }
        let taint = taint(spec)?;
        if taint.effect.is_empty() {
            return Err(format!("invalid taint spec {spec:?}: it has no effect"));
        }
        if !seen.insert((taint.key.clone(), taint.effect.clone())) {
            return Err(format!(
                "duplicated taints with the same key and effect: {spec:?}"
            ));
        }
        taints.push(taint);
    }
    Ok(taints)
}

fn taint(spec: &str) -> Result<Taint, String> {
    let invalid = |why: &str| format!("invalid taint spec {spec:?}: {why}");
    let (pair, effect) = match spec.split_once(':') {
        // Without an effect all is the key.
        None => return check_key(spec).map(|()| with(spec, "", "")).map_err(invalid),
        Some((_, effect)) if effect.contains(':') => return Err(invalid("it has several colons")),
        Some(parts) => parts,
    };
    if !EFFECTS.contains(&effect) {
        return Err(format!(
            "invalid taint effect: {effect}, unsupported taint effect"
        ));
    }
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if value.contains('=') {
        return Err(invalid("it has several equal signs"));
    }
    names::label_value(value).map_err(invalid)?;
    check_key(key).map_err(invalid)?;
    Ok(with(key, value, effect))
}

fn check_key(key: &str) -> Result<(), &'static str> {
    names::qualified_name(key)
}

fn with(key: &str, value: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: (!value.is_empty()).then(|| value.to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs() {
        let keys = |text: &str| -> Option<Vec<String>> {
            let show = |t: Taint| format!("{}={}:{}", t.key, t.value.unwrap_or_default(), t.effect);
            Some(parse(text).ok()?.into_iter().map(show).collect())
        };
        assert_eq!(keys("").unwrap(), [""; 0]);
        assert_eq!(
            keys("a=b:NoSchedule,c.io/d:NoExecute").unwrap(),
            ["a=b:NoSchedule", "c.io/d=:NoExecute"]
        );
        assert_eq!(
            keys("a=b:NoSchedule,a=b:NoExecute,e-,f:NoSchedule-")
                .unwrap()
                .len(),
            2
        );
        for wrong in [
            "a",
            "a=b",
            "a:Bogus",
            "a:",
            ":NoSchedule",
            "a=b=c:NoSchedule",
            "a=b:c:NoSchedule",
            "a=b c:NoSchedule",
            "a=b:NoSchedule,a=c:NoSchedule",
            "a b:NoSchedule",
            "a:NoSchedule,",
            "b c-",
        ] {
            assert_eq!(keys(wrong), None, "{wrong:?}");
        }
    }
}
