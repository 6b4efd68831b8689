//! Reads the fields of an encoded message where they are, without a copy.

use std::fmt;

/// A part of a message, by the places of its first byte and of the one after it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

/// A field of a message.
pub(super) struct Field {
    pub(super) number: u32,
    /// Where the field is, its number included.
    whole: Span,
    value: Value,
}

enum Value {
    Number(u64),
    /// A text, bytes or a message.
    Bytes(Span),
    /// A number of fixed size. None of those that are listed has one.
    Fixed,
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    CutOff,
    Number,
    Type,
    Text,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutOff => "is cut off",
            Self::Number => "has a number that is not valid",
            Self::Type => "has a field of another type",
            Self::Text => "has a text that is not UTF-8",
        })
    }
}

type Result<T> = std::result::Result<T, Malformed>;

impl Span {
    /// The bytes of this part of the message.
    pub(super) fn of(self, message: &[u8]) -> &[u8] {
        message
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// The text of this part of the message.
    pub(super) fn text(self, message: &[u8]) -> &str {
        str::from_utf8(self.of(message)).unwrap_or_default()
    }

    /// Becomes longer, up to the end of `other`.
    fn extend_to(&mut self, other: Self) {
        match self.end {
            0 => *self = other,
            _ => self.end = other.end,
        }
    }
}

impl Field {
    pub(super) fn number(&self) -> Result<u64> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(Malformed::Type),
        }
    }

    pub(super) fn bytes(&self) -> Result<Span> {
        match self.value {
            Value::Bytes(span) => Ok(span),
            _ => Err(Malformed::Type),
        }
    }

    pub(super) fn text(&self, message: &[u8]) -> Result<Span> {
        let span = self.bytes()?;
        match str::from_utf8(span.of(message)) {
            Ok(_) => Ok(span),
            Err(_) => Err(Malformed::Text),
        }
    }
}

/// The fields of a message, or of a message in it. After an error there are no more.
pub(super) struct Fields<'a> {
    message: &'a [u8],
    at: usize,
    /// The message ends here.
    end: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self {
            message,
            at: 0,
            end: message.len(),
        }
    }

    /// Those of the message in this part.
    pub(super) fn within(message: &'a [u8], span: Span) -> Self {
        Self {
            message,
            at: span.start as usize,
            end: span.end as usize,
        }
    }

    fn read(&mut self) -> Result<Field> {
        let start = self.at;
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed::Number)?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.skip(length)?)
            }
            5 => self.skip(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed::Type),
        };
        if key < 8 {
            return Err(Malformed::Number);
        }
        Ok(Field {
            number: key >> 3,
            whole: self.since(start)?,
            value,
        })
    }

    fn varint(&mut self) -> Result<u64> {
        let rest = self.message.get(self.at..self.end).unwrap_or_default();
        let mut number = 0;
        for (place, byte) in rest.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                self.at += place + 1;
                // The tenth byte has one bit.
                return match place == 9 && *byte > 1 {
                    true => Err(Malformed::Number),
                    false => Ok(number),
                };
            }
        }
        Err(match rest.len() < 10 {
            true => Malformed::CutOff,
            false => Malformed::Number,
        })
    }

    fn skip(&mut self, length: u64) -> Result<Span> {
        let start = self.at;
        match usize::try_from(length) {
            Ok(length) if length <= self.end.saturating_sub(start) => self.at += length,
            _ => return Err(Malformed::CutOff),
        }
        self.since(start)
    }

    fn since(&self, start: usize) -> Result<Span> {
        let place = |at: usize| u32::try_from(at).map_err(|_| Malformed::Number);
        Ok(Span {
            start: place(start)?,
            end: place(self.at)?,
        })
    }
}

impl Iterator for Fields<'_> {
    type Item = Result<Field>;

    fn next(&mut self) -> Option<Result<Field>> {
        if self.at >= self.end {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.at = self.end;
        }
        Some(read)
    }
}

/// The entries of a map: the part of a message from the first to the last of them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entries(Span);

