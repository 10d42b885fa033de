//! Times and bodies, shortened to fit into a line of a table.

/// A span of time in its largest unit.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A body in one line, which cannot disturb a terminal, of up to `width`
/// characters if a width is given.
pub fn beginning(body: &[u8], width: Option<usize>) -> String {
    let Some(width) = width else {
        return shown(body, false);
    };
    // A character has at most four bytes.
    let text = shown(&body[..body.len().min(4 * width)], false);
    text.chars().take(width).collect()
}

/// These bytes as text, with escapes for all that is no text or would disturb a
/// terminal. Line feeds and tabs stay if there may be several lines.
pub fn shown(bytes: &[u8], lines: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' | '\t' if lines => text.push(character),
                '\n' | '\t' | '\r' => text.extend(character.escape_default()),
                '\0'..='\x1f' | '\x7f' => text += &format!("\\x{:02x}", u32::from(character)),
                // Other control characters, and those that turn the direction.
                '\u{80}'..='\u{9f}' | '\u{200e}' | '\u{200f}' => {
                    text.extend(character.escape_default());
                }
                '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    text.extend(character.escape_default());
                }
                other => text.push(other),
            }
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_their_largest_unit() {
        let spans = [0, 119, 120, 7200, 172_800].map(span);
        assert_eq!(spans, ["0s", "119s", "2m", "2h", "2d"]);
    }

    #[test]
    fn a_body_is_shown_as_text_and_disturbs_no_terminal() {
        let beginning = |body: &[u8], width| beginning(body, Some(width));
        assert_eq!(beginning("é\x1b[2J\n".as_bytes(), 20), "é\\x1b[2J\\n");
        assert_eq!(beginning(b"\xff\x00a", 20), "\\xff\\x00a");
        assert_eq!(beginning("ab".repeat(100).as_bytes(), 3), "aba");
        assert_eq!(beginning("aéé".repeat(9).as_bytes(), 1), "a");
        assert_eq!(beginning("é".as_bytes(), 0), "");
        assert_eq!(beginning(br#"{"it's":"a\\b"}"#, 20), r#"{"it's":"a\\b"}"#);
        assert_eq!(
            shown("a\tb\r\n\u{9b}\u{202e}".as_bytes(), true),
            "a\tb\\r\n\\u{9b}\\u{202e}"
        );
    }
}
