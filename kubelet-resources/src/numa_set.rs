//! Sets of NUMA nodes.

use std::fmt;

/// A set of NUMA nodes with ids below 64 (`bitmask.BitMask`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NumaSet(u64);

impl NumaSet {
    /// The number of nodes that can be represented. Ids are lower.
    pub const MAX_NODES: usize = 64;

    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The set of these nodes. `None` if an id is 64 or higher.
    pub fn of(nodes: impl IntoIterator<Item = usize>) -> Option<Self> {
        nodes.into_iter().try_fold(Self::EMPTY, |set, node| {
            (node < Self::MAX_NODES).then(|| Self(set.0 | 1 << node))
        })
    }

    /// The set whose node `i` is bit `i`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Bit `i` is node `i`.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether it has no node.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of nodes.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the node is in the set.
    pub const fn contains(self, node: usize) -> bool {
        node < Self::MAX_NODES && self.0 & (1 << node) != 0
    }

    /// Whether all nodes of this set are in the other one.
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The nodes that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let node = rest.trailing_zeros() as usize;
            (rest != 0).then(|| {
                rest &= rest - 1;
                node
            })
        })
    }

    /// Whether it has fewer nodes, or as many with lower ids (`IsNarrowerThan`).
    pub fn is_narrower_than(self, other: Self) -> bool {
        (self.len(), self.0) < (other.len(), other.0)
    }

    /// All non-empty subsets, small ones first; those of one size in the order of their ids (`IterateBitMasks`).
    ///
    /// There are 2ⁿ − 1 of them for `n` nodes.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let nodes: Vec<usize> = self.iter().collect();
        (1..=nodes.len()).flat_map(move |size| Combinations::new(nodes.clone(), size))
    }
}

/// As a list of ids, e.g. `0,2`.
impl fmt::Display for NumaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{node}")?;
        }
        Ok(())
    }
}

/// All ways to choose `size` of the nodes, in lexicographic order.
struct Combinations {
    nodes: Vec<usize>,
    /// Positions in `nodes`. `None` once all were returned.
    chosen: Option<Vec<usize>>,
}

impl Combinations {
    fn new(nodes: Vec<usize>, size: usize) -> Self {
        let chosen = (size <= nodes.len()).then(|| (0..size).collect());
        Self { nodes, chosen }
    }
}

impl Iterator for Combinations {
    type Item = NumaSet;

    fn next(&mut self) -> Option<NumaSet> {
        let chosen = self.chosen.as_mut()?;
        let set = NumaSet(chosen.iter().fold(0, |bits, &at| bits | 1 << self.nodes[at]));
        // The last position that can still move up does; those after it follow closely.
        let (size, total) = (chosen.len(), self.nodes.len());
        match (0..size).rfind(|&index| chosen[index] < total - (size - index)) {
            None => self.chosen = None,
            Some(index) => {
                let first = chosen[index] + 1;
                for (offset, at) in chosen[index..].iter_mut().enumerate() {
                    *at = first + offset;
                }
            }
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_come_by_size_and_then_by_id() {
        let set = NumaSet::of([0, 1, 3]).unwrap();
        let texts: Vec<String> = set.subsets().map(|set| set.to_string()).collect();
        assert_eq!(texts, ["0", "1", "3", "0,1", "0,3", "1,3", "0,1,3"]);
        assert_eq!(NumaSet::EMPTY.subsets().count(), 0);
        assert_eq!(NumaSet::of(0..8).unwrap().subsets().count(), 255);
    }

    #[test]
    fn fewer_nodes_are_narrower_and_then_lower_ones() {
        let of = |nodes: &[usize]| NumaSet::of(nodes.iter().copied()).unwrap();
        assert!(of(&[3]).is_narrower_than(of(&[0, 1])));
        assert!(of(&[0, 2]).is_narrower_than(of(&[1, 2])));
        assert!(!of(&[0]).is_narrower_than(of(&[0])));
        assert_eq!(NumaSet::of([64]), None);
    }
}
