//! containerd: a handler in its CRI plugin, which Kubernetes and crictl use. (`ctr` and nerdctl name a runtime by its
//! path and need no handler.)
//!
//! Version 2 merges the tables of imported files, so runmig writes a drop-in, and an import where none has it. Version 1 takes
//! the whole table of a plugin from the last file that has one. A drop-in would undo every other setting of the CRI plugin, so
//! the handler goes into the main file. If that lists no runtimes, runmig adds runc too: a list hides containerd's own handler.

use super::effective::{Layers, Says};
use super::engine::Found;
use super::file::Change;
use super::rewrite::{Rewrite, Which};
use super::{MADE, Plan, Task, is_runmig, rancher, table};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths;
use runmig_lease::paths::clean;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use toml_edit::{DocumentMut, Item, RawString, TableLike};

const SHIPPED_V2: &str = include_str!("../../../containerd-config/runmig-v2.toml");
const SHIPPED_V3: &str = include_str!("../../../containerd-config/runmig.toml");
pub const CONFIG: &str = "/etc/containerd/config.toml";
pub const DROP_INS: &str = "/etc/containerd/conf.d";

/// The name of the CRI plugin, by the version of the file. Version 4 has that of version 3.
const CRI: [&str; 3] = [
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
];
const DEFAULT: &str = "default_runtime_name";
const IMPORTS: &str = "imports";
const TYPE: &str = "runtime_type";
const RUNC_TYPE: &str = "io.containerd.runc.v2";
/// The newest version of a file that migctl knows.
const NEWEST: i64 = 4;
pub const SAYS: Says = Says {
    key: DEFAULT,
    default: |table| cri(table, &[DEFAULT])?.as_str(),
    program: |table, name| {
        let program = program_of(runtime(table, name)?).and_then(Value::as_str);
        Some(program.unwrap_or_default())
    },
};

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let usual = || rancher::main(task.root).unwrap_or(CONFIG.into());
    let path = &task.engine_config.map_or_else(usual, Path::to_owned);
    if let Some(rancher) = rancher::Rancher::of(path) {
        return rancher.plan(task);
    }
    let engine = Found::of(task, "containerd", "containerd")?;
    let unknown = "cannot configure containerd: it does not print its version";
    let release = engine.version.ok_or_else(|| Error::new(unknown))?;
    let drop_in = task.drop_in_or(format!("{DROP_INS}/{}.toml", task.name));
    let before = task.read(path)?;
    let version = version(before.as_deref(), &engine, release);
    let version = version.context(|| format!("read {}", path.display()))?;
    let there = task.read(&drop_in)?;
    let is_theirs = there.is_some_and(|text| !text.starts_with(MADE));
    let mut main = Main {
        task,
        cri: cri_of(version),
        path,
        import: drop_in.display().to_string(),
        keeps_import: is_theirs,
        tables: None,
    };
    let is_one = release.0 == 1;
    let empty = format!("{MADE}version = {version}\n");
    let mut text = None;
    if !task.remove {
        let beneath = default_without(task, path, &drop_in);
        let file = task.on_disk(path).display().to_string();
        let effective = match before {
            Some(_) => engine.effective(&["--config", &file, "config", "dump"])?,
            None => engine.effective(&["config", "default"])?,
        };
        main.check(&effective, &drop_in)?;
        if is_one {
            main.check_imports()?;
            let handler = handler(task, &effective, version, beneath);
            main.tables = Some([handler, runc(main.cri, &effective)]);
        } else {
            text = Some(drop_in_text(task, &effective, version, beneath));
        }
    }
    // A drop-in for containerd 2 goes with the handler, and where that moves into the main file.
    let drop_in = task.own_file(&drop_in, text)?;
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
    if task.remove || is_one {
        changes.reverse();
    }
    changes.retain(|change| change.before.is_some() || change.after.is_some());
    let files = imported(task, &changes, path);
    let plan = Plan::new(engine.name, changes, Some("systemctl restart containerd"));
    Ok(plan.read_back(task, files, &SAYS))
}

