//! Command lines, for all programs: a table of options says what can be given
//! and into which field of a struct each value goes.
//!
//! The arguments are walked through once, in their order; what a value must be
//! is said by the type of its field, a [`Read`]. So no option is looked up by
//! its name after that. Bytes that are no UTF-8 pass through: bodies and paths
//! may have them, and [`to_os`] gives them back.

use crate::protocol::{JobId, Priority, Seconds, TubeName};
use getopts::{Fail, HasArg, Occur, Options, ParsingStyle};
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// An option, as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// One letter, or nothing.
    pub short: &'static str,
    /// A name, or nothing.
    pub long: &'static str,
    /// What its value is called; nothing for a flag.
    pub value: &'static str,
    /// Whether it may be given several times.
    pub many: bool,
    /// A line of help.
    pub about: &'static str,
}

/// Whether options may follow an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// They may stand anywhere, up to `--`.
    Anywhere,
    /// What follows the first operand is not ours to understand.
    EndOptions,
}

/// A command line, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Given {
    /// In the order of the line: the index of the option in its table, and its
    /// value, which is empty for a flag.
    pub options: Vec<(usize, String)>,
    /// What is neither an option nor a value of one.
    pub operands: Vec<String>,
}

impl Given {
    /// Takes a command line apart, without the program's name.
    ///
    /// # Errors
    ///
    /// A message that names the option.
    pub fn split(
        table: &[Opt],
        operands: Operands,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Given, String> {
        let mut parser = Options::new();
        parser.parsing_style(match operands {
            Operands::Anywhere => ParsingStyle::FloatingFrees,
            Operands::EndOptions => ParsingStyle::StopAtFirstFree,
        });
        for option in table {
            let has_value = match option.value {
                "" => HasArg::No,
                _ => HasArg::Yes,
            };
            let occur = match option.many {
                true => Occur::Multi,
                false => Occur::Optional,
            };
            parser.opt(option.short, option.long, "", "", has_value, occur);
        }
        let texts = arguments.into_iter().map(|text| to_text(text.as_ref()));
        let matches = parser.parse(texts).map_err(in_words)?;
        let mut options = Vec::new();
        for (index, option) in table.iter().enumerate() {
            let places = matches.opt_positions(option.name()).into_iter();
            match option.value {
                "" => options.extend(places.map(|place| (place, index, String::new()))),
                _ => {
                    let values = matches.opt_strs_pos(option.name()).into_iter();
                    options.extend(values.map(|(place, value)| (place, index, value)));
                }
            }
        }
        // Letters that share an argument share a place; one with a value ends it.
        options.sort_by_key(|(place, index, _)| (*place, !table[*index].value.is_empty()));
        Ok(Given {
            options: options
                .into_iter()
                .map(|(_, index, value)| (index, value))
                .collect(),
            operands: matches.free,
        })
    }

    /// Reads options into a struct: those for which the table, asked with an
    /// index, has a field.
    ///
    /// # Errors
    ///
    /// A message that names the option and the value.
    pub fn read<'a, O: 'a>(
        &self,
        table: impl Fn(usize) -> Option<(Opt, &'a dyn Set<O>)>,
        into: &mut O,
    ) -> Result<(), String> {
        for (index, value) in &self.options {
            if let Some((option, field)) = table(*index) {
                let wrong = |reason| format!("{}: {reason}", option.shown());
                field.set(into, value).map_err(wrong)?;
            }
        }
        Ok(())
    }
}

impl Opt {
    /// A name that is its alone.
    fn name(&self) -> &'static str {
        match self.long {
            "" => self.short,
            long => long,
        }
    }

    /// Its name as it is typed.
    pub fn shown(&self) -> String {
        shown(self.name())
    }
}

/// Where the value of an option goes.
pub trait Set<O>: Sync {
    /// Reads a value into its place; of a flag it is empty.
    ///
    /// # Errors
    ///
    /// What is wrong with the value.
    fn set(&self, options: &mut O, value: &str) -> Result<(), String>;
}

/// The value goes into this field.
pub struct Field<O, T>(pub fn(&mut O) -> &mut T);

impl<O, T: Read> Set<O> for Field<O, T> {
    fn set(&self, options: &mut O, value: &str) -> Result<(), String> {
        (self.0)(options).read(value)
    }
}

/// What can be the value of an option.
pub trait Read {
    /// Takes over this value.
    ///
    /// # Errors
    ///
    /// What it should be instead.
    fn read(&mut self, value: &str) -> Result<(), String>;
}

/// What one text says.
pub trait Parse: Sized {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// What it should be instead.
    fn parse(text: &str) -> Result<Self, String>;
}

/// A flag.
impl Read for bool {
    fn read(&mut self, _: &str) -> Result<(), String> {
        *self = true;
        Ok(())
    }
}

/// Given once, or not.
impl<T: Parse> Read for Option<T> {
    fn read(&mut self, value: &str) -> Result<(), String> {
        *self = Some(T::parse(value)?);
        Ok(())
    }
}

/// Given any number of times.
impl<T: Parse> Read for Vec<T> {
    fn read(&mut self, value: &str) -> Result<(), String> {
        self.push(T::parse(value)?);
        Ok(())
    }
}

impl Parse for String {
    fn parse(text: &str) -> Result<String, String> {
        Ok(text.into())
    }
}

impl Parse for OsString {
    fn parse(text: &str) -> Result<OsString, String> {
        Ok(to_os(text))
    }
}

impl Parse for u32 {
    fn parse(text: &str) -> Result<u32, String> {
        number(text, 0, u32::MAX)
    }
}

impl Parse for NonZeroU64 {
    fn parse(text: &str) -> Result<NonZeroU64, String> {
        number(text, NonZeroU64::MIN, NonZeroU64::MAX)
    }
}

/// A span of time: a number of seconds, or numbers with units, as in `90`,
/// `500ms`, `1.5h` and `1h30m`. One that is too long becomes the longest.
impl Parse for Duration {
    fn parse(text: &str) -> Result<Duration, String> {
        let wrong = || format!("'{text}' is no time: give seconds, or 500ms, 30s, 5m, 2h, 1d, 1w");
        let mut seconds = 0.0;
        let mut rest = text;
        loop {
            let letters = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let next = letters.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let number = &rest[..rest.len() - letters.len()];
            let unit = match &letters[..letters.len() - next.len()] {
                "" if number == text => 1.0,
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                "w" => 604_800.0,
                _ => return Err(wrong()),
            };
            seconds += unit * number.parse::<f64>().map_err(|_| wrong())?;
            if next.is_empty() {
                return Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
            }
            rest = next;
        }
    }
}

/// A span of time that is counted in whole seconds.
impl Parse for Seconds {
    fn parse(text: &str) -> Result<Seconds, String> {
        let time = Duration::parse(text)?;
        match u32::try_from(time.as_secs()) {
            Ok(seconds) if time.subsec_nanos() == 0 => Ok(Seconds(seconds)),
            Ok(_) => Err(format!("'{text}' is not whole seconds")),
            Err(_) => Err(format!("'{text}' is more than {} seconds", u32::MAX)),
        }
    }
}

impl Parse for Priority {
    fn parse(text: &str) -> Result<Priority, String> {
        u32::parse(text).map(Priority)
    }
}

impl Parse for JobId {
    fn parse(text: &str) -> Result<JobId, String> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let id = text.parse().ok().filter(|_| digits);
        id.map(JobId)
            .ok_or_else(|| format!("'{text}' is not the id of a job"))
    }
}

