//! CRI-O: a drop-in.

use super::effective::{Layers, Says};
use super::engine::Found;
use super::{MADE, Plan, Task, table};
use runmig_lease::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const SHIPPED: &str = include_str!("../../../crio-config/20-runmig.conf");
pub const CONFIG: &str = "/etc/crio/crio.conf";
pub const DROP_INS: &str = "/etc/crio/crio.conf.d";

/// The settings that belong to the node, not to the runtime.
const INHERITED: [&str; 7] = [
    "monitor_path",
    "monitor_cgroup",
    "monitor_exec_cgroup",
    "monitor_env",
    "container_min_memory",
    "privileged_without_host_devices",
    "allowed_annotations",
];

const SAYS: Says = Says {
    key: "default_runtime",
    default: |table| table::at(table, &["crio", "runtime", "default_runtime"])?.as_str(),
    program: |table, name| {
        let path = runtimes(table, name)?.get("runtime_path");
        Some(path.and_then(Value::as_str).unwrap_or_default())
    },
};

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let engine = Found::of(task, "CRI-O", "crio")?;
    let drop_in = task.drop_in_or(format!("{DROP_INS}/20-{}.conf", task.name));
    let text = match task.remove {
        true => None,
        false => Some(drop_in_text(task, &default(task, &drop_in)?)),
    };
    let changes = vec![task.own_file(&drop_in, text)?];
    let plan = Plan::new(engine.name, changes, Some("systemctl restart crio"));
    Ok(plan.read_back(task, files(task, &drop_in), &SAYS))
}

/// Returns the main file, and every file in the folder and below it, in CRI-O's order.
fn files(task: &Task<'_>, ours: &Path) -> Result<Vec<PathBuf>> {
    let main = task.engine_config.unwrap_or(CONFIG.as_ref());
    let mut dropped = BTreeSet::from_iter(task.below(DROP_INS.as_ref())?);
    dropped.insert(ours.to_owned());
    Ok([main.to_owned()].into_iter().chain(dropped).collect())
}

/// Returns the default handler as the other files have it: for each setting the last file counts.
///
/// # Errors
/// One of them has a handler of this name.
fn default(task: &Task<'_>, ours: &Path) -> Result<Table> {
    let others = files(task, ours)?.into_iter();
    let others = Layers::of(task, &[], others.filter(|file| file != ours))?;
    if let Some((file, _)) = others.last(|table| runtimes(table, task.name)) {
        let is_ours = task.read(file)?.is_some_and(|text| text.starts_with(MADE));
        let (name, file) = (task.name, file.display());
        let hint = match is_ours {
            true => format!("add --drop-in {file}, or remove it with that first"),
            false => "remove that handler, or choose another name with --name".to_owned(),
        };
        let why = format!("cannot add the handler {name}: {file} has one already");
        return Err(Error::new(why).hint(hint));
    }
    let of = |name: &str| -> Table {
        let tables = { others.0.iter() }.filter_map(|(_, table)| runtimes(table, name));
        tables.flat_map(Table::clone).collect()
    };
    Ok(match others.last(SAYS.default) {
        Some((_, name)) => of(name),
        // CRI-O's default is crun, formerly runc.
        None => Some(of("crun"))
            .filter(|t| !t.is_empty())
            .unwrap_or_else(|| of("runc")),
    })
}

fn runtimes<'a>(table: &'a Table, name: &str) -> Option<&'a Table> {
    table::at(table, &["crio", "runtime", "runtimes", name])?.as_table()
}

fn drop_in_text(task: &Task<'_>, default: &Table) -> String {
    let text = SHIPPED
        .replace("runtimes.runmig]", &format!("runtimes.{}]", task.name))
        .replace("\"runmig\"", &format!("\"{}\"", task.name))
        .replace("handler: runmig`", &format!("handler: {}`", task.name))
        .replace("/run/runmig-oci", &format!("/run/{}-oci", task.name))
        .replace("/usr/local/bin/runmig", &task.runtime.display().to_string());
    let inherited = table::settings(Some(default), |key| INHERITED.contains(&key));
    let default = || format!("\n[crio.runtime]\ndefault_runtime = \"{}\"\n", task.name);
    let default = task.default.then(default).unwrap_or_default();
    format!("{MADE}{text}{inherited}{default}")
}