/// Returns the default handler that the files name without runmig's drop-in.
fn default_without(task: &Task<'_>, main: &Path, ours: &Path) -> Option<String> {
    let files = imported(task, &[], main).ok()?.into_iter();
    let layers = Layers::of(task, &[], files.filter(|file| file != ours)).ok()?;
    let (_, name) = layers.last(SAYS.default)?;
    (name != task.name).then(|| name.to_owned())
}

pub fn drop_in_text(
    task: &Task<'_>,
    effective: &Table,
    version: usize,
    beneath: Option<String>,
) -> String {
    let (cri, name) = (cri_of(version), task.name);
    let default = || format!("\n[plugins.'{cri}'.containerd]\n{DEFAULT} = \"{name}\"\n");
    let default = task.default.then(default).unwrap_or_default();
    let handler = handler(task, effective, version, beneath);
    format!("{MADE}version = {version}\n\n{handler}{default}")
}

fn cri_of(version: usize) -> &'static str {
    CRI[version.min(CRI.len()) - 1]
}

/// Returns the version of the main file.
pub fn version(text: Option<&str>, engine: &Found, release: (u32, u32)) -> Result<usize> {
    let newest = match release {
        (..2, _) => 2,
        (2, ..3) => 3,
        _ => NEWEST,
    };
    let told = text.map(told_version).transpose()?.unwrap_or(newest);
    let (name, program) = (&engine.name, engine.program.display());
    if told > NEWEST {
        return Err(Error::new(format!(
            "migctl does not know version = {told} of containerd's files, only those up to {NEWEST}"
        ))
        .hint("use a newer migctl"));
    }
    if told == 1 && release.0 > 1 {
        return Err(Error::new(format!(
            "it has no version, so {name} reads it as version 1 and ignores its plugins"
        ))
        .hint(format!(
            "update the file: {program} config migrate prints the new text; or name the containerd that reads it with --executable"
        )));
    }
    match usize::try_from(told) {
        Ok(version @ 1..) if told <= newest => Ok(version),
        _ => Err(
            Error::new(format!("{name} ({program}) does not read version = {told}"))
                .hint("name the containerd that reads this file with --executable"),
        ),
    }
}

