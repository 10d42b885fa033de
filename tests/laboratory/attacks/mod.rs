//! `attack clients`: bad clients, and what a well-behaved client feels
//! meanwhile.
//!
//! Each attack gets a fresh server. A well-behaved client (`neighbour`) puts,
//! reserves and deletes jobs at a steady pace: before the attack, during it,
//! then until the server holds no more than before it, and then for a while
//! longer. The table tells how long its cycles took before, during and after
//! the attack. It also tells what the server held of the machine (`gauge`)
//! before, at the worst moment, and afterwards.
//!
//! With `--small` each attack is just large enough to notice that a server
//! grows. Several attacks run at the same time, and times are told but not
//! judged.
//!
//! An attack fails if the server is gone, if it refuses or cuts off the
//! well-behaved client, if it grows more than the attack may cost, if it keeps
//! descriptors, threads or memory, if it does what the attack itself forbids,
//! or if it does not end when asked to.
//!
//! In reading order: `list` (the attacks), `rude`, `hoards` and `crowds` (what
//! they do), `neighbour`, `gauge`, `report`.

mod crowds;
mod gauge;
mod hoards;
mod list;
mod neighbour;
mod report;
mod rude;
mod target;

use crate::bench::load::Placement;
use crate::bench::servers::{self, Server, Source};
use companion::failure::Failure;
pub(crate) use gauge::Held;
use list::{ATTACKS, Attack};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use report::Result;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use target::Target;

const USAGE: &str = "\
Usage: attack clients [OPTION]...
Runs bad clients against servers, and tells what a well-behaved client felt
before, during and after each attack, and what the server held of the machine.
Status 1 if a server of ours failed an attack.

  --ours COMMAND     start our server so; {port} stands for its port
  --theirs COMMAND   attack this server as well, beside ours
  --only NAME        this attack alone; may be repeated
  --small            smaller and at the same time, for what must not take long
  --list             name the attacks
  -h, --help         this text
";

/// How much more memory a server may hold after an attack than before it, in
/// bytes: allocators keep some.
const LEFT_OVER: u64 = 16 << 20;

/// How long a server may take to become calm. Workers without a client wait ten
/// seconds before they end, and if there are many, ending takes a while.
const SETTLES: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Options {
    ours: String,
    theirs: Option<String>,
    only: Vec<String>,
    small: bool,
}

/// Runs `attack clients` with these arguments. The status is 0; 1 if a server
/// of ours failed an attack, 2 if the arguments cannot be understood, 4 if a
/// run failed.
pub fn run(arguments: &[String]) -> ExitCode {
    crate::attacks::finish(carry_out(arguments), "clients")
}

/// The status of a program of the laboratory. Prints the reason of a failure to
/// standard error.
pub(crate) fn finish(outcome: std::result::Result<bool, Failure>, name: &str) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("attack {name}: {failure}");
            failure.exit_code()
        }
    }
}

/// The default command that starts our server, which lies beside this program.
pub(crate) fn ours() -> std::result::Result<String, Failure> {
    let program = std::env::current_exe().map_err(Failure::of("finding this program"))?;
    let server = program.with_file_name("beanpoled");
    Ok(format!("'{}' -l 127.0.0.1 -p {{port}}", server.display()))
}

fn carry_out(arguments: &[String]) -> std::result::Result<bool, Failure> {
    let mut options = getopts::Options::new();
    options.optopt("", "ours", "", "");
    options.optopt("", "theirs", "", "");
    options.optmulti("", "only", "", "");
    options.optflag("", "small", "");
    options.optflag("", "list", "");
    options.optflag("h", "help", "");
    let given = options.parse(arguments);
    let given = given.map_err(|error| Failure::Usage(error.to_string()))?;
    if given.opt_present("help") {
        print!("{USAGE}");
        return Ok(true);
    }
    if given.opt_present("list") {
        for attack in ATTACKS {
            println!("{:26} {}", attack.name, attack.about);
        }
        return Ok(true);
    }
    let options = Options {
        ours: given.opt_str("ours").map_or_else(ours, Ok)?,
        theirs: given.opt_str("theirs"),
        only: given.opt_strs("only"),
        small: given.opt_present("small"),
    };
    let known = |name: &&String| !ATTACKS.iter().any(|attack| attack.name == **name);
    if let Some(unknown) = options.only.iter().find(known) {
        return Err(Failure::Usage(format!("no attack is called {unknown}")));
    }
    servers::raise_descriptor_limit()?;
    servers::end_children_on_signals()?;
    attack_all(&options)
}

