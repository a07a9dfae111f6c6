//! Kills the core before each of its effects, lets each effect fail, and stops it there while another process runs. Then it
//! recovers in another process and checks that nothing is lost and nothing is given twice.
//!
//! ```text
//! cargo test --workspace --test kills -- OPTIONS
//!       [--sample N | --minutes M | --all] [--seed S] [--operation NAME]…   draws points, or takes all
//!       --all [--kind KIND]…                                                takes all points of these kinds, such as twice
//!       --point OPERATION/death/17                                          repeats one point
//!       --first                                                             ends with the first point that fails
//!       --list                                                              lists operations, their effects and points
//! ```
//!
//! Points: `death/N` before the N-th effect, `within/N` in the middle of a call of the driver, `error/N/CODE` and
//! `late-error/N/CODE` in place of the effect or after it, `answer/N/CODE` a code from the N-th call of the driver, also one
//! that only reads, `twice/N/RECOVERY/M` a death at the M-th effect of what recovers, `beside/N/OTHER` another process runs
//! meanwhile.
//!
//! One process and no threads: each piece of the core runs in a fork of its own, before which no ledger, driver or lock was open.

mod calls;
mod check;
mod child;
mod operations;
#[allow(dead_code)] // The other tests need more of them.
#[path = "../../../testkit/src/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../../../testkit/src/faults/simulated.rs"]
mod simulated;
mod world;

use child::{Ended, Plan, talk};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork};
use nvml_sim::fault::{self, Outcome, Rule};
use operations::{Act, Inits, Operation};
use random::Random;
use runmig_lease::effect::Kind;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::{ID, OTHER, World};

/// The kinds of points.
const KINDS: [&str; 7] = [
    "death",
    "within",
    "error",
    "late-error",
    "answer",
    "twice",
    "beside",
];
/// The start of a command that repeats a point.
const AGAIN: &str = "cargo test --workspace --test kills --";
/// The points that a plain run draws.
const SAMPLE: usize = 400;
/// Of so many operations one is compared with its system calls.
const OFTEN: usize = 10;
/// A point that takes longer waits for something, and is told.
const SLOW: Duration = Duration::from_secs(2);
/// Input and output error, no space, no permission.
const ERRNOS: [i32; 3] = [libc::EIO, libc::ENOSPC, libc::EACCES];
/// The codes of the driver that the product tells apart: not supported, no permission, not found, lost, in use, no room.
const CODES: [i32; 6] = [3, 4, 6, 15, 19, NO_ROOM];
const NO_ROOM: i32 = 23;

/// What puts things right after a death, and dies too.
const RECOVERIES: &[(&str, Act)] = &[
    ("gc", operations::gc),
    ("create", |w, i| operations::create(w, ID, i.victim)),
    ("delete", |w, _| operations::delete(w, ID)),
];

/// What runs while an operation stands still.
const BESIDE: &[(&str, Act)] = &[
    ("gc", operations::gc),
    ("create", |w, i| operations::create(w, OTHER, i.others)),
    ("delete", |w, _| operations::delete(w, ID)),
];

#[derive(Clone, Copy, Debug)]
enum Event {
    Death(usize),
    Within(usize),
    Error(usize, i32),
    LateError(usize, i32),
    Answer(usize, i32),
    /// A death, what recovers, and its death; none at 0.
    Twice(usize, usize, usize),
    /// The effect, and what runs meanwhile.
    Beside(usize, usize),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Death(at) => write!(f, "death/{at}"),
            Event::Within(at) => write!(f, "within/{at}"),
            Event::Error(at, code) => write!(f, "error/{at}/{code}"),
            Event::LateError(at, code) => write!(f, "late-error/{at}/{code}"),
            Event::Answer(at, code) => write!(f, "answer/{at}/{code}"),
            Event::Twice(at, by, then) => write!(f, "twice/{at}/{}/{then}", RECOVERIES[*by].0),
            Event::Beside(at, other) => write!(f, "beside/{at}/{}", BESIDE[*other].0),
        }
    }
}

impl Event {
    fn is_failure(self) -> bool {
        matches!(
            self,
            Event::Error(..) | Event::LateError(..) | Event::Answer(..)
        )
    }