impl Parse for TubeName {
    fn parse(text: &str) -> Result<TubeName, String> {
        TubeName::parse(text.as_bytes()).ok_or_else(|| {
            format!(
                "'{text}' cannot be the name of a tube: 1 to {} letters, digits and \
                 -+/;.$_(), no hyphen first",
                TubeName::MAX_LEN
            )
        })
    }
}

/// A whole number within these bounds.
///
/// # Errors
///
/// What it should be instead.
pub fn number<T>(text: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse() {
        Ok(number) if least <= number && number <= most => Ok(number),
        _ => Err(format!("'{text}' is not a number from {least} to {most}")),
    }
}

fn in_words(fail: Fail) -> String {
    match fail {
        Fail::UnrecognizedOption(name) => format!("unknown flag: {}", shown(&name)),
        Fail::ArgumentMissing(name) => format!("flag requires an argument: {}", shown(&name)),
        Fail::UnexpectedArgument(name) => format!("flag takes no argument: {}", shown(&name)),
        Fail::OptionMissing(name) | Fail::OptionDuplicated(name) => {
            format!("flag given more than once: {}", shown(&name))
        }
    }
}

fn shown(name: &str) -> String {
    let dashes = if name.chars().count() == 1 { "-" } else { "--" };
    format!("{dashes}{name}")
}

const STAND_INS: u32 = 0xf700;

/// The argument as text, from which [`to_bytes`] makes it again: where it is no
/// text, a character of its own stands for each byte that is not ASCII.
fn to_text(argument: &OsStr) -> String {
    let text = argument.to_str();
    if let Some(text) = text.filter(|text| !text.chars().any(is_stand_in)) {
        return text.into();
    }
    let stand_in = |&byte: &u8| match byte {
        0..=127 => Some(char::from(byte)),
        _ => char::from_u32(STAND_INS + u32::from(byte)),
    };
    argument.as_bytes().iter().filter_map(stand_in).collect()
}

