//! podman: a drop-in. podman has no service to restart.

use super::effective::{Layers, Says};
use super::engine::Found;
use super::{MADE, Plan, Task, is_runmig, table};
use runmig_lease::error::Result;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const SHIPPED: &str = include_str!("../../../podman-config/50-runmig.conf");
/// The vendor's file, and the machine's.
pub const CONFIGS: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
/// The folders of drop-ins, later ones over earlier ones. Before version 6, podman reads only `OURS`.
pub const DROP_INS: [&str; 4] = [
    "/usr/share/containers/containers.conf.d",
    "/usr/share/containers/containers.rootful.conf.d",
    OURS,
    "/etc/containers/containers.rootful.conf.d",
];
const OURS: &str = "/etc/containers/containers.conf.d";
const SAYS: Says = Says {
    key: "runtime",
    default: |table| table::at(table, &["engine", "runtime"])?.as_str(),
    program: |table, name| {
        let paths = table::at(table, &["engine", "runtimes", name])?.as_array();
        let first = paths.and_then(|paths| paths.first()?.as_str());
        Some(first.unwrap_or_default())
    },
};
const LIST: &str = "runtime_supports_json";

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let engine = Found::of(task, "podman", "podman")?;
    let drop_in = task.drop_in_or(format!("{OURS}/50-{}.conf", task.name));
    let program = task.runtime.file_name().unwrap_or_default();
    let program = program.to_string_lossy();
    // Since 5.0 a file can append to a list; an older podman needs the whole list.
    let list = match engine.at_least(5) {
        true => format!("[\"{program}\", {{append = true}}]"),
        false => {
            let mut names = listed(task, &engine, &drop_in)?;
            names.push(Value::from(program.as_ref()));
            Value::Array(names).to_string()
        }
    };
    let default = || format!("runtime = \"{}\"\n", task.name);
    let default = task.default.then(default).unwrap_or_default();
    let lines = SHIPPED.lines().map(|line| match line.split_once(" = ") {
        Some((key, _)) if key == LIST => format!("{LIST} = {list}\n{default}"),
        Some(("runmig", _)) => format!("{} = [\"{}\"]\n", task.name, task.runtime.display()),
        _ => line.replace("--runtime runmig", &format!("--runtime {}", task.name)) + "\n",
    });
    let text = format!("{MADE}{}", lines.collect::<String>());
    let changes = vec![task.own_file(&drop_in, (!task.remove).then_some(text))?];
    let files = files(task, &engine, &drop_in);
    Ok(Plan::new(engine.name, changes, None).read_back(task, files, &SAYS))
}

/// Returns podman's files in its order.
fn files(task: &Task<'_>, engine: &Found, ours: &Path) -> Result<Vec<PathBuf>> {
    let [all, own] = CONFIGS.map(Path::new);
    let own = task.engine_config.unwrap_or(own);
    let is_six = engine.at_least(6);
    // podman 6 reads one main file, and the drop-ins of all folders in the order of their names; a later folder hides a file
    // of the same name.
    let mut files = match is_six && task.on_disk(own).exists() {
        true => vec![own.to_owned()],
        false => [all, own].map(Path::to_owned).to_vec(),
    };
    let folders = DROP_INS.iter().filter(|dir| is_six || **dir == OURS);
    let folders: Vec<PathBuf> = folders.map(PathBuf::from).collect();
    files.extend(task.conf_files(&folders, Some(ours))?);
    // An administrator's own folder, as CONTAINERS_CONF_OVERRIDE can name one.
    if !{ DROP_INS.iter() }.any(|dir| ours.parent() == Some(Path::new(dir))) {
        files.push(ours.to_owned());
    }
    Ok(files)
}

/// Returns the list in effect without runmig's drop-in: from the last file that has one, else podman's own.
fn listed(task: &Task<'_>, engine: &Found, ours: &Path) -> Result<Vec<Value>> {
    let others = files(task, engine, ours)?.into_iter();
    let others = Layers::of(task, &[], others.filter(|file| file != ours))?;
    let shipped = table::parse(SHIPPED)?;
    let list = others.last(list).map(|(_, list)| list);
    let list = list.or_else(|| self::list(&shipped)).cloned();
    let mut list = list.unwrap_or_default();
    list.retain(|name| !name.as_str().is_some_and(|name| is_runmig(name.as_ref())));
    Ok(list)
}

fn list(table: &Table) -> Option<&Vec<Value>> {
    let list = table::at(table, &["engine", LIST])?.as_array()?;
    Some(list).filter(|list| !list.is_empty())
}
