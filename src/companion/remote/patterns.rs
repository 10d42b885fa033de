//! Patterns of the names of tubes.

use crate::failure::{Failure, Outcome};
use crate::remote::Client;
use crate::values::{Parse, matches};
use beanpole::protocol::TubeName;
use std::collections::HashSet;

/// The name of a tube, or a pattern of names: `*` stands for any characters and
/// `?` for one. No name can have these characters.
#[derive(Clone, Debug)]
pub struct Pattern(String);

/// Some tubes: those that one of these patterns means, or all if there is none.
#[derive(Clone, Debug, Default)]
pub struct Patterns(pub Vec<Pattern>);

impl Parse for Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        if !text.contains(['*', '?']) {
            <TubeName as Parse>::parse(text)?;
        }
        Ok(Pattern(text.into()))
    }
}

impl Pattern {
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The name, if it is one.
    fn name(&self) -> Option<TubeName> {
        TubeName::parse(self.0.as_bytes())
    }

    fn means(&self, name: &TubeName) -> bool {
        matches(self.0.as_bytes(), name.as_str().as_bytes())
    }
}

impl Patterns {
    /// Whether this tube is meant.
    pub fn mean(&self, name: &TubeName) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.means(name))
    }

    /// The same, or the tube `default` if there is none.
    pub fn or_default(mut self) -> Patterns {
        if self.0.is_empty() {
            self.0.push(Pattern(TubeName::default().to_string()));
        }
        self
    }

    /// The tubes that are named, whether they exist or not, and those that
    /// exist and are meant.
    pub fn meant(&self, client: &mut Client) -> Outcome<Vec<TubeName>> {
        let mut names: Vec<_> = self.0.iter().filter_map(Pattern::name).collect();
        if self.0.is_empty() || names.len() < self.0.len() {
            names.extend(client.tubes()?.into_iter().filter(|name| self.mean(name)));
        }
        let mut known = HashSet::new();
        names.retain(|name| known.insert(name.clone()));
        Ok(names)
    }

    /// The same, but without any pattern, none. It is a failure if a pattern
    /// means no tube.
    pub fn named(&self, client: &mut Client) -> Outcome<Vec<TubeName>> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let names = self.meant(client)?;
        let is_idle = |pattern: &&Pattern| !names.iter().any(|name| pattern.means(name));
        match self.0.iter().find(is_idle) {
            Some(Pattern(text)) => Err(Failure::Missing(format!("there is no tube like '{text}'"))),
            None => Ok(names),
        }
    }

    /// The same; it is also a failure if a tube that is named does not exist.
    pub fn existing(&self, client: &mut Client) -> Outcome<Vec<TubeName>> {
        let names = self.named(client)?;
        for name in self.0.iter().filter_map(Pattern::name) {
            client.known_tube(&name)?;
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names_with_stars_and_question_marks() {
        for (pattern, name, means) in [
            ("mail", "mail", true),
            ("mail", "mails", false),
            ("mail*", "mail", true),
            ("*il*", "mails", true),
            ("m?il", "mail", true),
            ("m?il", "mil", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
        ] {
            let name = <TubeName as Parse>::parse(name).unwrap();
            assert_eq!(
                Pattern::parse(pattern).unwrap().means(&name),
                means,
                "{pattern}"
            );
        }
        assert!(Pattern::parse("a b").is_err());
    }
}
