//! The options that may follow the numbers of a `put`. They are ours: beanstalkd
//! answers `BAD_FORMAT`.
//!
//! ```text
//! idp:<key>[:<seconds>]   one job with this key at a time in its tube
//! con:<key>[:<n>]         at most n jobs with this key reserved at a time
//! try:<n>                 after n tries that the worker does not end, the job is buried
//! exp:<seconds>           the job is deleted if nobody has taken it by then
//! ```
//!
//! They come in any order, each at most once, and each after one space.
//! What they do is in `engine/options`.

use super::{Document, JobStats, Seconds, TubeName, command};
use std::fmt;

/// The name of what is unique or limited. It has the characters and lengths of
/// the name of a tube.
pub type Key = TubeName;

/// The longest time for which the key of a deleted job stays taken: a year. A larger number
/// counts as this one, since what never ends would fill the memory.
const LONGEST_TAKEN: u32 = 365 * 24 * 60 * 60;

/// `idp`: as long as a job with this key is in the tube, no other one is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// What is unique in the tube.
    pub key: Key,
    /// How long the key stays taken after the job is deleted.
    pub taken_for: Seconds,
}

/// `con`: a limit of the jobs with this key that are reserved at a time, in all
/// tubes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What is limited.
    pub key: Key,
    /// How many jobs may be reserved at a time; at least 1. If jobs of a key
    /// name different limits, the largest counts.
    pub most: u32,
}

/// The options of a put; a job has at least one, or no options at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// The option `idp`.
    pub unique: Option<Unique>,
    /// The option `con`.
    pub limit: Option<Limit>,
    /// The option `try`: after how many tries, at least 1, the job is buried.
    pub tries: Option<u32>,
    /// The option `exp`: how long after its put, at least a second, the job is deleted.
    pub expires_after: Option<Seconds>,
}

impl PutOptions {
    /// The longest options, without the keys.
    pub const LONGEST: &str = " idp::4294967295 con::4294967295 try:4294967295 exp:4294967295";

    /// The options in what follows the last number of a put. `None` if anything
    /// else is there.
    pub fn parse(rest: &[u8]) -> Option<PutOptions> {
        let mut options = PutOptions::default();
        for option in rest.strip_prefix(b" ")?.split(|&byte| byte == b' ') {
            let mut parts = option.split(|&byte| byte == b':');
            let (name, first, second) = (parts.next()?, parts.next()?, parts.next());
            match name {
                b"idp" if options.unique.is_none() => {
                    let seconds = second.map_or(Some(0), number)?;
                    options.unique = Some(Unique {
                        key: Key::parse(first)?,
                        taken_for: Seconds(seconds.min(LONGEST_TAKEN)),
                    });
                }
                b"con" if options.limit.is_none() => {
                    options.limit = Some(Limit {
                        key: Key::parse(first)?,
                        most: second.map_or(Some(1), at_least_1)?,
                    });
                }
                b"try" if options.tries.is_none() && second.is_none() => {
                    options.tries = Some(at_least_1(first)?);
                }
                b"exp" if options.expires_after.is_none() && second.is_none() => {
                    options.expires_after = Some(Seconds(at_least_1(first)?));
                }
                _ => return None,
            }
            if parts.next().is_some() {
                return None;
            }
        }
        Some(options)
    }

    /// Whether there is a unique key and no other option: a deleted job keeps nothing else.
    pub fn is_key_alone(&self) -> bool {
        let alone = PutOptions {
            unique: self.unique.clone(),
            ..PutOptions::default()
        };
        self.unique.is_some() && *self == alone
    }

    /// Adds the keys and values that `list-jobs` shows of the options of this job.
    pub(super) fn add_to(&self, facts: &mut Document, job: &JobStats) {
        if let Some(unique) = &self.unique {
            facts.add_name("idempotency-key", &unique.key);
            facts.add_number("idempotency-ttl", unique.taken_for.0);
        }
        if let Some(limit) = &self.limit {
            facts.add_name("concurrency-key", &limit.key);
            facts.add_number("concurrency-limit", limit.most);
            facts.add_number("concurrency-free", job.places_free);
        }
        if let Some(tries) = self.tries {
            facts.add_number("tries", tries);
            facts.add_number("tries-left", tries.saturating_sub(job.failed_tries));
        }
        if let Some(left) = job.expires_in {
            facts.add_number("expires-in", left);
        }
    }

    /// The lengths of the keys together, in bytes.
    pub fn keys_len(&self) -> usize {
        let unique = self.unique.as_ref().map(|unique| &unique.key);
        let limit = self.limit.as_ref().map(|limit| &limit.key);
        let keys = unique.into_iter().chain(limit);
        keys.map(|key| key.as_str().len()).sum()
    }
}

/// As after the numbers of a put, without the space before the first option.
impl fmt::Display for PutOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        options.extend(self.unique.iter().map(|unique| match unique.taken_for.0 {
            0 => format!("idp:{}", unique.key),
            seconds => format!("idp:{}:{seconds}", unique.key),
        }));
        let limit = self.limit.as_ref();
        options.extend(limit.map(|limit| format!("con:{}:{}", limit.key, limit.most)));
        options.extend(self.tries.map(|tries| format!("try:{tries}")));
        let expires_after = self.expires_after;
        options.extend(expires_after.map(|Seconds(seconds)| format!("exp:{seconds}")));
        f.write_str(&options.join(" "))
    }
}

fn number(mut digits: &[u8]) -> Option<u32> {
    command::number_u32(&mut digits).filter(|_| digits.is_empty())
}

fn at_least_1(digits: &[u8]) -> Option<u32> {
    number(digits).filter(|&number| number >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_put_has_up_to_four_options_in_any_order() {
        let expected = PutOptions {
            unique: Some(Unique {
                key: key("nightly"),
                taken_for: Seconds(3600),
            }),
            limit: Some(Limit {
                key: key("deploy"),
                most: 2,
            }),
            tries: Some(3),
            expires_after: Some(Seconds(60)),
        };
        for text in [
            " idp:nightly:3600 con:deploy:2 try:3 exp:60",
            " exp:60 try:3 con:deploy:2 idp:nightly:3600",
            " con:deploy:002 try:03 exp:060 idp:nightly:03600",
        ] {
            assert_eq!(PutOptions::parse(text.as_bytes()).as_ref(), Some(&expected));
        }
        let line = "idp:nightly:3600 con:deploy:2 try:3 exp:60";
        assert_eq!(expected.to_string(), line);
        let short = PutOptions::parse(b" con:a idp:a").unwrap();
        assert_eq!(
            short.unique.map(|unique| unique.taken_for),
            Some(Seconds(0))
        );
        assert_eq!(short.limit.map(|limit| limit.most), Some(1));
    }

    #[test]
    fn options_with_anything_wrong_are_refused() {
        for text in [
            "",
            " ",
            "  idp:a",
            " idp:a ",
            " idp:a  try:1",
            "idp:a",
            " idp",
            " idp:",
            " idp::1",
            " idp:a:",
            " idp:a:x",
            " idp:a:-1",
            " idp:a:+1",
            " idp:a:4294967296",
            " idp:a:1:1",
            " idp:-a",
            " idp:a*",
            " idp:a idp:b",
            " con:a:0",
            " con:",
            " con:a con:a",
            " try:0",
            " try:",
            " try:1:1",
            " try:x",
            " try:1 try:1",
            " exp:0",
            " exp:",
            " exp:1:1",
            " exp:-1",
            " exp:4294967296",
            " exp:1 exp:1",
            " grp:a",
            " IDP:a",
            " con:a\t",
        ] {
            assert_eq!(PutOptions::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
