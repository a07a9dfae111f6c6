//! containerd: a handler in its CRI plugin, which Kubernetes and crictl use. (`ctr` and nerdctl name a runtime by its
//! path and need no handler.)
//!
//! Version 2 merges the tables of imported files, so runmig writes a drop-in, and an import where none has it. Version 1 takes
//! the whole table of a plugin from the last file that has one. A drop-in would undo every other setting of the CRI plugin, so
//! the handler goes into the main file. If that lists no runtimes, runmig adds runc too: a list hides containerd's own handler.

use super::engine::Found;
use super::rewrite::{Rewrite, Which};
use super::{MADE, Plan, Task, imports, inherit, is_runmig, table};
use runmig_lease::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use toml_edit::{DocumentMut, Item};

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
const DEFAULT: &str = "default_runtime_name";
const IMPORTS: &str = "imports";

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
    let version = version(before.as_deref(), major);
    let version = version.context(|| format!("read {}", path.display()))?;
    let is_theirs = task
        .read(&drop_in)?
        .is_some_and(|text| !text.starts_with(MADE));
    let mut main = Main {
        task,
        cri: CRI[version - 1],
        path,
        import: drop_in.display().to_string(),
        keeps_import: is_theirs,
        tables: None,
    };
    let empty = format!("{MADE}version = {version}\n");
    let mut drop_in_text = None;
    if !task.remove {
        let effective = effective(task, &engine, before.as_ref().map(|_| path))?;
        main.check(&effective, &drop_in)?;
        let handler = handler(task, &effective, version);
        if major == 1 {
            main.check_imports()?;
            let runc = format!(
                "[plugins.'{0}'.containerd.runtimes.runc]\n{1}",
                main.cri,
                runc(&effective)
            );
            main.tables = Some([handler, runc]);
        } else {
            let default = match task.default {
                true => format!(
                    "\n[plugins.'{}'.containerd]\n{DEFAULT} = \"{}\"\n",
                    main.cri, task.name
                ),
                false => String::new(),
            };
            drop_in_text = Some(format!("{MADE}version = {version}\n\n{handler}{default}"));
        }
    }
    let drop_in = match drop_in_text {
        Some(text) => task.own_file(&drop_in, text)?,
        // A drop-in for containerd 2 goes with the handler, and where that moves into the main file.
        None => task.change(&drop_in, |before| {
            Ok(before
                .filter(|text| !text.starts_with(MADE))
                .map(str::to_owned))
        })?,
    };
    let main = task.rewrite(
        path,
        &Rewrite {
            without: &|text, which| main.without(text, which),
            with: &|text| main.with(text),
            same,
            empty: &empty,
        },
    )?;
    let mut changes = vec![drop_in, main];
    // A drop-in has to exist as long as its import.
    if task.remove || major == 1 {
        changes.reverse();
    }
    changes.retain(|change| change.before.is_some() || change.after.is_some());
    Ok(Plan {
        engine: engine.name,
        changes,
        restart: Some("systemctl restart containerd"),
        notes: Vec::new(),
    })
}

/// Returns the version of the main file.
fn version(text: Option<&str>, major: u32) -> Result<usize> {
    let newest = if major == 1 { 2 } else { 3 };
    let Some(text) = text else { return Ok(newest) };
    let table =
        table::parse(text).map_err(|e| e.hint("correct the file; migctl changed nothing"))?;
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
    match usize::try_from(version) {
        Ok(version) if (1..=newest).contains(&version) => Ok(version),
        _ => Err(Error::new(format!(
            "containerd {major} does not read version = {version}"
        ))),
    }
}

/// The changes of the main file.
struct Main<'a> {
    task: &'a Task<'a>,
    cri: &'static str,
    path: &'a Path,
    /// The path of the drop-in.
    import: String,
    /// Says whether the file at that path is an administrator's.
    keeps_import: bool,
    /// The handler, and runc for a file without a list, of containerd 1. None where the handler is in a drop-in.
    tables: Option<[String; 2]>,
}

