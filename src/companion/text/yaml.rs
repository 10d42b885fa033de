//! YAML as `--yaml` writes it. It has the same values as `--json`, in lists and
//! dictionaries. A text is in double quotes; a key only if YAML could take it
//! for something else.

use crate::failure::Outcome;
use crate::text::json::{Json, Map, line};
use crate::text::output::print;

/// Prints a value that is the whole output, as YAML or as JSON.
pub fn print_as(value: &Json, yaml: bool) -> Outcome {
    print(match yaml {
        true => write(value),
        false => line(value) + "\n",
    })
}

/// The YAML document of a value.
pub fn write(value: &Json) -> String {
    let mut text = String::from("---\n");
    match value {
        Json::Array(items) if items.is_empty() => text += "[]\n",
        Json::Array(items) => {
            for item in items {
                match item {
                    Json::Object(pairs) => write_pairs(&mut text, pairs, "- ", "  "),
                    scalar => text += &format!("- {}\n", line(scalar)),
                }
            }
        }
        Json::Object(pairs) => write_pairs(&mut text, pairs, "", ""),
        scalar => text += &format!("{}\n", line(scalar)),
    }
    text
}

/// Writes one pair in a line. A dictionary within a dictionary is indented.
fn write_pairs(text: &mut String, pairs: &Map<String, Json>, first: &str, others: &str) {
    for (index, (key, value)) in pairs.iter().enumerate() {
        let indent = if index == 0 { first } else { others };
        let key = plain_or_quoted(key);
        match value {
            Json::Object(inner) => {
                *text += &format!("{indent}{key}:\n");
                let deeper = format!("{others}  ");
                write_pairs(text, inner, &deeper, &deeper);
            }
            // Texts and numbers of JSON are valid in YAML, too.
            scalar => *text += &format!("{indent}{key}: {}\n", line(scalar)),
        }
    }
}

fn plain_or_quoted(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.bytes().all(is_plain) {
        true => key.into(),
        false => line(&key.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::json::parse;

    #[test]
    fn lists_and_dictionaries_are_written_by_lines() {
        let value = parse(br##"[{"name":"a","n":1},{"name":"#1 SMP","x y":{"b":true}},"c"]"##);
        assert_eq!(
            write(&value.unwrap()),
            "---\n- name: \"a\"\n  n: 1\n- name: \"#1 SMP\"\n  \"x y\":\n    b: true\n- \"c\"\n"
        );
        assert_eq!(write(&Vec::<Json>::new().into()), "---\n[]\n");
    }
}
