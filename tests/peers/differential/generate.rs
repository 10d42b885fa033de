//! Streams of commands, made from a seed. Most commands are valid, so that
//! there are jobs. Some are nearly valid: they differ in a byte or a number.
//! The others are garbage.

use support::Random;

/// How many clients there are.
pub const CLIENTS: usize = 4;

/// What happens next.
#[derive(Clone, Debug)]
pub enum Action {
    /// A client sends these bytes, one command or several.
    Send {
        client: usize,
        bytes: Vec<u8>,
        /// The number of segments into which the bytes are cut.
        segments: usize,
    },
    /// A client closes its connection.
    Close(usize),
    /// Both servers switch to drain mode.
    Drain,
}

/// The options of both servers, and what happens.
#[derive(Clone, Debug)]
pub struct Stream {
    pub max_job_size: u32,
    pub actions: Vec<Action>,
}

const TUBES: &[&str] = &["a", "b", "default", "c-1", "A+/;.$_()9"];
const BAD_NAMES: &[&str] = &["-a", "a b", "", "\u{e9}", "a%", "a\tb", "a\"b"];
const PRIORITIES: &[&str] = &["0", "1", "1", "5", "1023", "1024", "4294967295"];
const DELAYS: &[&str] = &["0", "0", "0", "0", "1000", "100000", "4294967295"];
const TTRS: &[&str] = &["60", "100", "100000", "4294967295"];
const NUMBERS: &[&str] = &[
    "0",
    "00",
    "1",
    "2147483647",
    "2147483648",
    "4294967294",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "-1",
    "-0",
    "+1",
    "0x10",
    "1e3",
    "1.5",
    "",
    " 1",
    "1 ",
    "\t1",
    "x",
];

/// Makes the stream of this seed.
pub fn stream(seed: u64, commands: usize) -> Stream {
    let mut random = Random::new(seed);
    let max_job_size = *random.choose(&[10, 100, 65535]);
    let clients = 1 + random.below(CLIENTS);
    let drains_at = random.one_in(10).then(|| random.below(commands));
    let mut puts = 0;
    let mut actions = Vec::new();
    while actions.len() < commands {
        let client = random.below(clients);
        if drains_at == Some(actions.len()) {
            actions.push(Action::Drain);
        }
        if random.one_in(60) {
            actions.push(Action::Close(client));
            continue;
        }
        let mut bytes = command(&mut random, &mut puts, max_job_size);
        // A wrong word could become a right one.
        if random.one_in(8) && !has_wrong_words(&bytes) {
            spoil(&mut random, &mut bytes);
        }
        if !is_timely(&bytes) {
            continue;
        }
        if let Some(Action::Send {
            client: before,
            bytes: joined,
            ..
        }) = actions.last_mut()
            && *before == client
            && !is_alone(joined)
            && !is_alone(&bytes)
            && random.one_in(2)
        {
            joined.extend(bytes);
            continue;
        }
        let segments = match random.below(10) {
            0 => 2 + random.below(4),
            _ => 1,
        };
        actions.push(Action::Send {
            client,
            bytes,
            segments,
        });
    }
    Stream {
        max_job_size,
        actions,
    }
}

/// Whether this is not sent together with other commands: if no answer to a `reserve`
/// comes, its client waits.
fn is_alone(bytes: &[u8]) -> bool {
    let alone = [&b"reserve"[..], b"quit", b"pause-tube"];
    alone.iter().any(|start| bytes.starts_with(start))
}

fn tube(random: &mut Random) -> String {
    match random.below(40) {
        0 => "x".repeat(200),
        1 => "x".repeat(201),
        2 => random.choose(BAD_NAMES).to_string(),
        _ => random.choose(TUBES).to_string(),
    }
}

/// The id of a job that may exist.
fn id(random: &mut Random, puts: usize) -> String {
    match random.below(50) {
        0 => random.choose(NUMBERS).to_string(),
        // Most commands name a recent job.
        1..40 => (puts + 2).saturating_sub(random.below(8)).to_string(),
        _ => (1 + random.below(puts + 2)).to_string(),
    }
}

/// Makes one command with its CR LF, and its body if it has one.
fn command(random: &mut Random, puts: &mut usize, max_job_size: u32) -> Vec<u8> {
    let pri = *random.choose(PRIORITIES);
    let delay = *random.choose(DELAYS);
    let id = id(random, *puts);
    let line = match random.below(100) {
        0..25 => return put(random, puts, max_job_size),
        25..32 => format!("use {}", tube(random)),
        32..40 => format!("watch {}", tube(random)),
        40..44 => format!("ignore {}", tube(random)),
        44..54 => "reserve-with-timeout 0".into(),
        54 => "reserve".into(),
        55 => "reserve-with-timeout 1000".into(),
        56..59 => format!("reserve-job {id}"),
        59..64 => format!("delete {id}"),
        64..68 => format!("release {id} {pri} {delay}"),
        68..72 => format!("bury {id} {pri}"),
        72..74 => format!("touch {id}"),
        74..76 => format!("peek {id}"),
        76 => "peek-ready".into(),
        77 => "peek-delayed".into(),
        78 => "peek-buried".into(),
        79..82 => format!("kick {}", random.choose(&["0", "1", "1", "2", "3", "100"])),
        82..84 => format!("kick-job {id}"),
        84..87 => format!("stats-job {id}"),
        87..89 => format!("stats-tube {}", tube(random)),
        89 => "stats".into(),
        90 => "list-tubes".into(),
        91 => "list-tube-used".into(),
        92 => "list-tubes-watched".into(),
        93 => format!(
            "pause-tube {} {}",
            tube(random),
            random.choose(&["0", "1000"])
        ),
        94 => "quit".into(),
        95 => format!("kick {}", random.choose(NUMBERS)),
        96 => format!("release {id} {} 0", random.choose(NUMBERS)),
        97 => format!("bury {id} {}", random.choose(NUMBERS)),
        _ => return garbage(random),
    };
    format!("{line}\r\n").into_bytes()
}

