//! The options of `bench` as a table: each with the field that it goes into.

use beanpole::arguments::{self, Given};
use companion::failure::{Failure, Outcome};
use companion::values::Parse;

/// One option.
#[derive(Clone, Copy)]
pub struct Opt {
    /// One letter, or nothing.
    pub short: &'static str,
    pub long: &'static str,
    /// The name of its value in the usage; empty for a flag.
    pub value: &'static str,
    pub about: &'static str,
}

impl Opt {
    /// An option without a value.
    pub const fn flag(short: &'static str, long: &'static str, about: &'static str) -> Opt {
        Opt::value(short, long, "", about)
    }

    /// An option with a value.
    pub const fn value(
        short: &'static str,
        long: &'static str,
        value: &'static str,
        about: &'static str,
    ) -> Opt {
        Opt {
            short,
            long,
            value,
            about,
        }
    }

    /// What the parser needs to know about it.
    pub fn syntax(&self) -> arguments::Opt {
        arguments::Opt {
            short: self.short,
            long: self.long,
            value: self.value,
            many: false,
        }
    }
}

/// The options. Each comes with the function that reads a value into its field,
/// so no option is looked up by its name.
pub type Settings<O> = &'static [(Opt, fn(&mut O, &str) -> Result<(), String>)];

/// Makes a struct `Options` with a field for each option, and the settings that
/// say which option goes into which field.
macro_rules! options {
    ($($field:ident: $type:ty = $option:expr,)*) => {
        #[derive(Default)]
        struct Options {
            $($field: $type,)*
        }

        const OPTIONS: $crate::bench::arguments::Settings<Options> = &[$((
            $option,
            |options, value| $crate::bench::arguments::Read::read(&mut options.$field, value),
        ),)*];
    };
}
pub(crate) use options;

/// The options of these settings, without the functions that read them.
pub fn described<O>(settings: Settings<O>) -> Vec<Opt> {
    settings.iter().map(|(option, _)| *option).collect()
}

/// Reads the options of these settings.
pub fn read<O>(given: &Given, settings: Settings<O>, into: &mut O) -> Outcome<()> {
    for (index, value) in &given.options {
        if let Some((option, read)) = settings.get(*index) {
            read(into, value).map_err(|reason| {
                Failure::Usage(format!("{}: {reason}", option.syntax().shown()))
            })?;
        }
    }
    Ok(())
}

/// The field of an option.
pub trait Read {
    /// Takes over this value, which is empty for a flag.
    fn read(&mut self, value: &str) -> Result<(), String>;
}

/// A flag.
impl Read for bool {
    fn read(&mut self, _: &str) -> Result<(), String> {
        *self = true;
        Ok(())
    }
}

/// An option that may be missing; the last value given counts.
impl<T: Parse> Read for Option<T> {
    fn read(&mut self, value: &str) -> Result<(), String> {
        *self = Some(T::parse(value)?);
        Ok(())
    }
}
