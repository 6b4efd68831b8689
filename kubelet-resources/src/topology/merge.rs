//! The merge of hints: the best set of nodes that suits all resources.
//!
//! The kubelet goes through each way to choose one hint for each resource, and keeps the best of all the intersections.
//! With eight NUMA nodes and four resources these are 255⁴ ways. The order of "better" is total, so the result depends
//! only on which intersections can be reached, and whether with preferred hints. These are at most 2ⁿ, and are found one
//! resource after the other.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::distances::NodeOrder;
use super::hint::{ResourceHints, TopologyHint};
use crate::numa_set::NumaSet;

/// One list for each resource of each provider (`filterProvidersHints`).
pub(crate) fn lists_of(providers: Vec<ResourceHints>) -> Vec<Vec<TopologyHint>> {
    let mut lists = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            lists.push(vec![TopologyHint::any(true)]);
        }
        lists.extend(hints.into_values().map(|hints| match hints {
            None => vec![TopologyHint::any(true)],
            Some(hints) if hints.is_empty() => vec![TopologyHint::any(false)],
            Some(hints) => hints,
        }));
    }
    lists
}

/// The best hint that suits all lists (`HintMerger.Merge`). If none does: all nodes, not preferred.
pub(crate) fn merge(lists: &[Vec<TopologyHint>], order: &NodeOrder) -> TopologyHint {
    if let Some(nodes) = best_preferred(lists, order) {
        return TopologyHint::new(nodes, true);
    }
    let wanted = wanted_size(lists);
    let best = intersections(lists, order.all)
        .into_iter()
        .filter(|nodes| !nodes.is_empty())
        .min_by(|a, b| compare_unpreferred(*a, *b, wanted, order));
    TopologyHint::new(best.unwrap_or(order.all), false)
}

/// The best set that each list has as a preferred hint. A preferred hint for any nodes goes with each set.
fn best_preferred(lists: &[Vec<TopologyHint>], order: &NodeOrder) -> Option<NumaSet> {
    // `None`: no list has restricted the sets yet.
    let mut common: Option<BTreeSet<NumaSet>> = None;
    // Sets reached by choosing "any nodes" in all lists so far.
    let mut only_any = true;
    for list in lists {
        let preferred = list.iter().filter(|hint| hint.preferred);
        let (mut sets, mut any) = (BTreeSet::new(), false);
        for hint in preferred {
            match hint.nodes {
                Some(nodes) => {
                    sets.insert(nodes);
                }
                None => any = true,
            }
        }
        let before = common.take().unwrap_or_default();
        let mut after: BTreeSet<NumaSet> = before.intersection(&sets).copied().collect();
        if any {
            after.extend(&before);
        }
        if only_any {
            after.extend(&sets);
        }
        only_any &= any;
        if after.is_empty() && !only_any {
            return None;
        }
        common = Some(after);
    }
    let any = only_any.then_some(order.all);
    let sets = common.into_iter().flatten().map(|nodes| nodes.and(order.all));
    sets.chain(any)
        .filter(|nodes| !nodes.is_empty())
        .min_by(|a, b| order.compare(*a, *b))
}

/// All intersections of one hint of each list.
fn intersections(lists: &[Vec<TopologyHint>], all: NumaSet) -> BTreeSet<NumaSet> {
    let mut reached = BTreeSet::from([all]);
    for list in lists {
        let masks: BTreeSet<NumaSet> = list
            .iter()
            .map(|hint| hint.nodes.unwrap_or(all).and(all))
            .collect();
        reached = pairwise(&reached, &masks, all);
    }
    reached
}

/// The intersection of each set of the one side with each set of the other one.
fn pairwise(one: &BTreeSet<NumaSet>, other: &BTreeSet<NumaSet>, all: NumaSet) -> BTreeSet<NumaSet> {
    let pairs = one.len() * other.len();
    let dense = 1_usize
        .checked_shl(all.len() as u32)
        .and_then(|sets| sets.checked_mul(all.len()));
    if dense.is_none_or(|steps| pairs <= steps) {
        return one
            .iter()
            .flat_map(|a| other.iter().map(move |b| a.and(*b)))
            .collect();
    }
    // A pair is within the supersets of a set if both its members are. So the number of pairs whose intersection is a superset
    // is a product, and the number of those that intersect in the set itself follows by inclusion and exclusion.
    let nodes: Vec<usize> = all.iter().collect();
    let (one, other) = (Supersets::of(one, &nodes), Supersets::of(other, &nodes));
    one.product(&other).sets()
}

/// For each set of nodes the number of its supersets that are in a collection.
struct Supersets<'a> {
    nodes: &'a [usize],
    /// By the set, in which bit `i` is the `i`-th node.
    counts: Vec<u64>,
}

impl<'a> Supersets<'a> {
    fn of(sets: &BTreeSet<NumaSet>, nodes: &'a [usize]) -> Self {
        let mut counts = vec![0; 1 << nodes.len()];
        for set in sets {
            let bits = nodes
                .iter()
                .enumerate()
                .map(|(bit, node)| usize::from(set.contains(*node)) << bit);
            counts[bits.sum::<usize>()] = 1;
        }
        let mut supersets = Self { nodes, counts };
        supersets.for_each_pair(|count, with_node| *count += with_node);
        supersets
    }

    fn product(mut self, other: &Self) -> Self {
        for (count, factor) in self.counts.iter_mut().zip(&other.counts) {
            *count *= factor;
        }
        self
    }

    /// The collection.
    fn sets(mut self) -> BTreeSet<NumaSet> {
        self.for_each_pair(|count, with_node| *count -= with_node);
        let nodes = self.nodes;
        let of_bits = |bits: usize| {
            let members = nodes.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            members.fold(0, |set, (_, node)| set | 1 << node)
        };
        let present = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        present
            .map(|(bits, _)| NumaSet::from_bits(of_bits(bits)))
            .collect()
    }

    /// Calls `change` for each node with the count of each set without it and that of the set with it.
    fn for_each_pair(&mut self, change: impl Fn(&mut u64, u64)) {
        for bit in 0..self.nodes.len() {
            for set in 0..self.counts.len() {
                if set >> bit & 1 == 0 {
                    let with_node = self.counts[set | 1 << bit];
                    change(&mut self.counts[set], with_node);
                }
            }
        }
    }
}

/// As many nodes as the resource needs that needs most (`maxOfMinAffinityCounts`).
fn wanted_size(lists: &[Vec<TopologyHint>]) -> usize {
    let smallest = lists.iter().filter_map(|list| {
        let sizes = list.iter().filter_map(|hint| hint.nodes).map(NumaSet::len);
        sizes.min()
    });
    smallest.max().unwrap_or_default()
}

/// `Less` if the first set is better: as close to the wanted size as possible from below, and else as small as possible
/// (`HintMerger.compare`).
fn compare_unpreferred(a: NumaSet, b: NumaSet, wanted: usize, order: &NodeOrder) -> Ordering {
    let (a_fits, b_fits) = (a.len() <= wanted, b.len() <= wanted);
    match (a_fits, b_fits) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (true, true) => b.len().cmp(&a.len()).then_with(|| order.compare(a, b)),
        (false, false) => order.compare(a, b),
    }
}
