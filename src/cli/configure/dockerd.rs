//! The flags with which dockerd starts. It does not start with a setting that is both a flag and in daemon.json.

use super::Task;
use super::engine;
use runmig_lease::error::{Error, Result};
use runmig_lease::files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folders of units, later ones over earlier ones.
const UNITS: [&str; 5] = [
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
    "/run/systemd/system",
    "/etc/systemd/system",
];
const UNIT: &str = "docker.service";
const MAX_COMMAND: u64 = 1 << 20;

/// A call of dockerd.
struct Call {
    /// What makes the call: a file, or a process.
    by: String,
    words: Vec<String>,
}

/// Returns why dockerd would not do with `file` as the task wants.
pub fn obstacle(task: &Task<'_>, file: &Path) -> Option<Error> {
    let (shown, name) = (file.display(), task.name);
    let mut calls = unit(task);
    calls.extend(running(task));
    calls.iter().find_map(|call| {
        let by = &call.by;
        let default = call.value("--default-runtime");
        if task.remove {
            default.filter(|theirs| *theirs == name)?;
            let why = format!("{by} still starts dockerd with --default-runtime {name}");
            return Some(Error::new(why).hint("remove that flag"));
        }
        let clash = |flag: &str, key: &str| {
            Error::new(format!(
                "cannot set \"{key}\" in {shown}: {by} starts dockerd with {flag}, and dockerd does not start with both"
            ))
            .hint(format!("move the value of {flag} to \"{key}\" in {shown}"))
        };
        let other = call.value("--config-file").filter(|theirs| Path::new(theirs) != file);
        if let Some(theirs) = other.filter(|_| task.engine_config.is_none()) {
            let why = format!("cannot change {shown}: {by} starts dockerd with --config-file {theirs}");
            return Some(Error::new(why).hint(format!("add --engine-config {theirs}")));
        }
        if call.value("--add-runtime").is_some() {
            return Some(clash("--add-runtime", "runtimes"));
        }
        default.filter(|_| task.default)?;
        Some(clash("--default-runtime", "default-runtime"))
    })
}

impl Call {
    fn of(by: String, text: &str) -> Call {
        let words = text.split_whitespace();
        let words = words.map(|word| word.trim_matches(['"', '\'']).to_owned());
        Call {
            by,
            words: words.collect(),
        }
    }

    /// Returns the value of a flag, as `--flag value` or `--flag=value`.
    fn value(&self, flag: &str) -> Option<&str> {
        let at = |(at, word): (usize, &'_ String)| match word.strip_prefix(flag)? {
            "" => Some(self.words.get(at + 1).map_or("", String::as_str)),
            rest => self.words[at][flag.len()..]
                .strip_prefix('=')
                .filter(|_| rest.starts_with('=')),
        };
        self.words.iter().enumerate().find_map(at)
    }
}

fn running(task: &Task<'_>) -> Vec<Call> {
    if task.root != Path::new("/") {
        return Vec::new();
    }
    let call = |pid: i32| {
        let text = files::read_text(format!("/proc/{pid}/cmdline").as_ref(), MAX_COMMAND).ok()?;
        let words = text.split('\0').map(str::to_owned).collect();
        let by = format!("process {pid}");
        Some(Call { by, words })
    };
    engine::running("dockerd")
        .into_iter()
        .filter_map(call)
        .collect()
}

/// Returns the commands of docker's unit, with its drop-ins, and the variables that they name.
fn unit(task: &Task<'_>) -> Vec<Call> {
    let (mut calls, mut variables) = (Vec::new(), Vec::new());
    for (file, text) in unit_files(task) {
        let by = file.display().to_string();
        for line in text.replace("\\\n", " ").lines() {
            match line.trim().split_once('=') {
                Some(("ExecStart", "")) => calls.clear(),
                Some(("ExecStart", command)) => calls.push(Call::of(by.clone(), command)),
                Some(("Environment", text)) => variables.push((by.clone(), text.to_owned())),
                Some(("EnvironmentFile", path)) => {
                    let path = path.trim_start_matches('-');
                    let text = task.read(path.as_ref()).ok().flatten().unwrap_or_default();
                    let lines = text
                        .lines()
                        .filter(|line| !line.trim_start().starts_with('#'));
                    variables.extend(lines.map(|line| (path.to_owned(), line.to_owned())));
                }
                _ => {}
            }
        }
    }
    let named = |name: &str| {
        let dollar = |word: &String| word.trim_start_matches('$').trim_matches(['{', '}']) == name;
        let is_variable = |word: &&String| word.starts_with('$');
        { calls.iter().flat_map(|call| &call.words) }
            .filter(is_variable)
            .any(dollar)
    };
    let values = variables.iter().filter_map(|(by, line)| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim().trim_matches(['"', '\'']);
        named(name).then(|| Call::of(by.clone(), value))
    });
    let values: Vec<Call> = values.collect();
    calls.extend(values);
    calls
}

/// Returns docker's unit and its drop-ins, in systemd's order. One that cannot be read is left out.
fn unit_files(task: &Task<'_>) -> Vec<(PathBuf, String)> {
    let mut unit = None;
    let mut dropped = BTreeMap::new();
    for folder in UNITS.map(Path::new) {
        let file = folder.join(UNIT);
        if task.on_disk(&file).exists() {
            unit = Some(file);
        }
        for file in task
            .below(&folder.join(format!("{UNIT}.d")))
            .unwrap_or_default()
        {
            if let Some(name) = file
                .file_name()
                .filter(|_| file.extension().is_some_and(|e| e == "conf"))
            {
                dropped.insert(name.to_owned(), file);
            }
        }
    }
    let files = unit.into_iter().chain(dropped.into_values());
    let read = |file: PathBuf| Some((task.read(&file).ok()??, file));
    files
        .filter_map(read)
        .map(|(text, file)| (file, text))
        .collect()
}

/// Checks a new text of daemon.json with dockerd itself. A dockerd that refuses the old text too has other reasons.
pub fn validate(engine: &engine::Found, before: Option<&str>, after: &str) -> Result<()> {
    let says = |text: &str| engine.accepts(&["--validate", "--config-file", "/dev/stdin"], text);
    match says(after) {
        Err(why) if says(before.unwrap_or("{}")).is_ok() => Err(why),
        _ => Ok(()),
    }
}