impl Entries {
    /// Adds an entry whose value must be text.
    pub(super) fn add(&mut self, entry: &Field, message: &[u8]) -> Result<()> {
        self.add_with(entry, message, |value| value.text(message))
    }

    /// Adds an entry that hardly anybody reads: its value may be any bytes.
    pub(super) fn add_unread(&mut self, entry: &Field, message: &[u8]) -> Result<()> {
        self.add_with(entry, message, Field::bytes)
    }

    fn add_with(
        &mut self,
        entry: &Field,
        message: &[u8],
        check: impl Fn(&Field) -> Result<Span>,
    ) -> Result<()> {
        for field in Fields::within(message, entry.bytes()?) {
            let field = field?;
            let checked = match field.number {
                1 => field.bytes(),
                2 => check(&field),
                _ => continue,
            };
            checked?;
        }
        self.0.extend_to(entry.whole);
        Ok(())
    }

    /// The value of a key, of the map in the field `number`. Of a key that came twice the last value counts, as in every map of
    /// the wire.
    pub(super) fn value<'a>(self, message: &'a [u8], number: u32, key: &str) -> Option<&'a str> {
        let mut found = None;
        for entry in Fields::within(message, self.0).flatten() {
            let Ok(span) = entry.bytes() else { continue };
            if entry.number != number {
                continue;
            }
            // A key or a value that is missing is empty.
            let (mut of_entry, mut value) = (Span::default(), Span::default());
            for field in Fields::within(message, span).flatten() {
                match (field.number, field.bytes()) {
                    (1, Ok(span)) => of_entry = span,
                    (2, Ok(span)) => value = span,
                    _ => {}
                }
            }
            if of_entry.of(message) == key.as_bytes() {
                found = Some(value);
            }
        }
        found.map(|value| value.text(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(message: &[u8]) -> Result<Vec<(u32, Option<u64>)>> {
        let field = |field: Result<Field>| field.map(|field| (field.number, field.number().ok()));
        Fields::of(message).map(field).collect()
    }

    #[test]
    fn of_each_type_of_the_wire() {
        // A number, 8 bytes, a text, 4 bytes.
        let message = [
            &[0x08, 0x96, 0x01, 0x11][..],
            &[0; 8],
            &[0x1a, 1, b'a', 0x25],
            &[0; 4],
        ]
        .concat();
        assert_eq!(
            numbers(&message),
            Ok(vec![(1, Some(150)), (2, None), (3, None), (4, None)])
        );
        assert_eq!(numbers(&[]), Ok(vec![]));
        let largest = [&[0x08][..], &[0xff; 9], &[0x01]].concat();
        assert_eq!(numbers(&largest), Ok(vec![(1, Some(u64::MAX))]));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for end in [1, 2, 4, 6, 9] {
            let message = [0x08, 0x96, 0x01, 0x1a, 2, b'a', b'b', 0x25, 0, 0, 0, 0];
            assert_eq!(numbers(&message[..end]), Err(Malformed::CutOff), "{end}");
        }
        // A text of 2^63 bytes, a number of 11 bytes, one of 65 bits, a group.
        let long = [&[0x1a][..], &[0x80; 9], &[0x01]].concat();
        assert_eq!(numbers(&long), Err(Malformed::CutOff));
        let number = [&[0x08][..], &[0x80; 10], &[0x01]].concat();
        assert_eq!(numbers(&number), Err(Malformed::Number));
        let number = [&[0x08][..], &[0xff; 9], &[0x02]].concat();
        assert_eq!(numbers(&number), Err(Malformed::Number));
        assert_eq!(numbers(&[0x0b, 0x0c]), Err(Malformed::Type));
        // Field 0, and a field of a number that does not exist.
        assert_eq!(numbers(&[0x00, 1]), Err(Malformed::Number));
        assert_eq!(
            numbers(&[0x88, 0x80, 0x80, 0x80, 0x10, 1]),
            Err(Malformed::Number)
        );
    }
}
