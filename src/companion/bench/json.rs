//! JSON, as much of it as a result needs: writing.

use super::Failure;
use std::fmt;
use std::path::Path;

/// A JSON value.
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object, its keys in this order.
    Object(Vec<(String, Json)>),
}

/// A number with all the digits that tell it from its neighbours; `null` if it
/// is not finite.
pub fn number(value: f64) -> Json {
    if value.is_finite() {
        Json::Number(value.to_string())
    } else {
        Json::Null
    }
}

/// A whole number.
pub fn whole(value: usize) -> Json {
    Json::Number(value.to_string())
}

/// A string.
pub fn text(value: &str) -> Json {
    Json::Text(value.to_string())
}

/// An object of these members.
pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(
        members
            .into_iter()
            .map(|(key, value)| (key.to_string(), value))
            .collect(),
    )
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(truth) => write!(f, "{truth}"),
            Json::Number(number) => f.write_str(number),
            Json::Text(text) => quoted(f, text),
            Json::Array(values) => {
                f.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (index, (key, value)) in members.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    quoted(f, key)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(character))?,
            _ => write!(f, "{character}")?,
        }
    }
    f.write_str("\"")
}

/// Writes a value to a file, with a line end.
pub fn write(path: &Path, value: &Json) -> Result<(), Failure> {
    let doing = format!("writing {}", path.display());
    std::fs::write(path, format!("{value}\n")).map_err(Failure::of(doing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json_wants_them() {
        let value = object([
            ("text", text("a \"b\" \\ \n é")),
            (
                "list",
                Json::Array(vec![number(1.5), whole(20), number(f64::NAN)]),
            ),
            ("met", Json::Bool(true)),
            ("nothing", Json::Array(Vec::new())),
        ]);
        assert_eq!(
            value.to_string(),
            r#"{"text":"a \"b\" \\ \u000a é","list":[1.5,20,null],"met":true,"nothing":[]}"#
        );
    }
}
