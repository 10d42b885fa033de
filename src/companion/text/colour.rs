//! Colours of a terminal, for what needs a person.

/// A colour that every terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

impl Colour {
    const ALL: [(Colour, &str); 6] = [
        (Colour::Red, "red"),
        (Colour::Green, "green"),
        (Colour::Yellow, "yellow"),
        (Colour::Blue, "blue"),
        (Colour::Magenta, "magenta"),
        (Colour::Cyan, "cyan"),
    ];

    /// The colour of this name.
    pub fn parse(name: &str) -> Result<Colour, String> {
        let found = Colour::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(colour, _)| *colour).ok_or_else(|| {
            let names = Colour::ALL.map(|(_, name)| name).join(", ");
            format!("'{name}' is none of the colours {names}")
        })
    }

    /// A text in this colour, if colours are wanted.
    pub fn paint(self, text: &str) -> String {
        match are_wanted() {
            true => format!("\x1b[1;{}m{text}\x1b[0m", 31 + self as u8),
            false => text.into(),
        }
    }
}

/// Whether the user has not said otherwise, as <https://no-color.org> has it.
fn are_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
