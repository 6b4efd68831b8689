//! Ways to choose some of a list, in the memory that Go's slices would share.
//!
//! The kubelet keeps the best combination as a slice. Appending to a slice with spare capacity writes to the memory that
//! other slices share, so a later combination with the same beginning can overwrite the one that was kept: with four, six,
//! seven or eight elements, the last element of the kept one changes. A node that takes over from the kubelet must choose
//! the same CPUs, so a [`Combination`] has the same memory.

use std::cell::RefCell;
use std::rc::Rc;

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Stop,
}

/// A combination. Its values may change when the next ones are formed.
#[derive(Clone)]
pub(super) struct Combination {
    memory: Rc<RefCell<Vec<usize>>>,
    len: usize,
    capacity: usize,
}

impl Combination {
    fn empty() -> Self {
        Self {
            memory: Rc::default(),
            len: 0,
            capacity: 0,
        }
    }

    /// Its values at this moment.
    pub(super) fn values(&self) -> Vec<usize> {
        self.memory.borrow()[..self.len].to_vec()
    }

    /// Go's `append`: in place if there is capacity, which doubles when it is used up.
    fn append(&self, value: usize) -> Self {
        let len = self.len + 1;
        if self.len < self.capacity {
            let mut memory = self.memory.borrow_mut();
            match memory.get_mut(self.len) {
                Some(place) => *place = value,
                None => memory.push(value),
            }
            return Self {
                len,
                memory: Rc::clone(&self.memory),
                capacity: self.capacity,
            };
        }
        let mut values = self.values();
        values.push(value);
        Self {
            memory: Rc::new(RefCell::new(values)),
            len,
            capacity: (2 * self.capacity).max(1),
        }
    }
}

/// Calls `visit` with each way to choose `size` of the items, in lexicographic order of their positions
/// (`iterateCombinations`).
pub(super) fn for_each_combination(
    items: &[usize],
    size: usize,
    mut visit: impl FnMut(&Combination) -> Flow,
) {
    if size > 0 {
        extend(items, size, &Combination::empty(), &mut visit);
    }
}

fn extend(
    items: &[usize],
    missing: usize,
    chosen: &Combination,
    visit: &mut dyn FnMut(&Combination) -> Flow,
) -> Flow {
    if missing == 0 {
        return visit(chosen);
    }
    let starts = (items.len() + 1).saturating_sub(missing);
    for start in 0..starts {
        let chosen = chosen.append(items[start]);
        if extend(&items[start + 1..], missing - 1, &chosen, visit) == Flow::Stop {
            return Flow::Stop;
        }
    }
    Flow::Continue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(items: &[usize], size: usize) -> Vec<Vec<usize>> {
        let mut seen = Vec::new();
        for_each_combination(items, size, |combination| {
            seen.push(combination.values());
            Flow::Continue
        });
        seen
    }

    #[test]
    fn each_combination_is_visited_once() {
        assert_eq!(all(&[3, 1, 2], 2), [[3, 1], [3, 2], [1, 2]]);
        assert_eq!(all(&[3, 1], 3), Vec::<Vec<usize>>::new());
        assert_eq!(all(&[3, 1], 0), Vec::<Vec<usize>>::new());
        assert_eq!(all(&[0, 1, 2, 3, 4, 5, 6, 7], 4).len(), 70);
    }

    /// The first combination of this size, read after all others were formed.
    fn first_at_the_end(size: usize) -> Vec<usize> {
        let mut first = None;
        for_each_combination(&[0, 1, 2, 3, 4, 5, 6, 7], size, |combination| {
            first.get_or_insert_with(|| combination.clone());
            Flow::Continue
        });
        first.unwrap().values()
    }

    #[test]
    fn a_kept_combination_changes_where_slices_share_memory() {
        assert_eq!(first_at_the_end(3), [0, 1, 2]);
        assert_eq!(first_at_the_end(4), [0, 1, 2, 7]);
        assert_eq!(first_at_the_end(5), [0, 1, 2, 3, 4]);
        assert_eq!(first_at_the_end(6), [0, 1, 2, 3, 4, 7]);
        assert_eq!(first_at_the_end(7), [0, 1, 2, 3, 4, 6, 7]);
    }
}