    fn parse(text: &str) -> Option<Event> {
        let parts: Vec<&str> = text.split('/').collect();
        let number = |n: usize| parts.get(n)?.parse::<usize>().ok();
        let named =
            |all: &[(&str, Act)]| all.iter().position(|(name, _)| Some(name) == parts.get(2));
        let (at, code) = (number(1)?, number(2).unwrap_or_default() as i32);
        Some(match parts[0] {
            "death" => Event::Death(at),
            "within" => Event::Within(at),
            "error" => Event::Error(at, code),
            "late-error" => Event::LateError(at, code),
            "answer" => Event::Answer(at, code),
            "twice" => Event::Twice(at, named(RECOVERIES)?, number(3)?),
            "beside" => Event::Beside(at, named(BESIDE)?),
            _ => return None,
        })
    }
}

/// The effects of an operation to which nothing happens, and the number of its calls of the driver.
struct Effects {
    kinds: Vec<Kind>,
    calls: usize,
}

/// A world with an operation that is about to begin.
struct Stage<'a> {
    world: &'a World,
    operation: &'static Operation,
    inits: Cell<Inits>,
    /// The effects of what recovered last, each with the state of the world before it.
    left: RefCell<Vec<(usize, u64)>>,
}

impl<'a> Stage<'a> {
    fn of(world: &'a World, operation: &'static Operation) -> Result<Stage<'a>, String> {
        let stage = Stage {
            world,
            operation,
            inits: Cell::new(Inits {
                victim: sleeper(),
                others: sleeper(),
            }),
            left: RefCell::default(),
        };
        stage.begin()?;
        world.keep();
        Ok(stage)
    }

    /// Makes the world of the operation.
    fn begin(&self) -> Result<(), String> {
        let (world, operation) = (self.world, self.operation);
        world.begin(operation.gpus);
        child::load(&world.path("machine/lib/libnvidia-ml.so.1"));
        world.configure(operation.config);
        // The container is gone when the operation begins.
        let gone = sleeper();
        let inits = Inits {
            victim: gone,
            ..self.inits.get()
        };
        let made = self.run(Plan::Run, || {
            (operation.before)(world, inits);
            Ok(())
        });
        ends(gone);
        for id in [ID, OTHER] {
            world.remove_container(id);
        }
        match made {
            Ended::Done(Ok(())) => Ok(()),
            other => Err(format!("the world before cannot be made: {other:?}")),
        }
    }

    fn start(&self, plan: Plan, act: impl FnOnce() -> Result<(), String>) -> Pid {
        let machine = self.world.path("machine");
        child::start(&machine, &self.world.note("verdict"), plan, act)
    }

    fn run(&self, plan: Plan, act: impl FnOnce() -> Result<(), String>) -> Ended {
        child::end(self.start(plan, act), &self.world.note("verdict"))
    }

    fn act(&self) -> impl FnOnce() -> Result<(), String> {
        || (self.operation.act)(self.world, self.inits.get()).map_err(|e| e.line())
    }

    /// Runs the operation with a plan, and the helper that it needs.
    fn operate(&self, plan: Plan) -> Ended {
        if !self.operation.waits() {
            return self.run(plan, self.act());
        }
        let over = self.world.note("over");
        let _ = std::fs::remove_file(&over);
        let way = || operations::make_way(self.world).map_err(|e| e.line());
        let helper = self.start(Plan::Deaf, way);
        let ended = self.run(plan, self.act());
        std::fs::write(over, "").unwrap();
        child::end(helper, &self.world.note("no-verdict"));
        ended
    }

    /// Puts the world back, and returns the effects of the operation if nothing happens to it.
    fn effects(&self) -> Result<Effects, String> {
        let machine = self.world.path("machine");
        nvml_sim::trace::on(&machine).unwrap();
        let ended = self.operate(Plan::Run);
        nvml_sim::trace::off(&machine).unwrap();
        match ended {
            Ended::Done(Ok(())) => {}
            Ended::Done(Err(_)) if self.operation.name == "wait-in-vain" => {}
            other => return Err(format!("it fails by itself: {other:?}")),
        }
        let calls = nvml_sim::trace::read(&machine).unwrap().lines().count();
        let kinds = child::effects();
        if self.operation.is_quiet() && calls > 0 {
            return Err(format!("it calls the driver {calls} times"));
        }
        self.judge(0, false)?;
        Ok(Effects { kinds, calls })
    }

    fn judge(&self, number: usize, has_failed: bool) -> Result<(), String> {
        let world = self.world;
        fault::clear(&world.path("machine")).unwrap();
        let judge = || {
            check::judge(
                world,
                self.operation,
                self.inits.get(),
                (number, has_failed),
            )
        };
        match self.run(Plan::Run, judge) {
            Ended::Done(judged) => judged,
            other => Err(format!("the recovery breaks: {other:?}")),
        }
    }

    /// Brings about one event, and judges what it leaves. Returns whether its point was reached.
    fn point(&self, event: Event, number: usize) -> Result<bool, String> {
        match self.operation.is_fresh {
            true => self.begin()?,
            false => self.world.put_back(),
        }
        let died = |ended: Ended| match ended {
            Ended::Died => Ok(true),
            Ended::Done(_) => Ok(false),
            Ended::Broken(how) => Err(how),
        };
        let done = |ended: Ended| match ended {
            Ended::Done(_) => Ok(true),
            other => Err(format!("{other:?}")),
        };
        let reached = match event {
            Event::Death(at) => died(self.operate(Plan::Die(at)))?,
            Event::Within(at) => died(self.operate(Plan::DieWithin(at)))?,
            Event::Error(at, code) => done(self.operate(Plan::Fail(at, code)))?,
            Event::LateError(at, code) => done(self.operate(Plan::FailAfter(at, code)))?,
            Event::Answer(at, code) => {
                let rule = Rule::nth("*", at as u64, Outcome::Return(code as u32));
                fault::add(&self.world.path("machine"), rule).unwrap();
                done(self.operate(Plan::Run))?
            }
            Event::Twice(at, by, then) => {
                let _ = died(self.operate(Plan::Die(at)))?;
                if RECOVERIES[by].0 == "delete" && self.world.has_container(ID) {
                    // An engine kills the container first.
                    let inits = self.inits.get();
                    ends(inits.victim);
                    self.world.remove_container(ID);
                    let victim = sleeper();
                    self.inits.set(Inits { victim, ..inits });
                }
                let recover =
                    || RECOVERIES[by].1(self.world, self.inits.get()).map_err(|e| e.line());
                match then {
                    0 => self.watch(recover)?,
                    _ => died(self.run(Plan::Die(then), recover))?,
                }
            }
            Event::Beside(at, other) => self.beside(at, BESIDE[other].1)?,
        };
        child::reap_orphans();
        self.judge(number, event.is_failure()).map(|()| reached)
    }

    /// Runs what recovers, and notes what a death before each of its effects would leave.
    fn watch(&self, recover: impl FnOnce() -> Result<(), String>) -> Result<bool, String> {
        talk::drain();
        let (child, mut left) = (self.start(Plan::Watch, recover), Vec::new());
        while talk::heard(&[child]) == Some(b'S') {
            left.push((child::effects().len(), self.world.state()));
            talk::tell();
        }
        self.left.replace(left);
        match child::end(child, &self.world.note("verdict")) {
            Ended::Broken(how) => Err(how),
            _ => Ok(true),
        }
    }

    /// Lets another process run while the operation stands still. One that waits for it lets it go on.
    fn beside(&self, at: usize, other: Act) -> Result<bool, String> {
        talk::drain();
        let (note, other_note) = (self.world.note("verdict"), self.world.note("other-verdict"));
        let first = self.start(Plan::Stop(at), self.act());
        let mut ended = [None, None];
        let mut stands = false;
        while ended[0].is_none() && !stands {
            stands = talk::heard(&[first]) == Some(b'S');
            ended[0] = child::ended(first, &note);
        }
        let machine = self.world.path("machine");
        let act = || other(self.world, self.inits.get()).map_err(|e| e.line());
        let second = child::start(&machine, &other_note, Plan::Tell, act);
        let mut goes_on = !stands;
        while ended.iter().any(Option::is_none) {
            let running = [first, second].into_iter().zip(&ended);
            let running: Vec<Pid> = { running.filter(|(_, end)| end.is_none()) }
                .map(|(child, _)| child)
                .collect();
            let waits = talk::heard(&running) == Some(b'W');
            if ended[0].is_none() {
                ended[0] = child::ended(first, &note);
            }
            if ended[1].is_none() {
                ended[1] = child::ended(second, &other_note);
            }
            if !goes_on && (waits || ended[1].is_some()) {
                goes_on = true;
                talk::tell();
            }
        }
        for end in ended.into_iter().flatten() {
            if let Ended::Broken(how) = end {
                return Err(how);
            }
        }
        Ok(stands)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        ends(self.inits.get().victim);
        ends(self.inits.get().others);
    }
}