/// The bytes of the argument that became this text.
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u8::try_from(u32::from(character).wrapping_sub(STAND_INS)) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The argument that became this text.
pub fn to_os(text: &str) -> OsString {
    OsString::from_vec(to_bytes(text))
}

fn is_stand_in(character: char) -> bool {
    (STAND_INS..STAND_INS + 256).contains(&u32::from(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [Opt; 3] = [
        Opt {
            short: "t",
            long: "tube",
            value: "TUBE",
            many: true,
            about: "",
        },
        Opt {
            short: "d",
            long: "delay",
            value: "SECONDS",
            many: false,
            about: "",
        },
        Opt {
            short: "q",
            long: "",
            value: "",
            many: false,
            about: "",
        },
    ];

    #[derive(Debug, Default, PartialEq)]
    struct Read {
        tubes: Vec<TubeName>,
        delay: Option<Seconds>,
        quiet: bool,
    }

    fn read(line: &str, operands: Operands) -> Result<(Read, Vec<String>), String> {
        let given = Given::split(&TABLE, operands, line.split_whitespace())?;
        let fields: [&dyn Set<Read>; 3] = [
            &Field(|read: &mut Read| &mut read.tubes),
            &Field(|read: &mut Read| &mut read.delay),
            &Field(|read: &mut Read| &mut read.quiet),
        ];
        let mut into = Read::default();
        given.read(|index| Some((TABLE[index], fields[index])), &mut into)?;
        Ok((into, given.operands))
    }

    #[test]
    fn each_value_goes_into_its_field() {
        let line = "-ta one --tube=b -qd5 two -- -t";
        let tubes = ["a", "b"].map(|name| TubeName::parse(name.as_bytes()).unwrap());
        let expected = Read {
            tubes: tubes.into(),
            delay: Some(Seconds(5)),
            quiet: true,
        };
        let operands = ["one", "two", "-t"].map(String::from).to_vec();
        assert_eq!(read(line, Operands::Anywhere), Ok((expected, operands)));
        let operands = ["one", "-q"].map(String::from).to_vec();
        let given = read("one -q", Operands::EndOptions);
        assert_eq!(given, Ok((Read::default(), operands)));
    }

    #[test]
    fn options_come_in_the_order_of_the_line() {
        let given = Given::split(&TABLE, Operands::Anywhere, ["-q", "-d1", "-tx"]).unwrap();
        let order: Vec<usize> = given.options.iter().map(|(index, _)| *index).collect();
        assert_eq!(order, [2, 1, 0]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_option() {
        for (line, said) in [
            ("-x", "unknown flag: -x"),
            ("--nope", "unknown flag: --nope"),
            ("-d", "flag requires an argument: -d"),
            ("-d1 -d2", "flag given more than once: --delay"),
            (
                "-d soon",
                "--delay: 'soon' is no time: give seconds, or 500ms, 30s, 5m, 2h, 1d, 1w",
            ),
            ("-d 1.5", "--delay: '1.5' is not whole seconds"),
            (
                "-d 4294967296",
                "--delay: '4294967296' is more than 4294967295 seconds",
            ),
        ] {
            assert_eq!(read(line, Operands::Anywhere).map(drop), Err(said.into()));
        }
    }

    #[test]
    fn times_have_units_and_a_bare_number_counts_seconds() {
        for (text, milliseconds) in [
            ("0", 0),
            ("90", 90_000),
            ("0.25", 250),
            ("250ms", 250),
            ("0s", 0),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("0h30m", 1_800_000),
            ("1.1m", 66_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
        ] {
            let time = Duration::from_millis(milliseconds);
            assert_eq!(Duration::parse(text), Ok(time), "{text}");
        }
        for text in [
            "", "m", "-1", "+1", "1h30", "1 h", "1e3", "inf", "nan", "1..2", "5M", "5min", "5,5",
        ] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        let longest = "9".repeat(400);
        assert_eq!(Duration::parse(&longest), Ok(Duration::MAX));
        assert!(Seconds::parse(&longest).is_err());
        assert_eq!(Seconds::parse("4294967295"), Ok(Seconds(u32::MAX)));
    }

    #[test]
    fn every_argument_comes_back_as_it_was() {
        for bytes in [
            &b""[..],
            b"plain",
            "é\u{f700}\u{f7ff}😀".as_bytes(),
            b"\xff\x00a\xc3",
            b"\xf0\x9f",
        ] {
            assert_eq!(to_bytes(&to_text(OsStr::from_bytes(bytes))), bytes);
        }
        assert_eq!(to_text(OsStr::new("é")), "é");
    }
}
