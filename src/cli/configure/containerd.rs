//! containerd: a handler in its CRI plugin, which Kubernetes and crictl use. (`ctr` and nerdctl name a runtime by its
//! path and need no handler.)
//!
//! Version 2 merges the tables of imported files, so runmig writes a drop-in. Version 1 takes the whole table of a
//! plugin from the last file that has one. A drop-in would undo every other setting of the CRI plugin, so the handler
//! goes into the main file. If that lists no runtimes, runmig adds runc too: a list hides containerd's own handler.

use super::engine::Found;
use super::{MADE, Plan, Task, added, block, imports, inherit, table, toml_text};
use runmig_lease::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const SHIPPED_V2: &str = include_str!("../../../containerd-config/runmig-v2.toml");
const SHIPPED_V3: &str = include_str!("../../../containerd-config/runmig.toml");
pub const CONFIG: &str = "/etc/containerd/config.toml";
pub const DROP_INS: &str = "/etc/containerd/conf.d";

/// The name of the CRI plugin, by the version of the file.
const CRI: [&str; 3] = [
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
];

/// Begins the labels of blocks with handlers.
const HANDLER: &str = "handler ";
const DEFAULT: &str = "default_runtime_name";
/// The label of the block that keeps the handler runc.
const RUNC: &str = "runc, which a list of others would hide";

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let engine = Found::of(task, "containerd", "containerd")?;
    let Some((major, _)) = engine.version else {
        return Err(Error::new(
            "cannot configure containerd: it does not print its version",
        ));
    };
    let path = task.engine_config.unwrap_or(CONFIG.as_ref());
    let drop_in = match task.drop_in {
        Some(path) => path.to_owned(),
        None => PathBuf::from(format!("{DROP_INS}/{}.toml", task.name)),
    };
    let before = task.read(path)?;
    let main =
        Main::read(before.as_deref(), major).context(|| format!("read {}", path.display()))?;
    let theirs = task
        .read(&drop_in)?
        .is_some_and(|text| !text.starts_with(MADE));
    let import = (!theirs && (task.remove || major == 1)).then(|| drop_in.display().to_string());
    let plain = main
        .without(task, import.as_deref())
        .context(|| format!("change {}", path.display()))?;
    let mut notes = Vec::new();
    let (drop_in, after) = if task.remove {
        (task.own_file(&drop_in, String::new())?, plain)
    } else {
        let effective = effective(task, &engine, before.as_ref().map(|_| path))?;
        check(task, &effective, &main, path, &drop_in)?;
        let handler = handler(task, &effective, main.version);
        let earlier = match block::body(&main.text, &label(task)) {
            Some(body) => Some(body.to_owned()),
            None => task.read(&drop_in)?,
        };
        notes.extend(added::note(
            &engine.name,
            task.name,
            earlier.as_deref(),
            &handler,
        ));
        if major == 1 {
            main.check_imports(task, path)?;
            let after = main.with_handler(task, &plain, &handler, &runc(&effective))?;
            // A drop-in that runmig made for containerd 2.
            let gone =
                |before: Option<&str>| before.filter(|t| !t.starts_with(MADE)).map(str::to_owned);
            (task.change(&drop_in, |before| Ok(gone(before)))?, after)
        } else {
            let default = match task.default {
                true => format!(
                    "\n[plugins.\"{}\".containerd]\n{DEFAULT} = \"{}\"\n",
                    CRI[main.version - 1],
                    task.name
                ),
                false => String::new(),
            };
            let text = format!("{MADE}version = {}\n\n{handler}{default}", main.version);
            let imports = with_import(&plain, path, &drop_in);
            let after = imports.context(|| format!("change {}", path.display()))?;
            (task.own_file(&drop_in, text)?, after)
        }
    };
    let after = (after != main.empty()).then_some(after);
    let mut changes = vec![drop_in, task.change(path, |_| Ok(after))?];
    // A drop-in has to exist as long as its import.
    if task.remove || major == 1 {
        changes.reverse();
    }
    changes.retain(|change| change.before.is_some() || change.after.is_some());
    Ok(Plan {
        engine: engine.name,
        changes,
        restart: Some("systemctl restart containerd"),
        notes,
    })
}