/// Returns the version that a main file names.
fn told_version(text: &str) -> Result<i64> {
    let table =
        table::parse(text).map_err(|e| e.hint("correct the file; migctl changed nothing"))?;
    let wrong = |version: &Value| {
        Error::new(format!("version = {version} is not a whole number"))
            .hint("write the number alone, as in version = 2")
    };
    let version = table.get("version");
    version.map_or(Ok(1), |it| it.as_integer().ok_or_else(|| wrong(it)))
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
        if let Some(imports) = document.get_mut(IMPORTS).and_then(Item::as_array_mut) {
            let count = imports.len();
            imports.retain(|import| !import.as_str().is_some_and(|file| self.goes(file, which)));
            is_changed = imports.len() < count;
            let is_over = is_changed && imports.is_empty();
            if is_over && !has_comment(document.as_table(), IMPORTS) {
                document.remove(IMPORTS);
            }
        }
        if let Some(containerd) = self.containerd(&mut document) {
            let name = self.task.name;
            let runtimes = containerd.get_mut("runtimes");
            let runtimes = runtimes.and_then(Item::as_table_like_mut);
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
                match has_comment(containerd, DEFAULT) {
                    true => set(containerd, DEFAULT, "runc"),
                    false => drop(containerd.remove(DEFAULT)),
                }
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
        // A comment at the end would go with the table below it.
        let end = document.trailing().as_str().unwrap_or_default();
        let (text, end) = { text.strip_suffix(end) }.map_or((text, ""), |text| (text, end));
        let more = format!("{}\n\n{runc}\n{handler}{end}", text.trim_end());
        // Its line is one of a text that nobody sees.
        let by_hand = |e: toml_edit::TomlError| {
            Error::new(e.message().trim_end()).hint("add the handler by hand")
        };
        let mut document: DocumentMut = more.parse().map_err(by_hand)?;
        if let Some(containerd) = self.containerd(&mut document).filter(|_| self.task.default) {
            let other = containerd.get(DEFAULT).and_then(Item::as_str);
            if let Some(other) = other.filter(|name| !["", "runc", self.task.name].contains(name)) {
                return Err(Error::new(format!("its {DEFAULT} is {other}"))
                    .hint("remove that line, or omit --set-as-default"));
            }
            set(containerd, DEFAULT, self.task.name);
        }
        Ok(document.to_string())
    }

    fn with_import(&self, text: &str, mut document: DocumentMut) -> Result<String> {
        let drop_in = Path::new(&self.import);
        let imported = |pattern: &String| import_matches(&beside(self.path, pattern), drop_in);
        let imports = table::strings(&table::parse(text)?, IMPORTS)?;
        if imports.iter().any(imported) {
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

    fn containerd<'d>(&self, document: &'d mut DocumentMut) -> Option<&'d mut dyn TableLike> {
        let plugins = document.get_mut("plugins")?.as_table_like_mut()?;
        let cri = plugins.get_mut(self.cri)?.as_table_like_mut()?;
        cri.get_mut("containerd")?.as_table_like_mut()
    }

    /// Refuses an imported file with a table of the CRI plugin: containerd 1 would read no other.
    fn check_imports(&self) -> Result<()> {
        for file in imported(self.task, &[], self.path)?.into_iter().skip(1) {
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
        let Some(theirs) = runtime(effective, name) else {
            return Ok(());
        };
        let program = program_of(theirs);
        let its = program.and_then(Value::as_str).map(Path::new);
        if its.is_some_and(is_runmig) || self.task.read(drop_in)?.is_some() {
            return Ok(());
        }
        let program = program.map_or("no BinaryName".to_owned(), |p| format!("BinaryName = {p}"));
        Err(Error::new(format!(
            "cannot add the handler {name}: {path} or one of its imports has one with {program} that migctl configure did not make"
        ))
        .hint("remove that handler, or choose another name with --name"))
    }
}

/// Sets a value, and keeps the comments around an earlier one.
fn set(table: &mut dyn TableLike, key: &str, text: &str) {
    let item = table.entry(key).or_insert(toml_edit::value(text));
    if let Some(value) = item.as_value_mut() {
        let decor = value.decor().clone();
        *value = text.into();
        *value.decor_mut() = decor;
    }
}

/// Says whether a comment would go with a key.
fn has_comment(table: &dyn TableLike, key: &str) -> bool {
    let above = table.key(key).and_then(|key| key.leaf_decor().prefix());
    let beside = { table.get(key) }.and_then(|item| item.as_value()?.decor().suffix());
    let mut texts = { [above, beside].into_iter().flatten() }.filter_map(RawString::as_str);
    texts.any(|text| text.contains('#'))
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
    let options = || handler.as_table_like()?.get("options")?.as_table_like();
    let program = || options()?.get("BinaryName")?.as_str();
    program().is_some_and(|program| is_runmig(Path::new(program)))
}

fn cri<'a>(effective: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    CRI.iter().rev().find_map(|cri| {
        let keys = [&["plugins", cri, "containerd"], keys].concat();
        table::at(effective, &keys)
    })
}

/// Returns the settings of a handler.
fn runtime<'a>(effective: &'a Table, name: &str) -> Option<&'a Table> {
    cri(effective, &["runtimes", name])?.as_table()
}

fn program_of(runtime: &Table) -> Option<&Value> {
    table::at(runtime, &["options", "BinaryName"])
}

/// Returns the table of containerd's own handler, which a list would hide. containerd 1.7 has a `sandbox_mode` there,
/// which its handler without these lines would lose, and runmig's with it at the next call.
fn runc(cri: &str, effective: &Table) -> String {
    let lines = table::settings(runtime(effective, "runc"), |key| key != TYPE);
    let head = format!("[plugins.'{cri}'.containerd.runtimes.runc]\n{TYPE} = \"{RUNC_TYPE}\"");
    format!("{head}\n{lines}")
}

