//! The scheduler: all threads of a server and its clients take turns in one thread
//! of the system, and a seed decides which is next.
//!
//! A thread can lose its turn at each lock, condition variable, atomic number,
//! socket and operation of the disk. Time passes only when all threads wait: then
//! it advances to the earliest deadline, or a little beyond it: so two threads whose
//! deadlines are near each other may run at the same time. If no thread has a
//! deadline, none can ever continue, and that is a failure.
//!
//! Why not a library that does this? There a wait for a time ends by chance, so
//! nothing that is promised in time can be checked, and a switch of threads
//! costs much more. Here a second of the server costs as much as what happens
//! in it. No order of memory is weaker here than the strictest; for what that
//! could hide there is ThreadSanitizer (`tests/machines/sanitize`).

use crate::simulator::disk::Random;
use generator::{Generator, Gn};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

pub type Id = usize;

/// The thread that starts the server, and ends it.
pub const MAIN: Id = 0;

type Work = Box<dyn FnOnce() + Send>;

/// What a thread runs on. When its work is done, it takes other work: a new
/// stack would cost more than most threads do.
type Body = Generator<'static, (), bool>;

/// The stack of a thread, in words.
const STACK: usize = 0x6000;

/// So late may somebody wake, in nanoseconds.
const LATE: u64 = 1_000_000;

/// A history with more steps than this has threads that keep each other awake.
const MOST_STEPS: u64 = 500_000;

thread_local! {
    static IDLE: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
    static THREADS: RefCell<Option<Threads>> = const { RefCell::new(None) };
}

struct Threads {
    all: Vec<Thread>,
    /// Whose turn it is.
    current: Option<Id>,
    /// Which thread is next.
    next: Id,
    /// In nanoseconds since the history began.
    now: u64,
    steps: u64,
    /// What happens at which step.
    scheduled: Vec<(u64, Box<dyn FnOnce()>)>,
    manner: Manner,
    random: Random,
}

struct Thread {
    name: String,
    body: Option<Body>,
    /// Until it begins.
    work: Option<Work>,
    state: State,
    /// As of `unpark`.
    has_token: bool,
    rank: u64,
    /// Where it waits.
    place: Option<&'static Location<'static>>,
    joining: Vec<Id>,
}

