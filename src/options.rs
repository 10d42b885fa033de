//! The command line of beanpoled: beanstalkd's options and some more.

use crate::binlog::{self, SyncMode};
use crate::server::{Address, SocketAccess, find_port};
use getopts::{Fail, Matches};
use nix::libc::mode_t;
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;
use std::time::Duration;

/// The port at which clients expect a server.
const DEFAULT_PORT: u16 = 11300;

/// The largest body that `-z` can allow, in bytes.
const MAX_JOB_SIZE: u32 = 1 << 30;

/// The smallest and the largest size of a binlog file, in bytes.
const SEGMENT_SIZES: RangeInclusive<u64> = 4096..=1 << 30;

/// Why the process ends with an error. Where beanstalkd has a status for a
/// reason, it is the same here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The system has no thread or descriptor left for the server itself.
    CannotStart = 1,
    /// The command line is wrong.
    Usage = 5,
    /// The binlog's directory, or what is in it, cannot be used.
    BinlogUnusable = 10,
    /// Writing or syncing the binlog failed, or another machine has taken it
    /// over.
    BinlogFailed = 11,
    /// The user to become does not exist.
    NoSuchUser = 33,
    /// The system does not let us become that user.
    CannotBecomeUser = 34,
    /// The system does not let us listen on an address.
    CannotListen = 111,
}

/// What the command line asks the program to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// To serve.
    Serve(Box<Options>),
    /// `-h`
    Help,
    /// `-v`
    Version,
}

/// How to serve.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The addresses to listen at, at least one.
    pub listen: Vec<Address>,
    /// Whether the command line says where to listen. If not, it is the
    /// default.
    pub listen_was_given: bool,
    /// Which users may connect to Unix sockets.
    pub socket_access: SocketAccess,
    /// The user to become.
    pub user: Option<String>,
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// The most connections at a time; `None`: as many as the system allows.
    pub max_connections: Option<usize>,
    /// The most memory that jobs, tubes, watches and buffers may take together,
    /// in bytes, 0 for no limit; `None`: as much as the system allows.
    pub max_memory: Option<u64>,
    /// The most jobs of a tube; `None`: no limit.
    pub max_jobs_per_tube: Option<NonZeroUsize>,
    /// How long a connection that holds nothing may be silent; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// Where and how to keep jobs.
    pub binlog: Option<binlog::Options>,
    /// The size of a binlog file as the user gave it, in bytes: `stats` shows
    /// it.
    pub segment_size: u64,
    /// How often `-V` was given.
    pub verbosity: usize,
    /// What the user should know about these options.
    pub warnings: Vec<String>,
}

/// An option: its short name, its long name, its argument, its help.
type Flag = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    ("l", "listen", "ADDR", "address, host or unix:PATH (127.0.0.1); repeatable"),
    ("p", "port", "PORT", "TCP port (11300)"),
    ("", "socket-mode", "OCTAL", "permissions of Unix sockets (600)"),
    ("", "socket-group", "GROUP", "group of Unix sockets"),
    ("u", "user", "USER", "become USER, with all its groups, once bound"),
    ("z", "max-job-size", "BYTES", "largest body (65535; at most 1G)"),
    ("", "max-connections", "N", "close further ones (as many as the system allows)"),
    ("", "max-memory", "BYTES", "refuse puts beyond (as the system allows); 0: never"),
    ("", "max-jobs-per-tube", "N", "refuse puts into a tube that has N jobs (never)"),
    ("", "idle-timeout", "SECS", "close silent connections that hold nothing (never)"),
    ("b", "binlog", "DIR", "keep jobs in DIR across restarts (in memory only)"),
    ("f", "sync", "MS", "sync at most MS ms after a reply (50); 0: before it"),
    ("F", "no-sync", "", "never sync"),
    ("s", "segment-size", "BYTES", "size of a binlog file (10M); K, M, G, T are units"),
    ("", "wait", "", "wait while another server has DIR"),
    ("V", "verbose", "", "log connections; twice: commands and replies too"),
    ("v", "version", "", "show the version"),
    ("h", "help", "", "show this help"),
    ("c", "", "", "and -n: accepted, without effect"),
    ("n", "", "", ""),
];

/// What follows a message about a wrong command line.
pub const HINT: &str = "Use: beanpoled [OPTIONS]; beanpoled -h lists them\n";