/// Returns the tables of the shipped file for this handler and machine. `beneath`: the default handler without runmig's.
fn handler(task: &Task<'_>, effective: &Table, version: usize, beneath: Option<String>) -> String {
    let shipped = if version > 2 { SHIPPED_V3 } else { SHIPPED_V2 };
    let tables = shipped.find("\n[").map_or(shipped, |at| &shipped[at + 1..]);
    let text = tables
        .replace("runtimes.runmig", &format!("runtimes.{}", task.name))
        .replace("/usr/local/bin/runmig", &task.runtime.display().to_string());
    let text = if version > 1 {
        text
    } else {
        text.replace(CRI[1], CRI[0])
    };
    let named = cri(effective, &[DEFAULT]).and_then(Value::as_str);
    // runmig's handler copied the settings of the one before.
    let others = named.filter(|name| *name != task.name);
    let named = others.or(beneath.as_deref());
    let default = runtime(effective, named.unwrap_or("runc"))
        .filter(|t| t.get(TYPE).and_then(Value::as_str) == Some(RUNC_TYPE));
    let own = [
        "runtime_",
        "pod_annotations",
        "container_annotations",
        "sandboxer",
    ];
    let of_handler = table::settings(default, |key| !own.iter().any(|o| key.starts_with(o)));
    let options = default.and_then(|t| t.get("options")?.as_table());
    let of_options = table::settings(options, |key| key != "BinaryName");
    match text.rsplit_once("\n\n[") {
        Some((handler, options)) => format!("{handler}\n{of_handler}\n[{options}{of_options}"),
        None => text,
    }
}

/// Returns containerd's main file and all that it and its imports import, in the order in which containerd reads them after
/// the changes. Each file counts once.
pub fn imported(task: &Task<'_>, changes: &[Change], main: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut pending = VecDeque::from([main.to_owned()]);
    while let Some(file) = pending.pop_front() {
        if found.contains(&file) {
            continue;
        }
        let text = task.after(changes, &file)?.unwrap_or_default();
        let patterns = table::parse(&text).and_then(|table| table::strings(&table, "imports"));
        for pattern in patterns.context(|| format!("read {}", file.display()))? {
            let pattern = beside(&file, &pattern);
            if !is_import_understood(&pattern) {
                return Err(Error::new(format!(
                    "cannot follow the imports of {}: migctl does not know the pattern {}",
                    file.display(),
                    pattern.display()
                )));
            }
            pending.extend(matching(task, changes, &pattern));
        }
        found.push(file);
    }
    Ok(found)
}

/// Returns the path of an import, which may be relative to the file.
pub fn beside(file: &Path, pattern: &str) -> PathBuf {
    clean(file.parent().unwrap_or(Path::new("/")).join(pattern))
}

/// Returns the files that match a pattern, sorted.
fn matching(task: &Task<'_>, changes: &[Change], pattern: &Path) -> BTreeSet<PathBuf> {
    let dir = pattern.parent().unwrap_or(Path::new("/"));
    let entries = paths::entries(&task.on_disk(dir));
    let paths = entries.filter_map(|entry| Some(dir.join(entry.file_name()?)));
    let paths = paths.chain(changes.iter().map(|change| change.path.clone()));
    paths.filter(|path| import_matches(pattern, path)).collect()
}

/// Returns whether a path matches a pattern of Go's Match with at most one `*` in the file's name. Other patterns
/// match nothing: containerd reads a file that is imported twice once.
pub fn import_matches(pattern: &Path, path: &Path) -> bool {
    let (Some(pattern_name), Some(name)) = (pattern.file_name(), path.file_name()) else {
        return false;
    };
    let (pattern_name, name) = (pattern_name.to_string_lossy(), name.to_string_lossy());
    pattern.parent() == path.parent()
        && match pattern_name.split_once('*') {
            None => pattern_name == name,
            Some((head, tail)) => {
                !tail.contains('*')
                    && name.len() >= head.len() + tail.len()
                    && name.starts_with(head)
                    && name.ends_with(tail)
            }
        }
}

/// Returns whether `import_matches` finds all that Go's Match would find.
fn is_import_understood(pattern: &Path) -> bool {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let dir = pattern.parent().unwrap_or(Path::new("/")).to_string_lossy();
    name.matches('*').count() <= 1
        && !name.contains(['?', '[', '\\'])
        && !dir.contains(['*', '?', '[', '\\'])
}
