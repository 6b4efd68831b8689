//! `--reserved-memory`: `0:memory=1Gi,hugepages-1Gi=1Gi;1:memory=2Gi` (`utilflag.ReservedMemoryVar`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::WrittenAmount;

use super::numbers::parse_decimal;
use crate::kubelet_configuration::MemoryReservation;

pub(super) fn parse(text: &str) -> Result<Vec<MemoryReservation>, String> {
    text.split(';').map(reservation).collect()
}

fn reservation(text: &str) -> Result<MemoryReservation, String> {
    let (node, limits) = split_once_only(text, ':')
        .ok_or_else(|| format!("{text:?} is not numaNode:type=quantity[,type=quantity...]"))?;
    let numa_node: i64 =
        parse_decimal(node).map_err(|_| format!("the NUMA node must be a number, got {node:?}"))?;
    let limits = limits
        .split(',')
        .map(limit)
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the kubelet keeps the low 32 bits"
    )]
    let numa_node = numa_node as i32;
    Ok(MemoryReservation { numa_node, limits })
}

fn limit(text: &str) -> Result<(String, Quantity), String> {
    let (kind, amount) =
        split_once_only(text, '=').ok_or_else(|| format!("{text:?} is not type=quantity"))?;
    if kind != "memory" && !kind.starts_with("hugepages-") {
        return Err(format!("{kind:?} is not a type of memory"));
    }
    let amount = amount.parse::<WrittenAmount>();
    let amount = amount.map_err(|error| error.to_string())?;
    Ok((kind.to_owned(), amount.into()))
}

/// The two parts of a text with just one separator.
fn split_once_only(text: &str, separator: char) -> Option<(&str, &str)> {
    text.split_once(separator)
        .filter(|(_, rest)| !rest.contains(separator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations() {
        let parsed = parse("0:memory=1Gi,hugepages-1Gi=1Gi;1:memory=2Gi").unwrap();
        let nodes: Vec<_> = parsed.iter().map(|r| (r.numa_node, r.limits.len())).collect();
        assert_eq!(nodes, [(0, 2), (1, 1)]);
        assert_eq!(parsed[0].limits["hugepages-1Gi"].0, "1Gi");
        for wrong in [
            "",
            "x",
            "0",
            "0:",
            "a:memory=1",
            "0:memory",
            "0:cpu=1",
            "0:memory=x",
            "0:memory=1:2",
            "0:memory=1;",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
