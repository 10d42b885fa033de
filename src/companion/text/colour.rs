//! Colours of a terminal, for what needs a person.

/// A colour that every terminal has, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(u8);

const NAMES: [&str; 6] = ["red", "green", "yellow", "blue", "magenta", "cyan"];

impl Colour {
    pub const RED: Colour = Colour(0);
    pub const YELLOW: Colour = Colour(2);

    /// The colour of this name.
    pub fn parse(name: &str) -> Result<Colour, String> {
        let known = (0..).zip(NAMES).find(|(_, known)| *known == name);
        let wrong = || format!("'{name}' is none of the colours {}", NAMES.join(", "));
        known.map(|(place, _)| Colour(place)).ok_or_else(wrong)
    }

    /// A text in this colour, if colours are wanted.
    pub fn paint(self, text: &str) -> String {
        match self.code() {
            Some(code) => format!("\x1b[1;{code}m{text}\x1b[0m"),
            None => text.into(),
        }
    }

    /// What a terminal knows it by, if colours are wanted.
    pub fn code(self) -> Option<u8> {
        are_wanted().then_some(31 + self.0)
    }
}

/// Whether the user has not said otherwise, as <https://no-color.org> has it.
fn are_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
