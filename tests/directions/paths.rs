//! What paths a text of Rust has in it: read as far as our own style goes.

/// The text without comments, strings, and modules of tests.
pub fn code_of(text: &str) -> String {
    let text: String = match text.find("#[cfg(test)]\nmod tests") {
        Some(end) => text[..end].into(),
        None => text.into(),
    };
    let mut code = String::new();
    let mut in_tests = false;
    for line in text.lines() {
        let line = line.trim();
        in_tests |= line == "#[cfg(test)]";
        if in_tests || line.starts_with("//") {
            // An item for tests alone: up to the line that ends it.
            in_tests &= !(line.ends_with('}') || line.ends_with(';'));
            continue;
        }
        let mut is_text = false;
        let mut before = ' ';
        for character in line.chars() {
            if character == '"' && before != '\\' && before != '\'' {
                is_text = !is_text;
            } else if !is_text {
                code.push(character);
            }
            before = character;
        }
        code.push('\n');
    }
    code
}

/// The modules in files of their own that this one declares.
pub fn children(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines() {
        let line = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        if let Some(name) = line
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'))
        {
            found.push(name.to_string());
        }
    }
    found
}

/// All paths in this code that may be of modules of ours.
pub fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let start = rest[..at]
            .rfind(|c| !is_word(c))
            .map_or(0, |before| before + 1);
        // The path goes on as long as words follow, or a list of them.
        let tail = &rest[at..];
        let mut end = 0;
        while let Some(after) = tail[end..].strip_prefix("::") {
            let word = after.find(|c| !is_word(c)).unwrap_or(after.len());
            if word == 0 {
                break;
            }
            end += 2 + word;
        }
        let path = &rest[start..at + end];
        match tail[end..].strip_prefix("::{") {
            Some(list) => {
                let mut depth = 1;
                let close = list.find(|c| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    depth == 0
                });
                let close = close.unwrap_or(list.len());
                expand(path, &format!("{{{}}}", &list[..close]), &mut found);
                rest = &list[close..];
            }
            None => {
                found.push(path.to_string());
                rest = &tail[end.max(2)..];
            }
        }
    }
    found.retain(|path| {
        path.chars()
            .next()
            .is_some_and(|first| first.is_lowercase())
    });
    found
}

/// The paths in `a::{b, c::{d, e as f}}`, with this in front.
pub fn expand(before: &str, list: &str, into: &mut Vec<String>) {
    let list = list.trim();
    let joined = |name: &str| match before {
        "" => name.to_string(),
        _ => format!("{before}::{name}"),
    };
    if let Some(inner) = list
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let mut depth = 0;
        let parts = inner.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        parts
            .filter(|part| !part.trim().is_empty())
            .for_each(|part| expand(before, part, into));
    } else if let Some((head, tail)) = list.split_once("::{") {
        expand(&joined(head.trim()), &format!("{{{tail}"), into);
    } else {
        let name = list.split(" as ").next().unwrap_or(list).trim();
        match name {
            "self" | "*" => into.push(before.to_string()),
            _ => into.push(joined(name.trim_end_matches("::*"))),
        }
    }
}
