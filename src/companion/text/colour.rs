//! Colours of a terminal, for things that need a person.

/// A colour that every terminal has, by its number there.
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

    /// The number of the colour in an ANSI sequence, if colours are wanted.
    pub fn code(self) -> Option<u8> {
        are_wanted().then_some(31 + self.0)
    }
}

/// Whether colours are wanted: the user can refuse them with `NO_COLOR`, as
/// <https://no-color.org> describes.
fn are_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
