//! Sets of CPUs, written as the kernel and the kubelet write them: `0-3,8,10-11`.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

/// A set of CPU ids (`cpuset.CPUSet`), also used for the ids of cores, sockets and caches.
///
/// ```
/// # fn main() -> Result<(), kubelet_resources::CpuSetError> {
/// use kubelet_resources::CpuSet;
///
/// let cpus: CpuSet = "0-3,8".parse()?;
/// assert_eq!(cpus.len(), 5);
/// assert_eq!(cpus.difference(&"1,8".parse()?).to_string(), "0,2-3");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Bit `i` of word `w` is CPU `64 * w + i`. The last word is never zero, so that equal sets are equal.
    words: Vec<u64>,
}

/// The highest id that a set can have. The kernel supports far fewer CPUs; the limit keeps a typing error from using up
/// the memory.
const MAX_ID: usize = 1 << 20;

/// Why a text is not a set of CPUs. The texts are the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuSetError {
    /// A part is not a number.
    #[error("strconv.Atoi: parsing {0:?}: {1}")]
    NotANumber(String, &'static str),
    /// A range ends before it starts.
    #[error("invalid range {range:?} ({start} > {end})")]
    Reversed {
        /// The range.
        range: String,
        /// Its start.
        start: usize,
        /// Its end.
        end: usize,
    },
    /// The id is higher than any CPU can have.
    #[error("CPU id {0} is too high")]
    TooHigh(usize),
}

impl CpuSet {
    /// The empty set.
    pub(crate) const EMPTY: Self = Self { words: Vec::new() };

    /// The empty set.
    pub fn new() -> Self {
        Self::EMPTY
    }

    /// Whether it has no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the CPU is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words
            .get(cpu / 64)
            .is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// Adds a CPU. Ids above about a million are ignored.
    pub fn insert(&mut self, cpu: usize) {
        if cpu > MAX_ID {
            return;
        }
        let word = cpu / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                (rest != 0).then(|| {
                    rest &= rest - 1;
                    64 * index + bit
                })
            })
        })
    }

    /// The CPUs of both sets together.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut long, short) = match self.words.len() >= other.words.len() {
            true => (self.clone(), other),
            false => (other.clone(), self),
        };
        for (word, more) in long.words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        long
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words);
        Self::from_words(words.map(|(a, b)| a & b).collect())
    }

    /// The CPUs that are in this set and not in the other one.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        Self::from_words(self.words.iter().zip(others).map(|(a, b)| a & !b).collect())
    }

    /// How many CPUs are in both sets.
    pub fn intersection_len(&self, other: &Self) -> usize {
        let words = self.words.iter().zip(&other.words);
        words.map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Whether the sets have no CPU in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection_len(other) == 0
    }

    /// Whether all CPUs of this set are in the other one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.intersection_len(other) == self.len()
    }

    fn from_words(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

impl Extend<usize> for CpuSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

/// As the kernel writes it, without spaces. The empty set is an empty text.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while let Some(next) = cpus.next_if_eq(&(end + 1)) {
                end = next;
            }
            match start == end {
                true => write!(f, "{separator}{start}")?,
                false => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Parses what the kernel writes (`cpuset.Parse`): `0-5,34,46-48`, in any order.
impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        if text.is_empty() {
            return Ok(set);
        }
        for range in text.split(',') {
            let (start, end) = match range.split_once('-') {
                None => {
                    let cpu = id(range)?;
                    (cpu, cpu)
                }
                Some((start, end)) => (id(start)?, id(end)?),
            };
            if start > end {
                let range = range.to_owned();
                return Err(CpuSetError::Reversed { range, start, end });
            }
            if end > MAX_ID {
                return Err(CpuSetError::TooHigh(end));
            }
            set.extend(start..=end);
        }
        Ok(set)
    }
}

fn id(text: &str) -> Result<usize, CpuSetError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        let reason = match error.kind() {
            IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        CpuSetError::NotANumber(text.to_owned(), reason)
    })
}
