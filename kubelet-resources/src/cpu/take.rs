//! Chooses CPUs for a request: packed, or spread over NUMA nodes (`cpu_assignment.go`).

use super::accumulator::Accumulator;
use super::combinations::{Flow, for_each_combination};
use super::options::CpuPolicyOptions;
use super::topology::CpuTopology;
use crate::cpu_set::CpuSet;
use crate::{Error, Result};

/// Chooses `count` of the available CPUs as the options want it (`takeByTopology`).
///
/// # Errors
///
/// If there are too few.
pub(super) fn take_cpus(
    topology: &CpuTopology,
    options: CpuPolicyOptions,
    available: &CpuSet,
    count: usize,
) -> Result<CpuSet> {
    let spread = options.distribute_across_cores;
    if options.distribute_across_numa {
        let group = match options.full_physical_cpus_only {
            true => topology.cpus_per_core().max(1),
            false => 1,
        };
        return distributed(topology, available, count, group, spread);
    }
    let by_cache = options.prefer_align_by_uncore_cache;
    packed(topology, available, count, spread, by_cache)
}

/// From as few sockets, nodes, caches and cores as possible, best fit first (`takeByTopologyNUMAPacked`).
fn packed(
    topology: &CpuTopology,
    available: &CpuSet,
    count: usize,
    spread: bool,
    by_cache: bool,
) -> Result<CpuSet> {
    let mut accumulator = Accumulator::new(topology, available, count, spread);
    check(&accumulator, available)?;
    accumulator.take_sockets_and_nodes();
    if by_cache && accumulator.needed > 0 {
        accumulator.take_caches();
    }
    if !spread && accumulator.needed > 0 {
        accumulator.take_cores();
    }
    if accumulator.needed > 0 {
        accumulator.take_cpus();
    }
    match accumulator.needed {
        0 => Ok(accumulator.taken),
        _ => Err(Error::Allocation("failed to allocate cpus".to_owned())),
    }
}

/// Evenly from as few NUMA nodes as possible, in groups of this many CPUs; packed if that is not possible
/// (`takeByTopologyNUMADistributed`).
fn distributed(
    topology: &CpuTopology,
    available: &CpuSet,
    count: usize,
    group: usize,
    spread: bool,
) -> Result<CpuSet> {
    if !count.is_multiple_of(group) {
        return packed(topology, available, count, spread, false);
    }
    let mut accumulator = Accumulator::new(topology, available, count, spread);
    check(&accumulator, available)?;
    if count == 0 {
        return Ok(CpuSet::new());
    }
    let nodes = accumulator.sorted_nodes();
    let (fewest, most) = range_of_nodes(&accumulator, group, nodes.len());
    for size in fewest..=most {
        let Some(choice) = most_balanced(&accumulator, &nodes, size, count, group) else {
            continue;
        };
        let share = count / choice.nodes.len() / group * group;
        for node in &choice.nodes {
            take_from(&mut accumulator, *node, share)?;
        }
        let mut rest = count - share * choice.nodes.len();
        while rest > 0 {
            let before = rest;
            for node in &choice.rest {
                if rest == 0 {
                    break;
                }
                if accumulator.free_in(&topology.numa, *node) >= group {
                    take_from(&mut accumulator, *node, group)?;
                    rest -= group;
                }
            }
            if rest == before {
                break;
            }
        }
        return match accumulator.taken.len().cmp(&count) {
            std::cmp::Ordering::Equal => Ok(accumulator.taken),
            std::cmp::Ordering::Less => Err(Error::Allocation(format!(
                "accounting error, not enough CPUs allocated, remaining: {}",
                count - accumulator.taken.len()
            ))),
            std::cmp::Ordering::Greater => Err(Error::Allocation(format!(
                "accounting error, too many CPUs allocated, remaining: -{}",
                accumulator.taken.len() - count
            ))),
        };
    }
    packed(topology, available, count, spread, false)
}

fn check(accumulator: &Accumulator<'_>, available: &CpuSet) -> Result<()> {
    let requested = accumulator.needed;
    match requested > accumulator.free.len() {
        true => Err(Error::Allocation(format!(
            "not enough cpus available to satisfy request: requested={requested}, available={}",
            available.len()
        ))),
        false => Ok(()),
    }
}

fn take_from(accumulator: &mut Accumulator<'_>, node: usize, count: usize) -> Result<()> {
    let topology = accumulator.topology;
    let free = accumulator.free_cpus(&topology.numa, node);
    // The kubelet takes nothing where this fails.
    let cpus = packed(topology, &free, count, accumulator.spread, false).unwrap_or_default();
    accumulator.take(&cpus);
    Ok(())
}