/// Starts a process that waits until it is killed.
fn sleeper() -> i32 {
    // SAFETY: the child only waits.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child.as_raw(),
        ForkResult::Child => {
            let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            loop {
                nix::unistd::pause();
            }
        }
    }
}

fn ends(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
}

/// Returns the points of an operation with these effects, of every kind.
fn points(operation: &Operation, effects: &Effects) -> Vec<Event> {
    let mut all = Vec::new();
    // The calls of a helper would count too.
    let calls = if operation.waits() { 0 } else { effects.calls };
    for at in 1..=calls {
        // One of NVML's 30 codes after the other, and those that the product tells apart.
        let codes = CODES.into_iter().chain([1 + at as i32 % 30]);
        all.extend(codes.map(|code| Event::Answer(at, code)));
    }
    for (n, kind) in effects.kinds.iter().enumerate() {
        let at = n + 1;
        all.push(Event::Death(at));
        match kind {
            Kind::Driver => {
                all.push(Event::Within(at));
                all.extend(CODES.map(|code| Event::Error(at, code)));
                // A driver that says "no room" has made nothing: that much it is trusted.
                let late = CODES.into_iter().filter(|code| *code != NO_ROOM);
                all.extend(late.map(|code| Event::LateError(at, code)));
            }
            // These never fail so.
            Kind::Kill => {}
            _ => all.extend(ERRNOS.map(|code| Event::Error(at, code))),
        }
        if operation.meets_others() {
            // No engine deletes a container that it is making.
            let makes = operation.name.contains("create");
            let others = (0..BESIDE.len()).filter(|other| !(makes && BESIDE[*other].0 == "delete"));
            all.extend(others.map(|other| Event::Beside(at, other)));
        }
    }
    all
}

