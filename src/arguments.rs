//! Command lines, for all programs: a table says which options exist.
//!
//! The owner of the table decides what a value means. Bytes that are no UTF-8
//! are kept, since bodies and paths may have them: [`to_os`] gives the original
//! argument back.

pub use getopts::ParsingStyle;
use getopts::{Fail, HasArg, Matches, Occur, Options};
use std::ffi::{OsStr, OsString};
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option, as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// One letter, or nothing.
    pub short: &'static str,
    /// A name, or nothing.
    pub long: &'static str,
    /// The name of its value in texts; nothing for a flag.
    pub value: &'static str,
    /// Whether it may be given several times.
    pub many: bool,
}

/// A command line, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Given {
    /// The options in the order of the line. Each is the index of the option in
    /// its table, and its value, which is empty for a flag.
    pub options: Vec<(usize, String)>,
    /// The arguments that are neither an option nor its value.
    pub operands: Vec<String>,
}

impl Given {
    /// Takes a command line apart, given without the program's name. The style
    /// says whether options may follow an operand.
    ///
    /// # Errors
    ///
    /// A message that names the option.
    pub fn split(
        table: &[Opt],
        style: ParsingStyle,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Given, String> {
        let mut parser = Options::new();
        parser.parsing_style(style);
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
        let matches = parse(&parser, arguments)?;
        let mut options = Vec::new();
        for (index, option) in table.iter().enumerate() {
            let places = matches.opt_positions(option.name()).into_iter();
            let values = matches.opt_strs(option.name()).into_iter();
            let values = values.chain(iter::repeat_with(String::new));
            options.extend(
                places
                    .zip(values)
                    .map(|(place, value)| (place, index, value)),
            );
        }
        // Letters in one argument have the same position, and only the last of
        // them can have a value.
        options.sort_by_key(|(place, index, _)| (*place, !table[*index].value.is_empty()));
        Ok(Given {
            options: options
                .into_iter()
                .map(|(_, index, value)| (index, value))
                .collect(),
            operands: matches.free,
        })
    }
}

impl Opt {
    /// A name that no other option has.
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

/// Has a parser read a command line, given without the program's name. Values
/// and operands become texts that [`to_os`] turns back.
///
/// # Errors
///
/// A message that names the option.
pub fn parse(
    parser: &Options,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<Matches, String> {
    let texts = arguments.into_iter().map(|text| to_text(text.as_ref()));
    parser.parse(texts).map_err(|fail| {
        let (what, name) = match fail {
            Fail::UnrecognizedOption(name) => ("unknown flag", name),
            Fail::ArgumentMissing(name) => ("flag requires an argument", name),
            Fail::UnexpectedArgument(name) => ("flag takes no argument", name),
            Fail::OptionMissing(name) | Fail::OptionDuplicated(name) => {
                ("flag given more than once", name)
            }
        };
        format!("{what}: {}", shown(&name))
    })
}

/// The name of an option as it is typed.
pub fn shown(name: &str) -> String {
    let dashes = if name.chars().count() == 1 { "-" } else { "--" };
    format!("{dashes}{name}")
}

/// The character that represents byte 0; those for the other bytes follow.
const FIRST_STAND_IN: u32 = 0xf700;

/// The argument as text, which [`to_bytes`] turns back. If the argument is no
/// text, each byte that is not ASCII becomes a special character.
fn to_text(argument: &OsStr) -> String {
    let is_stand_in = |character| ('\u{f700}'..='\u{f7ff}').contains(&character);
    let is_plain = |text: &&str| !text.contains(is_stand_in);
    if let Some(text) = argument.to_str().filter(is_plain) {
        return text.into();
    }
    let stand_in = |&byte: &u8| match byte {
        0..=127 => Some(char::from(byte)),
        _ => char::from_u32(FIRST_STAND_IN + u32::from(byte)),
    };
    argument.as_bytes().iter().filter_map(stand_in).collect()
}

/// The bytes of the argument that became this text.
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u8::try_from(u32::from(character).wrapping_sub(FIRST_STAND_IN)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BLANK: Opt = Opt {
        short: "",
        long: "",
        value: "",
        many: false,
    };

    const TABLE: [Opt; 3] = [
        Opt {
            short: "t",
            long: "tube",
            value: "TUBE",
            many: true,
        },
        Opt {
            short: "d",
            long: "delay",
            value: "SECONDS",
            ..BLANK
        },
        Opt {
            short: "q",
            ..BLANK
        },
    ];

    /// The indices of the options, each with its value, and the operands.
    fn split(line: &str, style: ParsingStyle) -> Result<(String, Vec<String>), String> {
        let given = Given::split(&TABLE, style, line.split(' '))?;
        let options = given.options.iter();
        let options: Vec<_> = options.map(|(at, value)| format!("{at}{value}")).collect();
        Ok((options.join(" "), given.operands))
    }

    #[test]
    fn options_keep_the_order_of_the_command_line() {
        let operands = ["one", "two", "-t"].map(String::from).to_vec();
        let given = split(
            "-ta one --tube=b -qd5 two -- -t",
            ParsingStyle::FloatingFrees,
        );
        assert_eq!(given, Ok(("0a 0b 2 15".into(), operands)));
        let given = split("-q -d1 -tx", ParsingStyle::FloatingFrees);
        assert_eq!(given, Ok(("2 11 0x".into(), Vec::new())));
    }

    #[test]
    fn options_end_at_the_first_operand_if_the_style_requires_it() {
        let operands = ["one", "-q"].map(String::from).to_vec();
        let given = split("one -q", ParsingStyle::StopAtFirstFree);
        assert_eq!(given, Ok((String::new(), operands)));
    }

    #[test]
    fn an_error_names_the_option_at_fault() {
        for (line, said) in [
            ("-x", "unknown flag: -x"),
            ("--nope", "unknown flag: --nope"),
            ("-d", "flag requires an argument: -d"),
            ("-d1 -d2", "flag given more than once: --delay"),
        ] {
            assert_eq!(split(line, ParsingStyle::FloatingFrees), Err(said.into()));
        }
    }

    #[test]
    fn an_argument_of_any_bytes_is_unchanged_by_conversion_to_text_and_back() {
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
