//! docker: a runtime in daemon.json. docker reads this one file, which has no comments. dockerd does not start with a setting
//! that is both a flag and in it.

use super::engine::{self, Found};
use super::rewrite::{Rewrite, Which};
use super::{Plan, Task, effective, is_runmig};
use crate::spec::{Token, Tokens};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub const CONFIG: &str = "/etc/docker/daemon.json";
const DEFAULT: &str = "default-runtime";
const RUNTIMES: &str = "runtimes";
/// The first docker whose containers can have annotations.
const ANNOTATIONS: u32 = 24;

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let engine = Found::of(task, "docker", "dockerd")?;
    if task.drop_in.is_some() {
        return Err(
            Error::new("cannot use --drop-in: docker reads one file and no drop-ins")
                .hint("name another daemon.json with --engine-config"),
        );
    }
    let file = task.engine_config.unwrap_or(CONFIG.as_ref());
    let change = task.rewrite(
        file,
        &Rewrite {
            without: &|text, which| without(task, text, which),
            with: &|text| with(task, text),
            same: |a, b| matches!((read(a), read(b)), (Ok(a), Ok(b)) if a == b),
            empty: "{}\n",
        },
    )?;
    let too_old = engine.version.is_some() && !engine.at_least(ANNOTATIONS);
    let note = format!(
        "{}: its containers cannot have annotations, so they cannot request a slice; docker {ANNOTATIONS} \
         and later have `run --annotation`",
        engine.name
    );
    if let (true, false, Some(after)) = (change.changes(), task.remove, &change.after) {
        let checked = validate(&engine, change.before.as_deref(), after);
        checked.context(|| format!("change {}", file.display()))?;
    }
    let said =
        |text: &Option<String>| read(text.as_deref().unwrap_or_default()).unwrap_or_default();
    let (now, root) = (said(&change.before), said(&change.after));
    let restart = Some("systemctl restart docker");
    let mut plan = Plan::new(engine.name, vec![change], restart);
    plan.notes.extend((too_old && !task.remove).then_some(note));
    plan.cdi.read(&root);
    let calls = calls(task);
    let program_of_all = |root: &Map<String, Value>| -> Option<PathBuf> {
        let flagged = calls.iter().find_map(|call| call.value(DEFAULT_FLAG));
        let name = flagged.or_else(|| default(root))?;
        let its = program(root, name).or_else(|| added_program(&calls, name));
        Some(its.unwrap_or(name).into())
    };
    plan.default = program_of_all(&root);
    plan.is_default = program_of_all(&now).is_some_and(|program| is_runmig(&program));
    plan.obstacle = obstacle(task, file, &calls);
    if task.remove && plan.obstacle.is_none() {
        let default = default(&root).filter(|name| *name == task.name);
        let program = program(&root, task.name).map(|program| (file, program));
        plan.obstacle =
            effective::left(task, &plan.engine, DEFAULT, default.map(|_| file), program);
    }
    Ok(plan)
}

/// Returns the program that the file gives to the name of a runtime.
fn program<'a>(root: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    root.get(RUNTIMES)?.get(name)?.get("path")?.as_str()
}

/// Returns the default runtime, if the file names one.
fn default(root: &Map<String, Value>) -> Option<&str> {
    let name = root.get(DEFAULT).and_then(Value::as_str);
    name.filter(|name| !name.is_empty())
}

/// Parses daemon.json. docker reads a blank file as one without settings, and skips a byte order mark.
fn read(text: &str) -> Result<Map<String, Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = if text.trim().is_empty() { "{}" } else { text };
    let correct = |e: Error| e.hint("correct the file; migctl changed nothing");
    check_keys(text).map_err(correct)?;
    let root = serde_json::from_str(text).map_err(|e| correct(Error::new(e.to_string())))?;
    let is_object = |value: Option<&Value>| value.is_none_or(|v| v.is_object() || v.is_null());
    match root {
        Value::Object(root) if is_object(root.get(RUNTIMES)) => Ok(root),
        _ => Err(correct(Error::new(
            "the file or its \"runtimes\" is not a JSON object",
        ))),
    }
}

