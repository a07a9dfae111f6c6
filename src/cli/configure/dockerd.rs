//! The flags with which dockerd starts. It does not start with a setting that is both a flag and in daemon.json.

use super::Task;
use super::engine;
use runmig_lease::error::{Error, Result};
use runmig_lease::files;
use std::path::Path;

/// The folders of units, later ones over earlier ones.
const UNITS: [&str; 5] = [
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
    "/run/systemd/system",
    "/etc/systemd/system",
];
const MAX_COMMAND: u64 = 1 << 20;

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

/// Returns the default runtime that a flag of dockerd names.
pub fn default(task: &Task<'_>) -> Option<String> {
    let calls = unit(task).into_iter().chain(running(task));
    { calls }.find_map(|call| call.value("--default-runtime").map(str::to_owned))
}

/// Returns the program that a flag of dockerd gives to the name of a runtime.
pub fn program(task: &Task<'_>, name: &str) -> Option<String> {
    unit(task).iter().chain(&running(task)).find_map(|call| {
        let mut words = call.words.windows(3);
        let added = words.find(|words| words[..2] == ["--add-runtime", name])?;
        Some(added[2].clone())
    })
}

/// Returns why dockerd would not do with `file` as the task wants.
pub fn obstacle(task: &Task<'_>, file: &Path) -> Option<Error> {
    let (shown, name) = (file.display(), task.name);
    unit(task).iter().chain(&running(task)).find_map(|call| {
        let by = &call.by;
        let default = call.value("--default-runtime");
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
        let adds = call.value("--add-runtime").map(|_| ("--add-runtime", "runtimes"));
        let sets = default.filter(|_| task.default).map(|_| ("--default-runtime", "default-runtime"));
        let (flag, key) = adds.or(sets)?;
        let why = format!(
            "cannot set \"{key}\" in {shown}: {by} starts dockerd with {flag}, and dockerd does not start with both"
        );
        Some(Error::new(why).hint(format!("move the value of {flag} to \"{key}\" in {shown}")))
    })
}

fn running(task: &Task<'_>) -> Vec<Call> {
    let pids = match task.root == Path::new("/") {
        true => engine::running("dockerd"),
        false => Vec::new(),
    };
    let call = |pid| {
        let text = files::read_text(format!("/proc/{pid}/cmdline").as_ref(), MAX_COMMAND);
        Some(Call::of(format!("process {pid}"), &text.ok()?))
    };
    pids.into_iter().filter_map(call).collect()
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
pub fn validate(engine: &engine::Found, before: Option<&str>, after: &str) -> Result<()> {
    let says = |text: &str| engine.accepts(&["--validate", "--config-file", "/dev/stdin"], text);
    match says(after) {
        Err(why) if says(before.unwrap_or("{}")).is_ok() => Err(why),
        _ => Ok(()),
    }
}
