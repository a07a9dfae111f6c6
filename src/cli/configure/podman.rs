//! podman: a drop-in. podman has no service to restart.

use super::engine::Found;
use super::{MADE, Plan, Task, table};
use runmig_lease::error::{Context, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::Value;

const SHIPPED: &str = include_str!("../../../podman-config/50-runmig.conf");
/// The vendor's file, and the machine's.
pub const CONFIGS: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
pub const DROP_INS: &str = "/etc/containers/containers.conf.d";
const LIST: &str = "runtime_supports_json";

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let engine = Found::of(task, "podman", "podman")?;
    let drop_in = match task.drop_in {
        Some(path) => path.to_owned(),
        None => PathBuf::from(format!("{DROP_INS}/50-{}.conf", task.name)),
    };
    let program = task
        .runtime
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    // Since 5.0 a file can append to a list; an older podman needs the whole list.
    let list = match engine.at_least(5) {
        true => format!("[\"{program}\", {{append = true}}]"),
        false => {
            let mut names = listed(task, &drop_in)?;
            names.push(Value::from(program.as_ref()));
            Value::Array(names).to_string()
        }
    };
    let default = match task.default {
        true => format!("runtime = \"{}\"\n", task.name),
        false => String::new(),
    };
    let lines = SHIPPED.lines().map(|line| match line.split_once(" = ") {
        Some((key, _)) if key == LIST => format!("{LIST} = {list}\n{default}"),
        Some(("runmig", _)) => format!("{} = [\"{}\"]\n", task.name, task.runtime.display()),
        _ => format!(
            "{}\n",
            line.replace("--runtime runmig", &format!("--runtime {}", task.name))
        ),
    });
    let text = format!("{MADE}{}", lines.collect::<String>());
    Ok(Plan {
        changes: vec![task.own_file(&drop_in, text)?],
        engine: engine.name,
        restart: None,
        notes: Vec::new(),
    })
}

/// Returns the list in effect without runmig's drop-in: from the last file that has one, else podman's own.
fn listed(task: &Task<'_>, ours: &Path) -> Result<Vec<Value>> {
    let mut list = of(SHIPPED)?;
    list.retain(|name| name.as_str() != Some("runmig"));
    let [all, own] = CONFIGS.map(Path::new);
    let mains = [all, task.engine_config.unwrap_or(own)].map(Path::to_owned);
    // podman reads no other files there.
    let mut dropped = task.below(DROP_INS.as_ref())?;
    dropped.retain(|path| {
        path.parent() == Some(DROP_INS.as_ref()) && path.as_os_str().as_bytes().ends_with(b".conf")
    });
    for (file, text) in task.files(mains.into_iter().chain(dropped), ours)? {
        let found = of(&text).context(|| format!("read {}", file.display()))?;
        if !found.is_empty() {
            list = found;
        }
    }
    Ok(list)
}

fn of(text: &str) -> Result<Vec<Value>> {
    let table = table::parse(text)?;
    let list = table::at(&table, &["engine", LIST]).and_then(Value::as_array);
    Ok(list.cloned().unwrap_or_default())
}
