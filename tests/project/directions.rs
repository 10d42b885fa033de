//! Which part may name which: the visibility of modules cannot enforce that, since a
//! package is one crate. A part is a module of the first level. What it names is read
//! from its text, up to the module of its tests: paths that begin with `crate`, or
//! with as many `super` as lead to the root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What the lower parts of the daemon may name.
const MAY_NAME: [(&str, &[&str]); 6] = [
    ("protocol", &[]),
    ("engine", &["protocol"]),
    (
        "binlog",
        &["engine", "protocol", "log", "lock", "sync", "sys"],
    ),
    ("lock", &["sync"]),
    ("sync", &["sys"]),
    ("sys", &[]),
];

type Names = BTreeMap<String, BTreeSet<String>>;

/// Adds what the files of a folder name below the path `root`. `above` is where the
/// folder is below it.
fn read(root: &str, folder: &Path, above: &[String], names: &mut Names) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let mut place = above.to_vec();
        if name != "mod" {
            place.push(name.clone());
        }
        if path.is_dir() && !path.join("lib.rs").exists() {
            read(root, &path, &place, names);
        } else if path.extension().is_some_and(|end| end == "rs")
            && !place.is_empty()
            && !(above.is_empty() && ["lib", "main"].contains(&name.as_str()))
        {
            let text = fs::read_to_string(&path).expect("a text");
            let named = named_in(&text, root, &"super::".repeat(place.len()));
            names.entry(place[0].clone()).or_default().extend(named);
        }
    }
}

/// The modules right below `root` that this text names.
fn named_in(text: &str, root: &str, to_the_root: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let lines = code.lines().map(str::trim);
    let text: String = lines.filter(|line| !line.starts_with("//")).collect();
    let code = text.replace(to_the_root, root);
    let word = |text: &str| -> String {
        let is_word = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        text.trim().chars().take_while(is_word).collect()
    };
    let mut named = BTreeSet::new();
    for after in code.split(root).skip(1) {
        let Some(list) = after.strip_prefix('{') else {
            named.insert(word(after));
            continue;
        };
        let mut depth = 0;
        let pieces = list.split(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == ',' && depth == 0 || depth < 0
        });
        named.extend(pieces.map(word));
    }
    named.remove("");
    named
}

/// What the parts of a package, or those below one of its modules, name of each other.
fn names_of(package: &str, root: &str) -> Names {
    let mut names = Names::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
    read(root, &folder, &[], &mut names);
    let parts: BTreeSet<_> = names.keys().cloned().collect();
    assert!(parts.len() > 8, "{package}: {parts:?}");
    for (part, named) in &mut names {
        named.retain(|other| other != part && parts.contains(other));
    }
    names
}

#[test]
fn a_module_of_the_daemon_names_only_modules_below_it() {
    let names = names_of("src", "crate::");
    for (part, allowed) in MAY_NAME {
        for other in &names[part] {
            assert!(allowed.contains(&other.as_str()), "{part} names {other}");
        }
    }
    let server = &names["server"];
    assert!(server.contains("engine"), "not read right: {server:?}");
    assert!(!server.contains("options"), "server names options");
}

#[test]
fn no_modules_depend_on_each_other_in_a_cycle() {
    for package in ["src", "src/companion"] {
        let names = names_of(package, "crate::");
        for start in names.keys() {
            let mut reached = vec![start];
            let mut at = 0;
            while at < reached.len() {
                let part = reached[at];
                for other in &names[part] {
                    assert!(
                        other != start,
                        "{package}: {start} leads to {part} and back"
                    );
                    if !reached.contains(&other) {
                        reached.push(other);
                    }
                }
                at += 1;
            }
        }
    }
}

#[test]
fn no_command_of_the_companion_uses_another() {
    for (command, others) in names_of("src/companion/commands", "crate::commands::") {
        assert!(others.is_empty(), "{command} names {others:?}");
    }
}
