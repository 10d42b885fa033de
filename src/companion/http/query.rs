//! The parameters after the `?` of a target.

/// The names and values of a query, decoded. What is not UTF-8 becomes the
/// replacement character; a `%` without two digits stands for itself.
pub fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        rest = if byte.is_some() { &after[2..] } else { after };
        bytes.push(match (byte, first) {
            (Some((high, low)), _) => high * 16 + low,
            (None, b'+') => b' ',
            (None, other) => *other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_what_is_no_code_stays() {
        for (query, expected) in [
            ("", vec![]),
            ("a=1&b", vec![("a", "1"), ("b", "")]),
            ("q=a%20b+c%2B&&q=%C3%A9", vec![("q", "a b c+"), ("q", "é")]),
            (
                "q=%&r=%4&s=%zz&t=%ff",
                vec![("q", "%"), ("r", "%4"), ("s", "%zz"), ("t", "\u{fffd}")],
            ),
            ("x=a=b", vec![("x", "a=b")]),
        ] {
            let found = parameters(query);
            let found: Vec<_> = found
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert_eq!(found, expected, "{query}");
        }
    }
}
