//! Natural numbers of any size, as far as quantities need them.

use std::cmp::Ordering;

/// A natural number in words of 64 bits, the lowest first, without a zero at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Natural(Vec<u64>);

impl Natural {
    /// The number of these decimal digits. `None` if one of them is none.
    pub(super) fn from_digits(digits: &str) -> Option<Self> {
        digits.chars().try_fold(Self::default(), |number, digit| {
            Some(number.times(10).plus_word(digit.to_digit(10)?.into()))
        })
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn times(mut self, factor: u64) -> Self {
        let mut carry = 0;
        for word in &mut self.0 {
            (*word, carry) = split(u128::from(*word) * u128::from(factor) + u128::from(carry));
        }
        self.with_last(carry)
    }

    pub(super) fn plus_word(mut self, mut carry: u64) -> Self {
        for word in &mut self.0 {
            (*word, carry) = split(u128::from(*word) + u128::from(carry));
        }
        self.with_last(carry)
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        let mut carry = 0;
        for (index, word) in self.0.iter_mut().enumerate() {
            let addend = other.0.get(index).copied().unwrap_or_default();
            (*word, carry) = split(u128::from(*word) + u128::from(addend) + u128::from(carry));
        }
        self.with_last(carry)
    }

    /// A tenth, rounded down, and whether that is exact.
    pub(super) fn tenth(mut self) -> (Self, bool) {
        let mut rest = 0;
        for word in self.0.iter_mut().rev() {
            let part = (u128::from(rest) << 64) + u128::from(*word);
            // Both fit: the rest is below ten.
            (*word, rest) = ((part / 10) as u64, (part % 10) as u64);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        (self, rest == 0)
    }

    fn with_last(mut self, carry: u64) -> Self {
        self.0.push(carry);
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}

impl From<u64> for Natural {
    fn from(number: u64) -> Self {
        Self::default().plus_word(number)
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The low and the high word.
fn split(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry() {
        let number = Natural::from_digits("18446744073709551615").unwrap();
        assert_eq!(number.words(), [u64::MAX]);
        assert_eq!(number.clone().plus_word(1).words(), [0, 1]);
        assert_eq!(number.clone().plus(&number).words(), [u64::MAX - 1, 1]);
        assert_eq!(number.clone().times(u64::MAX).words(), [1, u64::MAX - 1]);
        let (tenth, exact) = number.clone().plus_word(1).tenth();
        assert_eq!((tenth.words(), exact), (&[1_844_674_407_370_955_161][..], false));
        assert!(tenth < number && number < number.clone().plus_word(1));
        assert!(Natural::from_digits("000").unwrap().is_zero());
        assert_eq!(Natural::from_digits("1x"), None);
    }
}
