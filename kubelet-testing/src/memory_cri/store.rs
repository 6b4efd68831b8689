//! Objects with ids, in the order of their creation.

use std::collections::BTreeMap;
use std::fmt;

use kubelet_cri::Code;

/// Objects by number, the oldest first, with an index of ids.
#[derive(Debug)]
pub(super) struct Store<T> {
    items: BTreeMap<u64, T>,
    ids: BTreeMap<String, u64>,
    next: u64,
    version: u64,
}

impl<T> Store<T> {
    pub(super) fn insert(&mut self, id: String, item: T) -> u64 {
        self.version += 1;
        let number = self.next;
        self.next += 1;
        self.ids.insert(id, number);
        self.items.insert(number, item);
        number
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<T> {
        let number = self.ids.remove(id)?;
        self.version += 1;
        self.items.remove(&number)
    }

    /// The number for an id, or for a prefix of exactly one id.
    pub(super) fn find(&self, id: &str) -> Result<u64, Missing> {
        if id.is_empty() {
            return Err(Missing::Empty);
        }
        let mut alike = self
            .ids
            .range(id.to_owned()..)
            .take_while(|(known, _)| known.starts_with(id));
        match (alike.next(), alike.next()) {
            (None, _) => Err(Missing::NotFound),
            (Some((known, number)), other) if known == id || other.is_none() => Ok(*number),
            _ => Err(Missing::Ambiguous),
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.items.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.version += 1;
        self.items.get_mut(&number)
    }

    /// Grows whenever something may have changed.
    #[cfg(feature = "simulation")]
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.items.iter().map(|(number, item)| (*number, item))
    }
}

/// Why there is no object for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    NotFound,
    /// It is a prefix of several ids.
    Ambiguous,
    Empty,
}

impl Missing {
    /// containerd's error.
    pub(super) fn code(self) -> Code {
        match self {
            Self::NotFound => Code::NotFound,
            Self::Ambiguous | Self::Empty => Code::Unknown,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "not found",
            Self::Ambiguous => "multiple IDs found with provided prefix",
            Self::Empty => "prefix can't be empty",
        })
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            ids: BTreeMap::new(),
            next: 0,
            version: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_be_cut() {
        let mut store = Store::default();
        for id in ["aab", "aac", "aa", "b"] {
            store.insert(id.to_owned(), ());
        }
        for (id, found) in [
            ("aab", Ok(0)),
            ("aa", Ok(2)),
            ("a", Err(Missing::Ambiguous)),
            ("b", Ok(3)),
            ("bc", Err(Missing::NotFound)),
            ("", Err(Missing::Empty)),
        ] {
            assert_eq!(store.find(id), found, "{id}");
        }
    }
}