/// The main file.
struct Main {
    text: String,
    version: usize,
}

impl Main {
    fn read(text: Option<&str>, major: u32) -> Result<Main> {
        let newest = if major == 1 { 2 } else { 3 };
        let text = match text {
            Some(text) => text.to_owned(),
            None => empty(newest),
        };
        let table =
            table::parse(&text).map_err(|e| e.hint("correct the file; migctl changed nothing"))?;
        let version = match table.get("version") {
            None => 1,
            Some(version) => version.as_integer().unwrap_or_default(),
        };
        if version == 1 && major > 1 {
            return Err(Error::new(
                "it has no version, so containerd 2 reads it as version 1 and ignores its plugins",
            )
            .hint("update the file: containerd config migrate prints the new text"));
        }
        if !(1..=newest as i64).contains(&version) {
            return Err(Error::new(format!(
                "containerd {major} does not read version = {version}"
            )));
        }
        Ok(Main {
            text,
            version: version as usize,
        })
    }

    /// Returns the file that runmig makes where it is missing.
    fn empty(&self) -> String {
        empty(self.version)
    }

    /// Returns the text without the handler and without this import.
    fn without(&self, task: &Task<'_>, import: Option<&str>) -> Result<String> {
        let mut text = block::without(&self.text, &label(task));
        if block::labels(&text, HANDLER).next().is_none() {
            text = block::without(&text, RUNC);
        }
        text = toml_text::without_key(&text, DEFAULT, task.name);
        if let Some(import) = import {
            text = toml_text::without_string(&text, "imports", import)?;
        }
        Ok(text)
    }

    fn with_handler(
        &self,
        task: &Task<'_>,
        plain: &str,
        handler: &str,
        runc: &str,
    ) -> Result<String> {
        let cri = CRI[self.version - 1];
        let default = ["plugins", cri, "containerd", DEFAULT];
        if block::body(&self.text, &label(task)) == Some(handler) {
            let there = table::at(&table::parse(&self.text)?, &default).cloned();
            if task.default == (there == Some(Value::from(task.name))) {
                return Ok(self.text.clone());
            }
        }
        let mut text = plain.to_owned();
        let runtimes = ["plugins", cri, "containerd", "runtimes"];
        if table::at(&table::parse(plain)?, &runtimes).is_none() {
            let runc = format!("[plugins.\"{cri}\".containerd.runtimes.runc]\n{runc}");
            text = block::with(&text, RUNC, &runc);
        }
        let mut text = block::with(&text, &label(task), handler);
        if task.default {
            let header = format!("[plugins.\"{cri}\".containerd]");
            text = toml_text::with_key(&text, &default, &header, task.name)?;
        }
        table::parse(&text).map_err(|e| {
            e.hint("migctl cannot add to plugins that are written so; add the handler by hand")
        })?;
        Ok(text)
    }

    /// Refuses an imported file with a table of the CRI plugin: containerd 1 would read no other.
    fn check_imports(&self, task: &Task<'_>, path: &Path) -> Result<()> {
        for pattern in toml_text::strings(&self.text, "imports")? {
            for file in imports::matching(task, &imports::beside(path, &pattern)) {
                let text = task.read(&file)?.unwrap_or_default();
                let table = table::parse(&text).context(|| format!("read {}", file.display()))?;
                if table::at(&table, &["plugins", CRI[self.version - 1]]).is_some() {
                    return Err(Error::new(format!(
                        "cannot add the handler to {}: it imports {}, and containerd 1 takes the CRI plugin \
                         from there alone",
                        path.display(),
                        file.display()
                    ))
                    .hint(format!(
                        "add the handler to that file with --engine-config {}",
                        file.display()
                    )));
                }
            }
        }
        Ok(())
    }
}

fn empty(version: usize) -> String {
    format!("{MADE}version = {version}\n")
}

fn label(task: &Task<'_>) -> String {
    format!("{HANDLER}{}", task.name)
}

fn with_import(text: &str, path: &Path, drop_in: &Path) -> Result<String> {
    let patterns = toml_text::strings(text, "imports")?;
    if patterns
        .iter()
        .any(|p| imports::matches(&imports::beside(path, p), drop_in))
    {
        return Ok(text.to_owned());
    }
    // A pattern could import other files too.
    toml_text::with_string(text, "imports", &drop_in.display().to_string())
}