/// The text of `-h`: it fits on a terminal of 80 columns and 24 lines.
pub fn usage() -> String {
    let mut text = String::from("Use: beanpoled [OPTIONS]\n\nOptions (and defaults):\n");
    for (short, long, argument, help) in FLAGS.iter().filter(|(.., help)| !help.is_empty()) {
        let flag = match (*short, *long) {
            ("", long) => format!("    --{long} {argument}"),
            (short, "") => format!("-{short}"),
            (short, long) => format!("-{short}, --{long} {argument}"),
        };
        text.push_str(&format!(" {flag:<25} {help}\n"));
    }
    text
}

/// Reads the command line, given without the program's name.
///
/// # Errors
///
/// A message that names the option and the value.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, String> {
    let mut parser = getopts::Options::new();
    for (short, long, value, _) in FLAGS {
        match *value {
            "" => parser.optflagmulti(short, long, ""),
            value => parser.optmulti(short, long, "", value),
        };
    }
    let given = split(&parser, arguments)?;
    // As with beanstalkd, the last one counts if an option is repeated.
    let last_bytes = |flag: &str| given.opt_strs(flag).pop().map(|text| to_os(&text));
    let last = |flag: &str| last_bytes(flag).map(|value| value.to_string_lossy().into_owned());
    let last_position = |flag: &str| given.opt_positions(flag).pop();

    if let Some(argument) = given.free.first() {
        return Err(format!("unknown argument: {}", to_os(argument).display()));
    }
    if given.opt_present("h") {
        return Ok(Invocation::Help);
    }
    if given.opt_present("v") {
        return Ok(Invocation::Version);
    }
    let mut warnings = Vec::new();
    let found = last("p").map_or(Ok(DEFAULT_PORT), |port| find_port(&port));
    let port = found.map_err(|message| format!("-p: {message}"))?;
    let mut listen = Vec::new();
    for text in given.opt_strs("l") {
        let address = Address::new(&to_os(&text), port);
        listen.push(address.map_err(|message| format!("-l: {message}"))?);
    }
    if listen.is_empty() {
        listen.push(Address::Tcp("127.0.0.1".into(), port));
    }
    // What an option says, read in this way; an error names the option.
    let size = |flag| value(flag, last(flag), "size", bytes);
    let count = |flag, what| value(flag, last(flag), what, number::<NonZeroUsize>);
    let time = |flag, what| value(flag, last(flag), what, number::<u32>);
    let max_job_size = match size("z")? {
        Some(size) if size > MAX_JOB_SIZE.into() => {
            warnings.push(format!("-z {size}: lowered to {MAX_JOB_SIZE} bytes"));
            MAX_JOB_SIZE
        }
        size => size.map_or(65535, |size| size as u32),
    };
    let idle_seconds = time("idle-timeout", "time in seconds")?.filter(|seconds| *seconds > 0);
    let sync = match time("f", "time in milliseconds")? {
        _ if last_position("F") > last_position("f") => SyncMode::Never,
        Some(0) => SyncMode::Always,
        millis => SyncMode::Every(Duration::from_millis(millis.unwrap_or(50).into())),
    };
    let segment_size = size("s")?.unwrap_or(binlog::Options::SEGMENT_SIZE);
    let size_taken = segment_size.clamp(*SEGMENT_SIZES.start(), *SEGMENT_SIZES.end());
    let binlog = last_bytes("b").map(|dir| binlog::Options {
        dir: dir.into(),
        sync,
        segment_size: size_taken.max(binlog::segment_len_for(max_job_size as usize + 2)),
        wait: given.opt_present("wait"),
    });
    match &binlog {
        None => {
            let flags = ["-f", "-F", "-s", "--wait"];
            let is_given = |flag: &&str| given.opt_present(flag.trim_matches('-'));
            let in_vain = flags.into_iter().filter(is_given);
            warnings.extend(in_vain.map(|flag| format!("{flag} has no effect without -b")));
        }
        Some(_) if size_taken != segment_size => {
            warnings.push(format!("-s {segment_size}: changed to {size_taken} bytes"));
        }
        Some(_) => {}
    }
    Ok(Invocation::Serve(Box::new(Options {
        listen,
        listen_was_given: given.opts_present(&["l".into(), "p".into()]),
        socket_access: SocketAccess {
            mode: value("socket-mode", last("socket-mode"), "mode", mode)?
                .unwrap_or(Mode::S_IRUSR | Mode::S_IWUSR),
            group: last("socket-group"),
        },
        user: last("u"),
        max_job_size,
        max_connections: count("max-connections", "number of connections")?.map(NonZeroUsize::get),
        max_memory: size("max-memory")?,
        max_jobs_per_tube: count("max-jobs-per-tube", "number of jobs")?,
        idle_timeout: idle_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        binlog,
        segment_size,
        verbosity: given.opt_count("V"),
        warnings,
    })))
}