/// Runs all attacks that are asked for. Small ones run at the same time.
fn attack_all(options: &Options) -> std::result::Result<bool, Failure> {
    let wanted = |attack: &&Attack| {
        options.only.is_empty() || options.only.iter().any(|name| name == attack.name)
    };
    let mut rounds = VecDeque::new();
    for attack in ATTACKS.iter().filter(wanted) {
        rounds.push_back((attack, true));
        if options.theirs.is_some() && attack.our_options.is_empty() {
            rounds.push_back((attack, false));
        }
    }
    let rounds = Mutex::new(rounds);
    let results = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let take = || rounds.lock().expect("no thread panics").pop_front();
    report::head();
    thread::scope(|scope| {
        for _ in 0..if options.small { 6 } else { 1 } {
            scope.spawn(|| {
                while let Some((attack, is_ours)) = take() {
                    match attack_one(attack, options, is_ours) {
                        Ok(result) => {
                            report::line(&result);
                            results.lock().expect("no thread panics").push(result);
                        }
                        Err(failure) => {
                            let failure = failure.about(attack.name);
                            *failed.lock().expect("no thread panics") = Some(failure);
                        }
                    }
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panics");
    if let Some(failure) = failed.into_inner().expect("no thread panics") {
        return Err(failure);
    }
    let failing = |result: &&Result| result.server == "ours" && !result.faults.is_empty();
    let count = results.iter().filter(failing).count();
    println!("{} attacks, {count} of them failed by ours", results.len());
    Ok(count == 0)
}

fn attack_one(
    attack: &'static Attack,
    options: &Options,
    is_ours: bool,
) -> std::result::Result<Result, Failure> {
    let mut log = Log::new()?;
    let server = if is_ours {
        &options.ours
    } else {
        options.theirs.as_ref().unwrap_or(&options.ours)
    };
    let our_options = if is_ours { attack.our_options } else { "" };
    let command = format!("{} {server} {} {our_options}", attack.under, attack.options);
    let command = command.replace("{log}", &format!("'{}'", log.path.display()));
    let mut server = Server::open(&Source::Command(command), Placement::Free)?;
    let pid = server
        .pid
        .ok_or_else(|| Failure::Refused("no process".into()))?;
    let target = Target {
        address: server.address,
        pid,
        small: options.small,
    };
    let mut result = besiege(attack, &target);
    if !is_ours {
        result.server = "theirs";
    }
    if result.held[2].is_some() {
        let asked = Instant::now();
        server.stop()?;
        // If a server takes longer, the laboratory kills it.
        if asked.elapsed() > Duration::from_secs(20) {
            result.faults.push("SIGTERM does not end it".into());
        }
    } else {
        let said = server.said();
        let said = said.lines().last().unwrap_or_default();
        result.faults.push(format!("the server is gone {said}"));
    }
    log.close();
    Ok(result)
}

/// Runs one attack on a server that was just started, with a neighbour.
fn besiege(attack: &'static Attack, target: &Target) -> Result {
    let pid = target.pid;
    let quiet = Duration::from_millis(target.size(200, 1000));
    let (phase, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| neighbour::live(target.address, &phase, &over));
        thread::sleep(quiet);
        let before = Held::by(pid);
        phase.store(1, Ordering::Relaxed);
        let began = Instant::now();
        let (outcome, peak) = gauge::peak_while(pid, || (attack.run)(target));
        // One more worker may stand by, but each descriptor must be closed.
        let calm = before.map(|held| Held {
            memory: held.memory + LEFT_OVER,
            threads: held.threads + 2,
            ..held
        });
        let calm = calm.unwrap_or_default();
        let after = Held::once_calm(pid, calm, Instant::now() + SETTLES);
        let took = began.elapsed();
        phase.store(2, Ordering::Relaxed);
        thread::sleep(quiet);
        over.store(true, Ordering::Relaxed);
        let felt = neighbour.join().expect("the neighbour does not panic");
        let mut result = Result {
            attack: attack.name,
            server: "ours",
            felt,
            held: [before, Some(peak), after],
            took,
            note: String::new(),
            faults: Vec::new(),
        };
        match outcome {
            Ok(note) => result.note = note,
            Err(error) => result.faults.push(error.to_string()),
        }
        result.judge(attack, target, calm);
        result
    })
}

impl Result {
    /// Notes what the server has done and must not do.
    fn judge(&mut self, attack: &Attack, target: &Target, calm: Held) {
        for (phase, felt) in neighbour::PHASES.iter().zip(&self.felt) {
            if let Some(refusal) = &felt.refusal {
                let refused = felt.refused;
                let fault = format!("{refused} cycles refused {phase} it: {refusal}");
                self.faults.push(fault);
            }
        }
        let [Some(before), Some(peak), Some(after)] = self.held else {
            return;
        };
        let grown = peak.memory.saturating_sub(before.memory) >> 20;
        if target.small && grown > attack.growth {
            let most = attack.growth;
            self.faults.push(format!("grew by {grown} MB, not {most}"));
        }
        for (what, after, calm) in [
            ("MB", after.memory >> 20, calm.memory >> 20),
            ("threads", after.threads, calm.threads),
            ("descriptors", after.descriptors, calm.descriptors),
        ] {
            if after > calm {
                self.faults
                    .push(format!("keeps {after} {what}, not {calm}"));
            }
        }
    }
}

/// A named pipe for the log of a server. It is open for reading, but nobody
/// reads.
struct Log {
    path: PathBuf,
    reader: Option<File>,
}

impl Log {
    fn new() -> std::result::Result<Log, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beanpole-attack-{}-{count}", std::process::id());
        let path = servers::place().join(name);
        let doing = || format!("making the pipe {}", path.display());
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).map_err(Failure::of(doing()))?;
        let mut options = File::options();
        let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let reader = options.open(&path).map_err(Failure::of(doing()))?;
        fcntl(&reader, FcntlArg::F_SETPIPE_SZ(4096)).map_err(Failure::of(doing()))?;
        Ok(Log {
            reader: Some(reader),
            path,
        })
    }

    fn close(&mut self) {
        self.reader = None;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("attack: removing {}: {error}", self.path.display());
        }
    }
}