/// Returns the configuration that containerd makes of all its files.
fn effective(task: &Task<'_>, engine: &Found, file: Option<&Path>) -> Result<Table> {
    match file {
        Some(file) => {
            let file = task.on_disk(file).display().to_string();
            engine.effective(&["--config", &file, "config", "dump"])
        }
        None => engine.effective(&["config", "default"]),
    }
}

fn cri<'a>(effective: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    CRI.iter().rev().find_map(|cri| {
        let keys = [&["plugins", cri, "containerd"], keys].concat();
        table::at(effective, &keys)
    })
}

fn check(
    task: &Task<'_>,
    effective: &Table,
    main: &Main,
    path: &Path,
    drop_in: &Path,
) -> Result<()> {
    let disabled = effective.get("disabled_plugins").and_then(Value::as_array);
    let is_cri = |plugin: &Value| plugin.as_str().is_some_and(|p| CRI.contains(&p));
    if disabled.is_some_and(|plugins| plugins.iter().any(is_cri)) {
        return Err(Error::new(format!(
            "cannot add a handler: the CRI plugin is in disabled_plugins of {}",
            path.display()
        ))
        .hint("use migctl configure docker for docker; nerdctl and ctr take --runtime PATH"));
    }
    let Some(theirs) = cri(effective, &["runtimes", task.name]) else {
        return Ok(());
    };
    let in_main = block::body(&main.text, &label(task)).is_some();
    let in_drop_in = task.read(drop_in)?.is_some();
    if in_main || in_drop_in {
        return Ok(());
    }
    let program = table::at(
        theirs.as_table().unwrap_or(&Table::new()),
        &["options", "BinaryName"],
    )
    .map_or("no BinaryName".to_owned(), |p| format!("BinaryName = {p}"));
    Err(Error::new(format!(
        "cannot add the handler {1}: {0} or one of its imports has one with {program} that migctl configure did not make",
        path.display(),
        task.name
    ))
    .hint("remove that handler, or choose another name with --name"))
}

/// Returns the settings of containerd's own handler, which a list would hide. containerd 1.7 has a `sandbox_mode` there,
/// which its handler without these lines would lose, and runmig's with it at the next call.
fn runc(effective: &Table) -> String {
    const TYPE: &str = "runtime_type";
    let own = cri(effective, &["runtimes", "runc"]).and_then(Value::as_table);
    let lines = inherit::lines(own, |key| key != TYPE);
    format!("{TYPE} = \"io.containerd.runc.v2\"\n{lines}")
}

/// Returns the tables of the shipped file for this handler and machine.
fn handler(task: &Task<'_>, effective: &Table, version: usize) -> String {
    let shipped = if version == 3 { SHIPPED_V3 } else { SHIPPED_V2 };
    let tables = shipped.find("\n[").map_or(shipped, |at| &shipped[at + 1..]);
    let text = tables
        .replace("runtimes.runmig", &format!("runtimes.{}", task.name))
        .replace("/usr/local/bin/runmig", &task.runtime.display().to_string());
    let text = match version {
        1 => text.replace(CRI[1], CRI[0]),
        _ => text,
    };
    let default = cri(effective, &[DEFAULT])
        .and_then(Value::as_str)
        // runmig's handler copied runc's settings.
        .map(|name| if name == task.name { "runc" } else { name })
        .and_then(|name| cri(effective, &["runtimes", name]))
        .and_then(Value::as_table)
        .filter(|t| t.get("runtime_type").and_then(Value::as_str) == Some("io.containerd.runc.v2"));
    let own = [
        "runtime_",
        "pod_annotations",
        "container_annotations",
        "sandboxer",
    ];
    let of_handler = inherit::lines(default, |key| !own.iter().any(|o| key.starts_with(o)));
    let options = default
        .and_then(|t| t.get("options"))
        .and_then(Value::as_table);
    let of_options = inherit::lines(options, |key| key != "BinaryName");
    match text.rsplit_once("\n\n[") {
        Some((handler, options)) => format!("{handler}\n{of_handler}\n[{options}{of_options}"),
        None => text,
    }
}