/// Refuses a key that an object has twice. docker joins the two values, and the reader here keeps one.
fn check_keys(text: &str) -> Result<()> {
    let mut levels: Vec<HashSet<_>> = Vec::new();
    for token in Tokens::new(text.as_bytes()).map_while(Result::ok) {
        match token {
            Token::Object | Token::Array => levels.push(HashSet::new()),
            Token::End => drop(levels.pop()),
            Token::Key(key) => {
                let (name, level) = (key.lossy(), levels.last_mut());
                if level.is_some_and(|keys| !keys.insert(name.clone())) {
                    return Err(Error::new(format!("{name:?} occurs twice")));
                }
            }
            Token::Text(_) | Token::Plain => {}
        }
    }
    Ok(())
}

fn write(root: &Map<String, Value>) -> Result<String> {
    let text = serde_json::to_string_pretty(root);
    Ok(text.map_err(|e| Error::new(e.to_string()))? + "\n")
}

fn runtimes(root: &Map<String, Value>) -> Map<String, Value> {
    let runtimes = root.get(RUNTIMES).and_then(Value::as_object);
    runtimes.cloned().unwrap_or_default()
}

/// Says whether a runtime is a runmig, as this verb adds one, with nothing beside its path.
fn is_ours(runtime: &Value) -> bool {
    let members = runtime.as_object().filter(|members| members.len() == 1);
    let path = members.and_then(|members| members.get("path")?.as_str());
    path.is_some_and(|path| is_runmig(Path::new(path)))
}

fn without(task: &Task<'_>, text: &str, which: Which) -> Result<String> {
    let mut root = read(text)?;
    let mut left = runtimes(&root);
    let goes = |name: &str| which == Which::All || name == task.name;
    left.retain(|name, runtime| !goes(name) || !is_ours(runtime));
    if left.len() == runtimes(&root).len() {
        return Ok(text.to_owned());
    }
    if default(&root).is_some_and(|name| goes(name) && !left.contains_key(name) && name != "runc") {
        root.shift_remove(DEFAULT);
    }
    match left.is_empty() {
        true => root.shift_remove(RUNTIMES),
        false => root.insert(RUNTIMES.to_owned(), left.into()),
    };
    write(&root)
}

fn with(task: &Task<'_>, text: &str) -> Result<String> {
    let mut root = read(text)?;
    let mut more = runtimes(&root);
    if let Some(theirs) = more.get(task.name) {
        return Err(Error::new(format!("its runtime {} is {theirs}", task.name))
            .hint("choose another name with --name"));
    }
    let ours = json!({"path": task.runtime.display().to_string()});
    more.insert(task.name.to_owned(), ours);
    root.insert(RUNTIMES.to_owned(), more.into());
    if task.default {
        if let Some(other) = default(&root).filter(|name| *name != "runc") {
            return Err(Error::new(format!("its {DEFAULT} is {other}"))
                .hint("remove that member, or omit --set-as-default"));
        }
        root.insert(DEFAULT.to_owned(), task.name.into());
    }
    write(&root)
}

/// The folders of units, later ones over earlier ones.
const UNITS: [&str; 5] = [
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
    "/run/systemd/system",
    "/etc/systemd/system",
];
const MAX_COMMAND: u64 = 1 << 20;
const DEFAULT_FLAG: &str = "--default-runtime";

/// The arguments of dockerd in a file or a process, each flag apart from its value.
struct Call {
    by: String,
    words: Vec<String>,
}

impl Call {
    fn of(by: impl ToString, text: &str) -> Call {
        let words = text.split([' ', '\t', '\0', '=', '"', '\'']);
        let words = words.filter(|word| !word.is_empty()).map(str::to_owned);
        Call {
            by: by.to_string(),
            words: words.collect(),
        }
    }

    fn value(&self, flag: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == flag)?;
        Some(self.words.get(at + 1).map_or("", String::as_str))
    }
}

/// Returns the program that a flag of dockerd gives to the name of a runtime.
fn added_program<'a>(calls: &'a [Call], name: &str) -> Option<&'a str> {
    calls.iter().find_map(|call| {
        let mut words = call.words.windows(3);
        let added = words.find(|words| words[..2] == ["--add-runtime", name])?;
        Some(added[2].as_str())
    })
}