/// What may not follow the numbers of a put, although options that look like these
/// may. (Those that may follow on our server may not on theirs, so they are not
/// sent.)
const WRONG_OPTIONS: &[&str] = &[
    " idp",
    " idp:",
    " idp:a:",
    " idp:a:-1",
    " idp:a:4294967296",
    " idp:-a",
    " idp:a idp:b",
    "  idp:a",
    " idp:a ",
    " IDP:a",
    " con:a:0",
    " con:a:b",
    " con:a:1:2",
    " try:0",
    " try:",
    " try:1 try:2",
    " try:a",
    " con:a try:1 x:y",
];

fn has_wrong_words(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\r').next();
    let ends_in = |word: &&str| line.is_some_and(|line| line.ends_with(word.as_bytes()));
    WRONG_OPTIONS.iter().any(ends_in)
}

fn put(random: &mut Random, puts: &mut usize, max_job_size: u32) -> Vec<u8> {
    let size = match random.below(20) {
        0 => max_job_size as usize + random.below(4),
        1 => max_job_size as usize - random.below(4),
        2 => 20_000 + random.below(60_000),
        _ => random.below(12),
    };
    let mut body = vec![b'x'; size];
    if random.one_in(4) {
        let byte = *random.choose(b"\r\n\0 \xff");
        body.fill(byte);
    }
    let told = match random.below(60) {
        0 => size + 1,
        1 => size.saturating_sub(1),
        2 => size + 2,
        _ => size,
    };
    let told = match random.below(300) {
        0 => random.choose(NUMBERS).to_string(),
        _ => told.to_string(),
    };
    let pri = match random.below(30) {
        0 => random.choose(NUMBERS),
        _ => random.choose(PRIORITIES),
    };
    let (delay, ttr) = (random.choose(DELAYS), random.choose(TTRS));
    *puts += 1;
    let word = match random.below(40) {
        0 => random.choose(WRONG_OPTIONS),
        _ => "",
    };
    let line = format!("put {pri} {delay} {ttr} {told}{word}\r\n");
    [line.as_bytes(), &body, b"\r\n"].concat()
}

fn garbage(random: &mut Random) -> Vec<u8> {
    let length = match random.below(10) {
        0 => 200 + random.below(50),
        1 => 400 + random.below(300),
        _ => random.below(30),
    };
    let mut line: Vec<u8> = if random.one_in(2) {
        (0..length).map(|_| random.next() as u8).collect()
    } else {
        (0..length).map(|_| b' ' + random.below(95) as u8).collect()
    };
    if random.one_in(3) {
        let start = *random.choose(&["stats", "use ", "peek-", "put ", "kick", "list-tube"]);
        line.splice(0..0, start.bytes());
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Changes a command a little, but not its last CR LF.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    let line = end.unwrap_or(bytes.len());
    let at = random.below(line + 1);
    match random.below(9) {
        0 => bytes.insert(at, b' '),
        1 => bytes.insert(at, random.next() as u8),
        2 if at < line => drop(bytes.remove(at)),
        3 if at < line => bytes[at] = random.next() as u8,
        4 => drop(bytes.splice(line..line, *b" x")),
        5 => bytes.insert(line, b' '),
        6 => bytes.truncate(at),
        7 if at < line => bytes[at] = bytes[at].to_ascii_uppercase(),
        _ => {
            // One of its arguments becomes a number.
            let spaces = (0..line).filter(|&at| bytes[at] == b' ');
            let spaces: Vec<usize> = spaces.collect();
            if let Some(&space) = spaces.get(random.below(spaces.len().max(1))) {
                let rest = bytes[space + 1..line].iter();
                let word = rest.take_while(|&&byte| byte != b' ').count();
                let number = random.choose(NUMBERS).bytes();
                bytes.splice(space + 1..space + 1 + word, number);
            }
        }
    }
    if !bytes.ends_with(b"\r\n") {
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Whether the effects of a command come at once, or only after the end of the
/// stream, and whether both servers are meant to understand its timeout.
fn is_timely(bytes: &[u8]) -> bool {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    let line = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
    let words: Vec<&str> = line.split_whitespace().collect();
    // Whether this word is a time from this many seconds on that ends soon.
    let is_soon = |at: usize, least: u64| {
        let word = words.get(at).copied().unwrap_or_default();
        let end = word.find(|c: char| !c.is_ascii_digit());
        let number = word[..end.unwrap_or(word.len())].parse();
        number.is_ok_and(|number: u64| (least..=30).contains(&number))
    };
    match words.first().copied().unwrap_or_default() {
        // A time to run of 0 means one second.
        "put" => !is_soon(2, 1) && !is_soon(3, 0),
        "release" => !is_soon(3, 1),
        word if word.starts_with("pause-tube") => !is_soon(1, 1) && !is_soon(2, 1),
        word if word.starts_with("reserve-with-timeout") => {
            let seconds = line
                .strip_prefix("reserve-with-timeout ")
                .unwrap_or_default();
            let is_number = seconds.bytes().all(|byte| byte.is_ascii_digit());
            is_number && matches!(seconds.parse(), Ok(0 | 31..=2_000_000_000))
        }
        _ => true,
    }
}
