//! The words of a job as bytes, 18 and the keys: `idp`: length of the key u8, key,
//! seconds u32; `con`: length of the key u8, key, limit u32; `try`: tries u32;
//! tries that have ended without a word u32. All is 0 for a word that the job
//! does not have.
//! When such a job is deleted and its key stays taken, it is put again in the
//! state deleted (5 in the long fields), with the word `idp` alone and an empty
//! body; the number is the end of that time. When the time is over, this is
//! deleted in turn.

use crate::binlog::frame::Fields;
use crate::engine::StoredOptions;
use crate::protocol::{Key, Limit, PutOptions, Seconds, Unique};

/// Length of the job's words without the keys.
pub const WORDS_LEN: usize = 18;

/// Appends a job's words.
pub fn encode(stored: &StoredOptions, out: &mut Vec<u8>) {
    let PutOptions {
        unique,
        limit,
        tries,
    } = &stored.options;
    let unique = unique.as_ref().map(|word| (&word.key, word.taken_for.0));
    let limit = limit.as_ref().map(|limit| (&limit.key, limit.most));
    for word in [unique, limit] {
        let (key, number) = word.map_or(("", 0), |(key, number)| (key.as_str(), number));
        out.push(u8::try_from(key.len()).expect("a key has at most 200 bytes"));
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [tries.unwrap_or(0), stored.silent] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// A job's words, if they make sense.
pub fn decode(fields: &mut Fields) -> Option<StoredOptions> {
    let unique = decode_word(fields)?.map(|(key, seconds)| Unique {
        key,
        taken_for: Seconds(seconds),
    });
    let limit = decode_word(fields)?.map(|(key, most)| Limit { key, most });
    let (tries, silent) = (fields.u32()?, fields.u32()?);
    let words = PutOptions {
        unique,
        limit,
        tries: (tries > 0).then_some(tries),
    };
    let has_limit = words.limit.as_ref().is_none_or(|limit| limit.most > 0);
    let has_words = words.unique.is_some() || words.limit.is_some() || tries > 0;
    let is_right = has_limit && has_words && (tries > 0 || silent == 0);
    is_right.then_some(StoredOptions {
        options: words,
        silent,
    })
}

/// A key and its number; `Some(None)` if the job has no such word.
fn decode_word(fields: &mut Fields) -> Option<Option<(Key, u32)>> {
    let len = fields.u8()?;
    let (key, number) = (fields.take(len.into())?, fields.u32()?);
    match len {
        0 => (number == 0).then_some(None),
        _ => Some(Some((Key::parse(key)?, number))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_no_put_can_have_make_no_sense() {
        let none = [0; 5];
        let key = |number: u8| vec![1, b'a', number, 0, 0, 0];
        let decoded = |unique: &[u8], limit: &[u8], tries: u8, silent: u8| {
            let numbers = [tries, 0, 0, 0, silent, 0, 0, 0];
            let bytes = [unique, limit, &numbers].concat();
            let mut out = Vec::new();
            let words = decode(&mut Fields(&bytes))?;
            encode(&words, &mut out);
            assert_eq!(out, bytes);
            Some(words.options.tries)
        };
        assert_eq!(decoded(&key(9), &key(2), 3, 1), Some(Some(3)));
        assert_eq!(decoded(&key(0), &none, 0, 0), Some(None));
        assert_eq!(decoded(&none, &none, 0, 0), None);
        assert_eq!(decoded(&key(9), &key(0), 0, 0), None);
        assert_eq!(decoded(&key(9), &none, 0, 1), None);
    }
}