/// Returns why dockerd would not do with `file` as the task wants.
fn obstacle(task: &Task<'_>, file: &Path, calls: &[Call]) -> Option<Error> {
    let (shown, name) = (file.display(), task.name);
    calls.iter().find_map(|call| {
        let by = &call.by;
        let default = call.value(DEFAULT_FLAG);
        if task.remove {
            default.filter(|theirs| *theirs == name)?;
            let why = format!("{by} still starts dockerd with --default-runtime {name}");
            return Some(Error::new(why).hint("remove that flag"));
        }
        let other = call.value("--config-file").filter(|theirs| Path::new(theirs) != file);
        if let Some(theirs) = other.filter(|_| task.engine_config.is_none()) {
            let why = format!("cannot change {shown}: {by} starts dockerd with --config-file {theirs}");
            return Some(Error::new(why).hint(format!("add --engine-config {theirs}")));
        }
        let adds = call.value("--add-runtime").map(|_| ("--add-runtime", RUNTIMES));
        let sets = default.filter(|_| task.default).map(|_| (DEFAULT_FLAG, DEFAULT));
        let (flag, key) = adds.or(sets)?;
        let why = format!(
            "cannot set \"{key}\" in {shown}: {by} starts dockerd with {flag}, and dockerd does not start with both"
        );
        Some(Error::new(why).hint(format!("move the value of {flag} to \"{key}\" in {shown}")))
    })
}

/// Returns the commands of docker's unit, and those of the dockerd that runs.
fn calls(task: &Task<'_>) -> Vec<Call> {
    let running = match task.root == Path::new("/") {
        true => engine::running("dockerd"),
        false => Vec::new(),
    };
    let call = |pid| {
        let text = files::read_text(format!("/proc/{pid}/cmdline").as_ref(), MAX_COMMAND);
        Some(Call::of(format!("process {pid}"), &text.ok()?))
    };
    let running = running.into_iter().filter_map(call);
    unit(task).into_iter().chain(running).collect()
}

/// Returns the commands of docker's unit with its drop-ins, and the variables that it sets for them. A file that cannot be read
/// is left out.
fn unit(task: &Task<'_>) -> Vec<Call> {
    let folders = UNITS.map(Path::new);
    let units = folders.map(|folder| folder.join("docker.service"));
    let unit = units.iter().rev().find(|unit| task.on_disk(unit).exists());
    // docker's own drop-ins count over those for all services.
    let dirs = ["service.d", "docker.service.d"].map(|dir| folders.map(|folder| folder.join(dir)));
    let dropped = task.conf_files(dirs.as_flattened(), None);
    let is_comment = |line: &&str| line.trim_start().starts_with(['#', ';']);
    let read = |path: &Path| task.read(path).ok().flatten().unwrap_or_default();
    let (mut calls, mut variables) = (Vec::new(), Vec::new());
    for file in unit.cloned().into_iter().chain(dropped.unwrap_or_default()) {
        // systemd skips a comment between continued lines too.
        let text = read(&file);
        let lines: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
        for line in lines.join("\n").replace("\\\n", " ").lines() {
            let setting = line.split_once('=');
            match setting.map(|(key, value)| (key.trim(), value.trim())) {
                Some(("ExecStart", "")) => calls.clear(),
                Some(("ExecStart", text)) => calls.push(Call::of(file.display(), text)),
                Some(("Environment", text)) => variables.push(Call::of(file.display(), text)),
                Some(("EnvironmentFile", path)) => {
                    let path = path.trim_start_matches('-');
                    let text = read(path.as_ref());
                    let lines = text.lines().filter(|line| !is_comment(line));
                    variables.extend(lines.map(|line| Call::of(path, line)));
                }
                _ => {}
            }
        }
    }
    calls.append(&mut variables);
    calls
}

/// Checks a new text of daemon.json with dockerd itself. A dockerd that refuses the old text too has other reasons.
fn validate(engine: &engine::Found, before: Option<&str>, after: &str) -> Result<()> {
    let says = |text: &str| engine.accepts(&["--validate", "--config-file", "/dev/stdin"], text);
    match says(after) {
        Err(why) if says(before.unwrap_or("{}")).is_ok() => Err(why),
        _ => Ok(()),
    }
}