impl Main<'_> {
    fn parse(text: &str) -> Result<DocumentMut> {
        text.parse()
            .map_err(|e: toml_edit::TomlError| table::at_line(text, e.span(), e.message()))
    }

    fn without(&self, text: &str, which: Which) -> Result<String> {
        let mut document = Main::parse(text)?;
        let mut is_changed = false;
        let imports = document.get_mut(IMPORTS).and_then(Item::as_array_mut);
        if let Some(imports) = imports {
            let count = imports.len();
            imports.retain(|import| !import.as_str().is_some_and(|file| self.goes(file, which)));
            is_changed = imports.len() < count;
            if imports.is_empty() && is_changed {
                document.remove(IMPORTS);
            }
        }
        if let Some(containerd) = self.containerd(&mut document) {
            let name = self.task.name;
            let runtimes = containerd
                .get_mut("runtimes")
                .and_then(Item::as_table_like_mut);
            let ours: Vec<String> = { runtimes.iter() }
                .flat_map(|all| all.iter())
                .filter(|(key, one)| is_ours(one) && (which == Which::All || *key == name))
                .map(|(key, _)| key.to_owned())
                .collect();
            is_changed |= !ours.is_empty();
            if let Some(runtimes) = runtimes {
                ours.iter().for_each(|key| drop(runtimes.remove(key)));
            }
            let default = containerd.get(DEFAULT).and_then(Item::as_str);
            if default.is_some_and(|default| ours.iter().any(|key| key == default)) {
                containerd.remove(DEFAULT);
            }
        }
        Ok(match is_changed {
            true => document.to_string(),
            false => text.to_owned(),
        })
    }

    /// Says whether an import is that of this handler, or of any that migctl made.
    fn goes(&self, import: &str, which: Which) -> bool {
        let is_made = || {
            let text = self.task.read(import.as_ref()).ok().flatten();
            text.is_some_and(|text| text.starts_with(MADE))
        };
        match import == self.import {
            true => !self.keeps_import,
            false => which == Which::All && is_made(),
        }
    }

    fn with(&self, text: &str) -> Result<String> {
        let mut document = Main::parse(text)?;
        let Some([handler, runc]) = &self.tables else {
            return self.with_import(text, document);
        };
        let containerd = self.containerd(&mut document);
        let has_list = containerd.is_some_and(|all| all.get("runtimes").is_some());
        // TOML takes a table at the end of any file, but for one that an inline table has closed.
        let runc = if has_list { "" } else { runc };
        let more = format!("{}\n\n{runc}\n{handler}", text.trim_end());
        let by_hand = |e: Error| e.hint("add the handler by hand");
        let mut document = Main::parse(&more).map_err(by_hand)?;
        if let Some(containerd) = self.containerd(&mut document).filter(|_| self.task.default) {
            containerd.insert(DEFAULT, toml_edit::value(self.task.name));
        }
        Ok(document.to_string())
    }

    fn with_import(&self, text: &str, mut document: DocumentMut) -> Result<String> {
        let drop_in = Path::new(&self.import);
        let imported =
            |pattern: &String| imports::matches(&imports::beside(self.path, pattern), drop_in);
        if table::strings(&table::parse(text)?, IMPORTS)?
            .iter()
            .any(imported)
        {
            return Ok(text.to_owned());
        }
        // A pattern could import other files too.
        match document.get_mut(IMPORTS).and_then(Item::as_array_mut) {
            Some(imports) => imports.push(self.import.as_str()),
            None => {
                let array = toml_edit::Array::from_iter([self.import.as_str()]);
                document.insert(IMPORTS, toml_edit::value(array));
            }
        }
        Ok(document.to_string())
    }

    fn containerd<'d>(
        &self,
        document: &'d mut DocumentMut,
    ) -> Option<&'d mut dyn toml_edit::TableLike> {
        let plugins = document.get_mut("plugins")?.as_table_like_mut()?;
        let cri = plugins.get_mut(self.cri)?.as_table_like_mut()?;
        cri.get_mut("containerd")?.as_table_like_mut()
    }

    /// Refuses an imported file with a table of the CRI plugin: containerd 1 would read no other.
    fn check_imports(&self) -> Result<()> {
        for file in imports::of(self.task, self.path)? {
            let text = self.task.read(&file)?.unwrap_or_default();
            let table = table::parse(&text).context(|| format!("read {}", file.display()))?;
            let is_made = text.starts_with(MADE);
            if !is_made && table::at(&table, &["plugins", self.cri]).is_some() {
                let (path, file) = (self.path.display(), file.display());
                return Err(Error::new(format!(
                    "cannot add the handler to {path}: it imports {file}, and containerd 1 takes the CRI plugin from there alone"
                ))
                .hint(format!("add the handler to that file with --engine-config {file}")));
            }
        }
        Ok(())
    }

    /// Refuses a configuration without the CRI plugin, and one with a foreign handler of this name.
    fn check(&self, effective: &Table, drop_in: &Path) -> Result<()> {
        let disabled = effective.get("disabled_plugins").and_then(Value::as_array);
        let is_cri = |plugin: &Value| plugin.as_str().is_some_and(|p| CRI.contains(&p));
        let (path, name) = (self.path.display(), self.task.name);
        if disabled.is_some_and(|plugins| plugins.iter().any(is_cri)) {
            return Err(Error::new(format!(
                "cannot add a handler: the CRI plugin is in disabled_plugins of {path}"
            ))
            .hint("use migctl configure docker for docker; nerdctl and ctr take --runtime PATH"));
        }
        let Some(theirs) = cri(effective, &["runtimes", name]).and_then(Value::as_table) else {
            return Ok(());
        };
        let program = table::at(theirs, &["options", "BinaryName"]);
        let is_runmig = program
            .and_then(Value::as_str)
            .is_some_and(|p| is_runmig(Path::new(p)));
        if is_runmig || self.task.read(drop_in)?.is_some() {
            return Ok(());
        }
        let program = program.map_or("no BinaryName".to_owned(), |p| format!("BinaryName = {p}"));
        Err(Error::new(format!(
            "cannot add the handler {name}: {path} or one of its imports has one with {program} that migctl configure did not make"
        ))
        .hint("remove that handler, or choose another name with --name"))
    }
}

/// Says whether two files have the same values, and the same imports in any order.
fn same(a: &str, b: &str) -> bool {
    let read = |text| {
        let mut table = table::parse(text).ok()?;
        if let Some(Value::Array(imports)) = table.get_mut(IMPORTS) {
            imports.sort_by_key(Value::to_string);
        }
        Some(table)
    };
    read(a).is_some_and(|a| Some(a) == read(b))
}

/// Says whether a handler calls a runmig.
fn is_ours(handler: &Item) -> bool {
    let options = handler
        .as_table_like()
        .and_then(|all| all.get("options")?.as_table_like());
    let program = options.and_then(|options| options.get("BinaryName")?.as_str());
    program.is_some_and(|program| is_runmig(Path::new(program)))
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