#[derive(Default)]
struct Options {
    sample: Option<usize>,
    minutes: Option<u64>,
    is_all: bool,
    is_first: bool,
    is_list: bool,
    seed: u64,
    operations: Vec<String>,
    kinds: Vec<String>,
    point: Option<String>,
    marked: Option<String>,
}

fn options() -> Result<Options, String> {
    let seed = std::env::var("RUNMIG_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut options = Options {
        seed: seed.unwrap_or_else(|| now.map_or(1, |now| now.as_secs())),
        ..Options::default()
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} lacks its value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match word.as_str() {
            "--sample" => options.sample = Some(number(value()?)? as usize),
            "--minutes" => options.minutes = Some(number(value()?)?),
            "--seed" => options.seed = number(value()?)?,
            "--all" => options.is_all = true,
            "--first" => options.is_first = true,
            "--list" => options.is_list = true,
            "--operation" => options.operations.push(value()?),
            "--kind" => options.kinds.push(value()?),
            "--point" => options.point = Some(value()?),
            // For strace, see calls.rs.
            "--marked" => options.marked = Some(value()?),
            // Of the harness that other test programs have.
            "--nocapture" | "--test-threads" | "--quiet" => {}
            other => return Err(format!("unknown option {other}")),
        }
    }
    if let Some(kind) = { options.kinds.iter() }.find(|kind| !KINDS.contains(&kind.as_str())) {
        return Err(format!("no kind {kind}: there are {}", KINDS.join(", ")));
    }
    if !options.kinds.is_empty() && !options.is_all && !options.is_list {
        return Err("--kind wants --all: a draw takes each kind".to_owned());
    }
    if std::env::var("RUNMIG_TIER").is_ok_and(|tier| tier == "exhaustive") {
        options.is_all = options.sample.is_none() && options.minutes.is_none();
    }
    Ok(options)
}

