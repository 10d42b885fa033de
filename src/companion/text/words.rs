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

/// The beginning of a body in one line of up to `width` characters, which
/// cannot disturb a terminal.
pub fn beginning(body: &[u8], width: usize) -> String {
    let shown = &body[..body.len().min(4 * width)];
    let text = match std::str::from_utf8(shown) {
        Ok(text) => text.escape_debug().to_string(),
        // Either the cut has divided a character, or the body is not text.
        Err(error) => match (error.error_len(), error.valid_up_to()) {
            (None, valid) if shown.len() < body.len() => beginning(&shown[..valid], width),
            _ => shown.escape_ascii().to_string(),
        },
    };
    text.chars().take(width).collect()
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
    fn a_body_begins_as_text_if_it_is_text_and_as_bytes_if_not() {
        assert_eq!(beginning("é\x1b[2J\n".as_bytes(), 20), "é\\u{1b}[2J\\n");
        assert_eq!(beginning(b"\xff\x00a", 20), "\\xff\\x00a");
        assert_eq!(beginning("ab".repeat(100).as_bytes(), 3), "aba");
        assert_eq!(beginning("aéé".repeat(9).as_bytes(), 1), "a");
        assert_eq!(beginning("é".as_bytes(), 0), "");
    }
}