/// How many nodes are needed at least, and useful at most (`rangeNUMANodesNeededToSatisfy`).
fn range_of_nodes(accumulator: &Accumulator<'_>, group: usize, nodes_available: usize) -> (usize, usize) {
    let topology = accumulator.topology;
    let groups = topology.cpus.len().div_ceil(group);
    let groups_of_node = groups.div_ceil(topology.numa.len().max(1)).max(1);
    let groups_needed = accumulator.needed.div_ceil(group);
    (
        groups_needed.div_ceil(groups_of_node),
        groups_needed.min(nodes_available),
    )
}

/// From which nodes CPUs are taken evenly, and from which of them the remainder.
struct Choice {
    nodes: Vec<usize>,
    rest: Vec<usize>,
}

/// The choice of `size` nodes after which the free CPUs are spread most evenly over all nodes.
fn most_balanced(
    accumulator: &Accumulator<'_>,
    nodes: &[usize],
    size: usize,
    count: usize,
    group: usize,
) -> Option<Choice> {
    let numa = &accumulator.topology.numa;
    let free_of = |node: usize| accumulator.free_in(numa, node);
    let mut best = None;
    let mut best_balance = f64::MAX;
    for_each_combination(nodes, size, |combination| {
        if best_balance == 0.0 {
            return Flow::Stop;
        }
        let chosen = combination.values();
        let share = count / size / group * group;
        let groups: usize = chosen.iter().map(|node| free_of(*node) / group).sum();
        if groups * group < count || chosen.iter().any(|node| free_of(*node) < share) {
            return Flow::Continue;
        }
        let after = nodes.iter().map(|node| {
            let taken = if chosen.contains(node) { share } else { 0 };
            (*node, free_of(*node) - taken)
        });
        let after: Vec<(usize, usize)> = after.collect();
        let (balance, rest) = best_remainder(&after, &chosen, count - share * size, group);
        if balance < best_balance {
            best_balance = balance;
            best = Some((combination.clone(), rest));
        }
        Flow::Continue
    });
    let (combination, rest) = best?;
    Some(Choice {
        nodes: combination.values(),
        rest,
    })
}

/// From which of the chosen nodes the remainder is taken, and how balanced the nodes are then.
fn best_remainder(
    after: &[(usize, usize)],
    chosen: &[usize],
    remainder: usize,
    group: usize,
) -> (f64, Vec<usize>) {
    if remainder == 0 {
        return (standard_deviation(after), Vec::new());
    }
    let free_of = |node: &usize| {
        after
            .iter()
            .find(|(id, _)| id == node)
            .map_or(0, |(_, free)| *free)
    };
    let candidates: Vec<usize> = chosen
        .iter()
        .copied()
        .filter(|node| free_of(node) >= group)
        .collect();
    let (mut best_balance, mut best) = (f64::MAX, None);
    for size in (1..=candidates.len()).rev() {
        for_each_combination(&candidates, size, |subset| {
            let nodes = subset.values();
            if nodes.iter().map(free_of).sum::<usize>() < remainder {
                return Flow::Continue;
            }
            if let Some(left) = hand_out(after, &nodes, remainder, group) {
                let balance = standard_deviation(&left);
                if balance < best_balance {
                    best_balance = balance;
                    best = Some(subset.clone());
                }
            }
            Flow::Continue
        });
    }
    (
        best_balance,
        best.map(|subset| subset.values()).unwrap_or_default(),
    )
}

/// What is left when each of the nodes in turn gives a group until the remainder is handed out.
fn hand_out(
    after: &[(usize, usize)],
    nodes: &[usize],
    mut remainder: usize,
    group: usize,
) -> Option<Vec<(usize, usize)>> {
    let mut left = after.to_vec();
    while remainder > 0 {
        let before = remainder;
        for node in nodes {
            let free = left.iter_mut().find(|(id, _)| id == node).map(|(_, free)| free)?;
            if remainder > 0 && *free >= group {
                *free -= group;
                remainder -= group;
            }
        }
        // The nodes have fragments only.
        if remainder == before {
            return None;
        }
    }
    Some(left)
}

/// To three digits, as the kubelet compares it.
fn standard_deviation(free: &[(usize, usize)]) -> f64 {
    let count = free.len() as f64;
    let sum: usize = free.iter().map(|(_, free)| free).sum();
    let mean = round(sum as f64 / count);
    let squares = free.iter().map(|(_, free)| (*free as f64 - mean).powi(2));
    round((squares.sum::<f64>() / count).sqrt())
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