impl Thread {
    /// The time that it waits for.
    fn wakes_at(&self) -> Option<u64> {
        match self.state {
            State::Waits { until, .. } => until,
            State::Ready | State::IsOver => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Ready,
    Waits { until: Option<u64>, parked: bool },
    IsOver,
}

/// How the next thread is chosen.
#[derive(Clone, Copy)]
enum Manner {
    /// Each has the same chance.
    Even,
    /// A thread runs until it waits, except for one switch in this number of steps.
    Steady(u64),
    /// The thread of the highest rank goes first. Once in this number of steps, the
    /// one that runs gets the lowest rank.
    Ranked(u64),
}

fn with<R>(work: impl FnOnce(&mut Threads) -> R) -> Option<R> {
    THREADS.with_borrow_mut(|threads| threads.as_mut().map(work))
}

/// Runs this thread and all that it starts, up to the end of all of them.
/// Otherwise returns what is wrong.
pub fn run(random: Random, root: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let mut random = random;
    let manner = match random.below(4) {
        0 => Manner::Even,
        1 => Manner::Steady(10),
        2 => Manner::Steady(50),
        _ => Manner::Ranked(200),
    };
    THREADS.set(Some(Threads {
        all: Vec::new(),
        current: None,
        next: 0,
        now: 0,
        steps: 0,
        scheduled: Vec::new(),
        manner,
        random,
    }));
    spawn("main", root);
    let done = turns();
    let threads = THREADS.take().expect("they were there");
    if done.is_err() {
        // Their stacks cannot be unwound: others wait for what they hold.
        std::mem::forget(threads);
    }
    done
}

fn turns() -> Result<(), String> {
    loop {
        if all_wait() && catch_unwind(crate::simulator::judge::all_wait).is_err() {
            return Err(crate::simulator::last_panic());
        }
        let turn = with(|threads| {
            let next = threads.next;
            let is_ready = threads.all[next].state == State::Ready;
            if !is_ready && !threads.choose()? {
                return None;
            }
            threads.current = Some(threads.next);
            let thread = &mut threads.all[threads.next];
            if let Some(work) = thread.work.take() {
                WORK.set(Some(work));
                return Some(IDLE.with_borrow_mut(Vec::pop).unwrap_or_else(body));
            }
            thread.body.take()
        });
        let Some(mut body) = turn.flatten() else {
            return with(Threads::end).expect("they are there");
        };
        let resumed = catch_unwind(AssertUnwindSafe(|| body.resume()));
        let failed = with(|threads| {
            let id = threads.current.take().expect("it had its turn");
            if resumed.is_err() {
                let name = &threads.all[id].name;
                return Some(format!("{name}: {}", crate::simulator::last_panic()));
            }
            let thread = &mut threads.all[id];
            if let Ok(Some(true)) = resumed {
                thread.state = State::IsOver;
                let joining = std::mem::take(&mut thread.joining);
                joining.into_iter().for_each(|id| threads.wake(id));
                IDLE.with_borrow_mut(|idle| idle.push(body));
            } else {
                thread.body = Some(body);
            }
            None
        });
        if let Some(failed) = failed.flatten() {
            return Err(failed);
        }
    }
}

/// Goes back to [`turns`], with or without work.
#[allow(deprecated, reason = "no scope reaches all the places that wait")]
fn give_up_turn(is_over: bool) {
    generator::yield_with(is_over);
}

fn body() -> Body {
    let works = || -> bool {
        loop {
            let work = WORK.take();
            work.expect("it was put there")();
            give_up_turn(true);
        }
    };
    Gn::new_opt(STACK, works)
}

impl Threads {
    /// Chooses which is next; none if all have ended, or none can continue.
    fn choose(&mut self) -> Option<bool> {
        let ready = |threads: &Threads| {
            let all = threads.all.iter().enumerate();
            let ready = all.filter(|(_, thread)| thread.state == State::Ready);
            ready.map(|(id, _)| id).collect::<Vec<Id>>()
        };
        let mut who = ready(self);
        if who.is_empty() {
            let all = self.all.iter();
            let first = all.filter_map(Thread::wakes_at).min()?;
            self.now = self.now.max(first);
            if self.random.one_in(4) {
                self.now += self.random.below(LATE);
            }
            self.wake_due();
            who = ready(self);
        }
        self.next = match self.manner {
            Manner::Ranked(_) => *who.iter().max_by_key(|id| self.all[**id].rank)?,
            _ => who[self.random.below(who.len() as u64) as usize],
        };
        Some(true)
    }

    /// Wakes all whose time has come.
    fn wake_due(&mut self) {
        let now = self.now;
        let all = self.all.iter_mut();
        let due = all.filter(|thread| thread.wakes_at().is_some_and(|at| at <= now));
        due.for_each(|thread| thread.state = State::Ready);
    }

    fn wake(&mut self, id: Id) {
        if let State::Waits { .. } = self.all[id].state {
            self.all[id].state = State::Ready;
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match self.names() {
            names if names.is_empty() => Ok(()),
            names => Err(format!("nobody can go on: {names}")),
        }
    }

    /// The threads that have not ended.
    fn names(&self) -> String {
        let there = self.all.iter().filter(|one| one.state != State::IsOver);
        let shown = |one: &Thread| match one.place {
            Some(place) => format!("{} at {}:{}", one.name, place.file(), place.line()),
            None => one.name.clone(),
        };
        there.map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Whether the current thread loses its turn.
    fn switches(&mut self, yields: bool) -> bool {
        let Some(current) = self.current else {
            return false;
        };
        match self.manner {
            Manner::Ranked(every) if yields || self.random.one_in(every) => {
                let lowest = self.all.iter().map(|one| one.rank).min();
                self.all[current].rank = lowest.unwrap_or_default().saturating_sub(1);
            }
            Manner::Steady(every) if !yields && !self.random.one_in(every) => return false,
            _ => {}
        }
        self.choose().is_some() && (self.next != current)
    }
}

/// Somebody else may go on here.
pub fn pass() {
    turn_to_others(false);
}

/// The same, said by the thread itself.
pub fn yield_now() {
    turn_to_others(true);
}

fn turn_to_others(yields: bool) {
    if std::thread::panicking() {
        return; // this one is at its end, and so is the history
    }
    let cause = with(|threads| {
        threads.steps += u64::from(threads.current.is_some());
        let steps = threads.steps;
        let names = || threads.names();
        assert!(steps <= MOST_STEPS, "nobody comes to rest: {}", names());
        let due = |(step, _): &(u64, _)| *step <= steps;
        let which = threads.scheduled.iter().position(due)?;
        Some(threads.scheduled.swap_remove(which).1)
    });
    if let Some(cause) = cause.flatten() {
        cause();
    }
    if with(|threads| threads.switches(yields)) == Some(true) {
        give_up_turn(false);
    }
}

/// Waits until somebody wakes it, or until this time. Returns whether it was
/// woken.
#[track_caller]
pub fn wait(until: Option<u64>) -> bool {
    wait_as(until, false)
}

#[track_caller]
fn wait_as(until: Option<u64>, parked: bool) -> bool {
    let place = Location::caller();
    let before = with(|threads| {
        let id = threads.current.expect("threads wait");
        threads.all[id].place = Some(place);
        threads.all[id].state = State::Waits { until, parked };
        threads.steps += 1;
        threads.now
    });
    before.expect("threads wait");
    give_up_turn(false);
    until.is_none_or(|until| now() < until)
}

pub fn wake(id: Id) {
    with(|threads| threads.wake(id));
}

pub fn current() -> Option<Id> {
    with(|threads| threads.current).flatten()
}

#[track_caller]
pub fn park(until: Option<u64>) {
    pass();
    let id = current().expect("threads park");
    let had = with(|threads| std::mem::take(&mut threads.all[id].has_token));
    if had == Some(false) {
        wait_as(until, true);
        with(|threads| threads.all[id].has_token = false);
    }
}

pub fn unpark(id: Id) {
    with(|threads| {
        threads.all[id].has_token = true;
        if let State::Waits { parked: true, .. } = threads.all[id].state {
            threads.wake(id);
        }
    });
}

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Id {
    let spawned = with(|threads| {
        let rank = (1 << 32) + threads.random.below(1 << 32);
        threads.all.push(Thread {
            name: name.to_owned(),
            body: None,
            work: Some(Box::new(work)),
            state: State::Ready,
            has_token: false,
            rank,
            place: None,
            joining: Vec::new(),
        });
        threads.all.len() - 1
    });
    let id = spawned.expect("the scheduler runs");
    pass();
    id
}

#[track_caller]
pub fn join(id: Id) {
    let me = current().expect("threads join");
    while with(|threads| {
        let other = &mut threads.all[id];
        let is_there = other.state != State::IsOver;
        if is_there {
            other.joining.push(me);
        }
        is_there
    }) == Some(true)
    {
        wait(None);
    }
}

/// In nanoseconds since the history began.
pub fn now() -> u64 {
    with(|threads| threads.now).unwrap_or_default()
}

/// A moment that nobody had before. What a thread does takes some time.
pub fn tick() -> u64 {
    with(|threads| {
        threads.now += 1000;
        threads.now
    })
    .unwrap_or_default()
}

/// Stalls all of them for this time. Then those continue whose deadline has passed
/// meanwhile.
pub fn stall(nanos: u64) {
    with(|threads| {
        threads.now += nanos;
        threads.wake_due();
    });
}

pub fn steps() -> u64 {
    with(|threads| threads.steps).unwrap_or_default()
}

/// Whether none goes on before time passes.
pub fn all_wait() -> bool {
    let is_ready = |thread: &Thread| thread.state == State::Ready;
    with(|threads| !threads.all.iter().any(is_ready)).unwrap_or(true)
}

/// When the first thread goes on that waits for a time.
pub fn wakes_at() -> Option<u64> {
    let first = |threads: &mut Threads| threads.all.iter().filter_map(Thread::wakes_at).min();
    with(first).flatten()
}

/// A number less than `end`.
pub fn below(end: u64) -> u64 {
    with(|threads| threads.random.below(end)).unwrap_or_default()
}

pub fn one_in(n: u64) -> bool {
    below(n) == 0
}

/// Does this after this number of steps.
pub fn run_at(step: u64, work: impl FnOnce() + 'static) {
    with(|threads| threads.scheduled.push((step, Box::new(work))));
}