fn main() -> ExitCode {
    // A collector looks at every process of the machine. Few of them are in a namespace of our own.
    if let Some(status) = child::in_namespace() {
        return status;
    }
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("kills: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    talk::open();
    let world = World::new();
    if let Some(name) = &options.marked {
        let stage = Stage::of(&world, operations::named(name).ok_or("no such operation")?)?;
        return match stage.operate(Plan::Mark) {
            Ended::Done(_) => Ok(()),
            other => Err(format!("{other:?}")),
        };
    }
    if let Some(point) = &options.point {
        let (name, event) = point.split_once('/').ok_or("a point is OPERATION/KIND/N")?;
        let operation = operations::named(name).ok_or(format!("no operation {name}"))?;
        let event = Event::parse(event).ok_or(format!("no point {event}"))?;
        let stage = Stage::of(&world, operation)?;
        stage.effects()?;
        let number = options.seed as usize;
        let is_reached = stage.point(event, number)?;
        println!(
            "kills: {point}: {}",
            if is_reached { "passed" } else { "not reached" }
        );
        return Ok(());
    }
    let is_wanted = |o: &&Operation| {
        options.operations.is_empty() || options.operations.iter().any(|name| name == o.name)
    };
    let chosen: Vec<&'static Operation> = operations::ALL.iter().filter(is_wanted).collect();
    let begun = Instant::now();
    println!("kills: seed {}", options.seed);
    let is_kind = |event: &Event| {
        let name = event.to_string();
        let kind = name.split('/').next().unwrap_or_default();
        options.kinds.is_empty() || options.kinds.iter().any(|wanted| wanted == kind)
    };
    let (mut tried, mut missed, mut wrong) = (0, 0, Vec::new());
    let end = options
        .minutes
        .map(|minutes| begun + Duration::from_secs(60 * minutes));
    let each = options
        .sample
        .unwrap_or(SAMPLE)
        .div_ceil(chosen.len().max(1));
    let mut draw = Random::new(options.seed);
    let mut spent = Duration::ZERO;
    for (turn, operation) in chosen.iter().enumerate() {
        let stage = Stage::of(&world, operation).map_err(|e| format!("{}: {e}", operation.name))?;
        let effects = stage
            .effects()
            .map_err(|e| format!("{}: {e}", operation.name))?;
        let mut all = points(operation, &effects);
        all.retain(is_kind);
        if options.is_list {
            println!(
                "{}: {} effects, {} calls of the driver, {} points without those that die twice",
                operation.name,
                effects.kinds.len(),
                effects.calls,
                all.len()
            );
            continue;
        }
        if options.is_all || draw.index(OFTEN) == 0 {
            match calls::compare(operation.name, &world.note("strace")) {
                Ok(None) => println!("SKIPPED: strace is not installed"),
                Ok(Some(seen)) => {
                    println!("kills: {}: strace agrees on {seen} effects", operation.name)
                }
                Err(e) => {
                    println!("kills: FAILED {} under strace\n{e}", operation.name);
                    wrong.push(format!("{AGAIN} --all --operation {}", operation.name));
                }
            }
        }
        let share = end.map(|end| {
            let left = end.saturating_duration_since(Instant::now());
            Instant::now() + left / (chosen.len() - turn) as u32
        });
        let clock = Instant::now();
        let mut number = 0;
        let mut twice = Twice::of(operation, &effects);
        loop {
            let event = if options.is_all {
                let single = all.get(number).copied();
                let double = || twice.next(&stage.left.borrow()).filter(is_kind);
                match single.or_else(double) {
                    Some(event) => event,
                    None => break,
                }
            } else {
                match share {
                    Some(share) if Instant::now() >= share => break,
                    None if number >= each => break,
                    _ => {}
                }
                drawn(&mut draw, operation, &all, effects.kinds.len())
            };
            number += 1;
            // After a failed release an instance waits for its next try, for which only a collection does not wait.
            let choice = match event.is_failure() {
                true => 2 * draw.index(3),
                false => draw.index(6),
            };
            let clock = Instant::now();
            let judged = stage.point(event, choice);
            if clock.elapsed() > SLOW {
                println!(
                    "kills: {}/{event} took {:.1?}",
                    operation.name,
                    clock.elapsed()
                );
            }
            match judged {
                Ok(true) => {}
                Ok(false) => missed += 1,
                Err(e) => {
                    let again =
                        format!("{AGAIN} --seed {choice} --point {}/{event}", operation.name);
                    println!("kills: FAILED {again}\n{e}");
                    if options.is_first {
                        return Err("ended with the first that fails".to_owned());
                    }
                    wrong.push(again);
                }
            }
        }
        tried += number;
        spent += clock.elapsed();
        let rate = number as f64 / clock.elapsed().as_secs_f64();
        println!(
            "kills: {}: {number} points of {} effects, {rate:.0} a second",
            operation.name,
            effects.kinds.len()
        );
    }
    let rate = tried as f64 / spent.as_secs_f64().max(0.001);
    // As the harness of other test programs says it.
    println!(
        "test result: {}. {} passed; {} failed",
        if wrong.is_empty() { "ok" } else { "FAILED" },
        tried - wrong.len().min(tried),
        wrong.len()
    );
    println!(
        "kills: {tried} points, {missed} not reached, {rate:.0} a second, {} failed",
        wrong.len()
    );
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("repeat one of these:\n{}", wrong.join("\n"))),
    }
}