/// Takes the command line apart. Values and operands are texts that [`to_os`] turns back.
fn split(
    parser: &getopts::Options,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Matches, String> {
    let texts = arguments.into_iter().map(|argument| to_text(&argument));
    parser.parse(texts).map_err(|fail| {
        let (what, name) = match fail {
            Fail::UnrecognizedOption(name) => ("unknown flag", name),
            Fail::ArgumentMissing(name) => ("flag requires an argument", name),
            Fail::UnexpectedArgument(name) => ("flag takes no argument", name),
            Fail::OptionMissing(name) | Fail::OptionDuplicated(name) => {
                ("flag given more than once", name)
            }
        };
        format!("{what}: {}", shown(&to_os(&name).to_string_lossy()))
    })
}

/// The name of an option as it is typed.
fn shown(name: &str) -> String {
    let dashes = if name.chars().count() == 1 { "-" } else { "--" };
    format!("{dashes}{name}")
}

/// The argument as a text in which each byte is a character: `getopts` takes no other bytes
/// than those of texts, and the path of an old directory may have some.
fn to_text(argument: &OsStr) -> String {
    let bytes = argument.as_bytes().iter().copied();
    bytes.map(char::from).collect()
}

/// The argument that became this text.
fn to_os(text: &str) -> OsString {
    let bytes = text.chars().map(|character| character as u8);
    OsString::from_vec(bytes.collect())
}

/// Reads the value of an option, if it was given. The error names the option.
fn value<T>(
    flag: &str,
    text: Option<String>,
    what: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let wrong = |text: &str| format!("{}: invalid {what}: {text}", shown(flag));
    text.map(|text| read(&text).ok_or_else(|| wrong(&text)))
        .transpose()
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// A number of bytes. K, M, G or T may follow it, for units of 1024, 1024^2 and
/// so on.
fn bytes(text: &str) -> Option<u64> {
    let units = ["kK", "mM", "gG", "tT"].into_iter().zip([10, 20, 30, 40]);
    let mut with_unit = units
        .filter_map(|(letters, shift)| Some((text.strip_suffix(|c| letters.contains(c))?, shift)));
    let (digits, shift) = with_unit.next().unwrap_or((text, 0));
    number::<u64>(digits)?.checked_mul(1 << shift)
}

/// The permissions of a file, in octal digits.
fn mode(text: &str) -> Option<Mode> {
    let bits = mode_t::from_str_radix(text, 8).ok();
    bits.filter(|bits| *bits <= 0o777).and_then(Mode::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        match parse(line.split_whitespace().map(OsString::from)) {
            Ok(Invocation::Serve(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn error(line: &str) -> String {
        parse(line.split_whitespace().map(OsString::from)).unwrap_err()
    }

    #[test]
    fn the_daemon_listens_on_loopback_alone_by_default() {
        let options = options("");
        assert_eq!(options.listen[0].to_string(), "127.0.0.1:11300");
        assert_eq!(options.listen.len(), 1);
        assert_eq!(options.max_job_size, 65535);
        assert_eq!(options.binlog, None);
    }

    #[test]
    fn options_are_the_same_in_short_and_long_form_joined_and_apart() {
        let short = options("-V -VV -p 1 -p2 -l ::1 -lunix:/x -z1 -u me -b d -f 0 -s 9 -cn");
        let long = options(
            "--verbose --verbose --verbose --port=2 --listen ::1 --listen=unix:/x \
             --max-job-size 1 --user me --binlog d --sync 0 --segment-size 9",
        );
        assert_eq!(short, long);
        assert_eq!(short.segment_size, 9);
        assert_eq!(short.listen[0].to_string(), "[::1]:2");
        assert_eq!(short.listen[1].to_string(), "unix:/x");
    }

    #[test]
    fn the_later_of_sync_and_no_sync_counts() {
        let sync = |line| options(line).binlog.unwrap().sync;
        assert_eq!(sync("-b d"), SyncMode::Every(Duration::from_millis(50)));
        assert_eq!(sync("-b d -F"), SyncMode::Never);
        assert_eq!(sync("-b d -f0 -F"), SyncMode::Never);
        assert_eq!(sync("-b d -F -f0"), SyncMode::Always);
    }

    #[test]
    fn errors_name_the_option_and_the_value() {
        assert_eq!(error("-x"), "unknown flag: -x");
        assert_eq!(error("--nope"), "unknown flag: --nope");
        assert_eq!(error("foo"), "unknown argument: foo");
        assert_eq!(error("-p"), "flag requires an argument: -p");
        assert_eq!(error("-z 1x"), "-z: invalid size: 1x");
        assert_eq!(error("-s k"), "-s: invalid size: k");
        assert_eq!(error("-f 1s"), "-f: invalid time in milliseconds: 1s");
        assert_eq!(error("-l unix:"), "-l: invalid address: unix:");
        let port = "neither a port nor a service: 99999";
        assert_eq!(error("-p 99999"), format!("-p: {port}"));
        assert_eq!(error("-p 1 -l ::1 -l [::1]:99999"), format!("-l: {port}"));
    }

    #[test]
    fn sizes_take_units_in_capital_and_small_letters() {
        for (line, bytes) in [
            ("-z 64K", 64 << 10),
            ("-z 64k", 64 << 10),
            ("-z 1M", 1 << 20),
        ] {
            assert_eq!(options(line).max_job_size, bytes);
        }
        for (line, bytes) in [("-s 10M", 10 << 20), ("-s 16k", 16 << 10), ("-s 7", 7)] {
            assert_eq!(options(line).segment_size, bytes);
        }
        for (line, bytes) in [("1T", 1 << 40), ("2g", 2 << 30), ("0", 0), ("5", 5)] {
            let line = format!("--max-memory {line}");
            assert_eq!(options(&line).max_memory, Some(bytes));
        }
    }

    #[test]
    fn a_size_above_a_gibibyte_is_lowered_with_a_warning() {
        let options = options("-z 5000000000");
        assert_eq!(options.max_job_size, 1 << 30);
        assert_eq!(options.warnings.len(), 1);
    }

    #[test]
    fn limits_take_numbers_in_their_units() {
        let options = options("--max-connections 9 --max-memory 2G --idle-timeout 60");
        assert_eq!(options.max_connections, Some(9));
        assert_eq!(options.max_memory, Some(2 << 30));
        assert_eq!(options.idle_timeout, Some(Duration::from_secs(60)));
        assert_eq!(error("--max-memory 1P"), "--max-memory: invalid size: 1P");
        assert_eq!(self::options("--max-memory 0").max_memory, Some(0));
        assert_eq!(
            error("--max-memory 99999999999G"),
            "--max-memory: invalid size: 99999999999G"
        );
        assert_eq!(
            error("--max-connections 0"),
            "--max-connections: invalid number of connections: 0"
        );
        assert_eq!(
            error("--idle-timeout soon"),
            "--idle-timeout: invalid time in seconds: soon"
        );
    }

    #[test]
    fn connections_memory_and_idle_time_are_not_limited_by_default() {
        let options = options("--idle-timeout 0");
        assert_eq!(options.max_connections, None);
        assert_eq!(options.max_memory, None);
        assert_eq!(options.idle_timeout, None);
    }

    #[test]
    fn a_socket_file_is_private_unless_a_mode_is_given() {
        assert_eq!(options("").socket_access.mode.bits(), 0o600);
        let open = options("--socket-mode 0660 --socket-group www").socket_access;
        assert_eq!(
            (open.mode.bits(), open.group.as_deref()),
            (0o660, Some("www"))
        );
        assert_eq!(
            error("--socket-mode 888"),
            "--socket-mode: invalid mode: 888"
        );
        assert_eq!(
            error("--socket-mode 1777"),
            "--socket-mode: invalid mode: 1777"
        );
    }

    #[test]
    fn options_of_the_binlog_give_a_warning_without_a_binlog() {
        assert!(options("-b d --wait").binlog.unwrap().wait);
        let nothing: [&str; 0] = [];
        assert_eq!(options("-b d -f 1 -F -s 5000 --wait").warnings, nothing);
        let warnings = options("-f 1 -F -s 5000 --wait").warnings;
        let flags = ["-f", "-F", "-s", "--wait"];
        assert_eq!(
            warnings,
            flags.map(|flag| format!("{flag} has no effect without -b"))
        );
    }

    #[test]
    fn the_segment_size_is_at_least_a_page_and_at_most_a_gibibyte() {
        for (line, taken) in [("-b d -z 1 -s 0", 4096), ("-b d -s 5000000000", 1 << 30)] {
            let options = options(line);
            assert_eq!(options.binlog.unwrap().segment_size, taken);
            let given = options.segment_size;
            let warning = format!("-s {given}: changed to {taken} bytes");
            assert_eq!(options.warnings, [warning]);
        }
    }

    #[test]
    fn a_segment_is_as_long_as_the_longest_put_needs() {
        for (line, given) in [("-b d -s 4096 -z 1G", 4096), ("-b d -s 1G -z 1G", 1 << 30)] {
            let options = options(line);
            assert_eq!(options.segment_size, given);
            let len = options.binlog.unwrap().segment_size;
            assert_eq!(len, binlog::segment_len_for((1 << 30) + 2));
            assert!(options.warnings.is_empty());
        }
    }

    /// The options in the manual's lists, as they are written there.
    fn described(manual: &str) -> Vec<&str> {
        let (_, options) = manual.split_once(".Ss Where to listen").expect("options");
        let (options, _) = options.split_once(".Ss Signals").expect("an end");
        let items = options
            .lines()
            .filter_map(|line| line.strip_prefix(".It Fl "));
        let mut options: Vec<_> = items.collect();
        options.sort_unstable();
        options
    }

    #[test]
    fn the_manual_describes_each_option_with_its_argument() {
        let manual = include_str!("../man/beanpoled.8");
        let mut options: Vec<_> = FLAGS
            .iter()
            .map(|(short, long, argument, _)| {
                let argument = match *argument {
                    "" => String::new(),
                    argument => format!(" Ar {argument}"),
                };
                match (*short, *long) {
                    ("", long) => format!("-{long}{argument}"),
                    (short, "") => short.to_string(),
                    (short, long) => format!("{short}{argument} , Fl -{long}{argument}"),
                }
            })
            .collect();
        options.sort();
        assert_eq!(described(manual), options);
        let (synopsis, _) = manual.split_once(".Sh DESCRIPTION").expect("a manual");
        for (short, long, argument, _) in FLAGS {
            let in_synopsis = match (*short, *argument) {
                ("", "") => format!(".Op Fl -{long}\n"),
                ("", argument) => format!(".Op Fl -{long} Ar {argument}\n"),
                (short, "") => short.to_string(),
                (short, argument) => format!(".Op Fl {short} Ar {argument}\n"),
            };
            assert!(synopsis.contains(&in_synopsis), "{in_synopsis}");
        }
    }

    #[test]
    fn the_manual_has_each_exit_status() {
        let manual = include_str!("../man/beanpoled.8");
        let (_, statuses) = manual.split_once(".Sh EXIT STATUS").expect("a manual");
        let (statuses, _) = statuses.split_once(".Sh ").expect("another section");
        let items = statuses
            .lines()
            .filter_map(|line| line.strip_prefix(".It "));
        let described: Vec<u8> = items.map(|item| item.parse().expect("a number")).collect();
        assert_eq!(
            described,
            [
                0,
                Exit::CannotStart as u8,
                Exit::Usage as u8,
                Exit::BinlogUnusable as u8,
                Exit::BinlogFailed as u8,
                Exit::NoSuchUser as u8,
                Exit::CannotBecomeUser as u8,
                Exit::CannotListen as u8,
            ]
        );
    }

    #[test]
    fn the_usage_fits_on_a_screen_and_names_every_option() {
        let usage = usage();
        assert!(usage.lines().count() < 24, "{usage}");
        for line in usage.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        for (short, long, ..) in FLAGS {
            assert!(usage.contains(&format!("-{short}")));
            assert!(usage.contains(long));
        }
    }

    #[test]
    fn an_argument_of_any_bytes_is_unchanged_by_conversion_to_text_and_back() {
        for bytes in [
            &b""[..],
            b"plain",
            "é😀".as_bytes(),
            b"\xff\x00a\xc3",
            b"\xf0\x9f",
        ] {
            let argument = OsStr::from_bytes(bytes);
            assert_eq!(to_os(&to_text(argument)), argument);
        }
        assert_eq!(error("é"), "unknown argument: é");
        assert_eq!(error("--éé"), "unknown flag: --éé");
        assert_eq!(error("-z é"), "-z: invalid size: é");
    }
}