/// All pairs of a death and a death of what recovers, without those that leave what an earlier one left, but for ids, times and
/// processes.
#[derive(Default)]
struct Twice {
    /// The deaths to come, each with what recovers, last first.
    pairs: Vec<(usize, usize)>,
    at: usize,
    by: usize,
    /// The deaths of this recovery to come, last first.
    seconds: Vec<usize>,
    /// The recovery has just run to its end.
    is_watched: bool,
    /// The states that were judged.
    judged: HashSet<u64>,
}

impl Twice {
    fn of(operation: &Operation, effects: &Effects) -> Twice {
        let mut pairs = Vec::new();
        if operation.meets_others() {
            let kinds = &effects.kinds;
            let deaths = (1..=kinds.len()).filter(|at| is_told_apart(kinds, *at));
            pairs.extend(deaths.flat_map(|at| (0..RECOVERIES.len()).map(move |by| (at, by))));
            pairs.reverse();
        }
        Twice {
            pairs,
            ..Twice::default()
        }
    }

    /// Returns the next pair after a recovery that went through these states.
    fn next(&mut self, left: &[(usize, u64)]) -> Option<Event> {
        if std::mem::take(&mut self.is_watched) {
            let is_new = |(_, state): &&(usize, u64)| self.judged.insert(*state);
            self.seconds = left.iter().filter(is_new).map(|(then, _)| *then).collect();
            self.seconds.reverse();
        }
        if let Some(then) = self.seconds.pop() {
            return Some(Event::Twice(self.at, self.by, then));
        }
        (self.at, self.by) = self.pairs.pop()?;
        self.is_watched = true;
        Some(Event::Twice(self.at, self.by, 0))
    }
}

/// Says whether a death before an effect leaves something else than one before the effect before: the kernel takes locks
/// back, and no power fails here.
pub fn is_told_apart(kinds: &[Kind], at: usize) -> bool {
    at == 1 || !matches!(kinds.get(at - 2), Some(Kind::Sync | Kind::Lock))
}

/// Draws a point, of each kind as often as of the others.
fn drawn(draw: &mut Random, operation: &Operation, all: &[Event], effects: usize) -> Event {
    let kind = draw.index(4);
    if kind == 3 && operation.meets_others() {
        let (at, by) = (1 + draw.index(effects), draw.index(RECOVERIES.len()));
        return Event::Twice(at, by, 1 + draw.index(60));
    }
    let is_of = |event: &Event| match event {
        Event::Death(..) | Event::Within(..) => kind == 0,
        Event::Error(..) | Event::LateError(..) | Event::Answer(..) => kind == 1,
        Event::Beside(..) => kind == 2,
        Event::Twice(..) => kind == 3,
    };
    let of_kind: Vec<Event> = all.iter().copied().filter(is_of).collect();
    match of_kind.is_empty() {
        true => all[draw.index(all.len())],
        false => of_kind[draw.index(of_kind.len())],
    }
}
