//! docker: a runtime in daemon.json. docker reads this one file, which has no comments.

use super::engine::Found;
use super::{Plan, Task, json_text};
use runmig_lease::error::{Context, Error, Result};
use serde_json::Value;
use std::path::Path;

pub const CONFIG: &str = "/etc/docker/daemon.json";
const DEFAULT: &str = "default-runtime";
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
    let path = task.engine_config.unwrap_or(CONFIG.as_ref());
    let change = task.change(path, |before| {
        after(task, before).context(|| format!("change {}", path.display()))
    })?;
    let too_old = engine.version.is_some() && !engine.at_least(ANNOTATIONS);
    let note = format!(
        "{}: its containers cannot have annotations, so they cannot request a slice; docker {ANNOTATIONS} \
         and later have `run --annotation`",
        engine.name
    );
    Ok(Plan {
        changes: vec![change],
        engine: engine.name,
        restart: Some("systemctl restart docker"),
        notes: if too_old && !task.remove {
            vec![note]
        } else {
            Vec::new()
        },
    })
}

fn after(task: &Task<'_>, before: Option<&str>) -> Result<Option<String>> {
    let root = says(before).map_err(|e| e.hint("correct the file; migctl changed nothing"))?;
    let runtimes = root.get("runtimes");
    if !root.is_object() || runtimes.is_some_and(|r| !r.is_object()) {
        return Err(Error::new(
            "the file or its \"runtimes\" is not a JSON object",
        ));
    }
    let there = runtimes.and_then(|r| r.get(task.name));
    let same = there.and_then(path_of) == Some(task.runtime.as_path());
    // Replacing it would lose its other members.
    let says_more = there
        .and_then(Value::as_object)
        .is_some_and(|t| t.len() > 1);
    let in_the_way = says_more && !same && !task.remove;
    if let Some(theirs) = there.filter(|there| !is_runmig(there) || in_the_way) {
        if task.remove {
            return Ok(before.map(str::to_owned));
        }
        return Err(Error::new(format!("its runtime {} is {theirs}", task.name))
            .hint("choose another name with --name"));
    }
    let default = root.get(DEFAULT).and_then(Value::as_str);
    if let Some(other) = default.filter(|name| task.default && ![task.name, "runc"].contains(name))
    {
        return Err(Error::new(format!("its {DEFAULT} is {other}"))
            .hint("remove that member, or omit --set-as-default"));
    }
    let mut after = before.map(str::to_owned);
    let new_default = task.default != (default == Some(task.name));
    if new_default && root.get(DEFAULT).is_some() {
        let without = |text: String| json_text::without_member(&text, &[], DEFAULT);
        after = after.map(without).transpose()?;
    }
    if let (Some(there), Some(text)) = (there.filter(|_| !same || task.remove), &after) {
        after = without(task, text, path_of(there))?;
    }
    if !same && !task.remove {
        after = Some(with(task, after.as_deref())?);
    }
    if new_default && task.default {
        let value = Value::from(task.name).to_string();
        let with = |text: String| json_text::with_member(&text, &[], DEFAULT, &value);
        after = after.map(with).transpose()?;
    }
    if after.as_deref() != before {
        let after = says(after.as_deref()).context(|| "read the result")?;
        check(&root, &after, task)?;
    }
    Ok(after)
}

/// Parses daemon.json. docker reads a blank file as one without settings.
fn says(text: Option<&str>) -> Result<Value> {
    let text = text.filter(|t| !t.trim().is_empty()).unwrap_or("{}");
    serde_json::from_str(text).map_err(|e| Error::new(e.to_string()))
}

/// Adds the runtime. The text has none; it may be blank or missing.
fn with(task: &Task<'_>, text: Option<&str>) -> Result<String> {
    match text {
        None => Ok(alone(task, &task.runtime)),
        Some(blank) if blank.trim().is_empty() => {
            let made = alone(task, &task.runtime);
            Ok(format!("{blank}{}", made.trim_end()))
        }
        Some(text) => {
            let path = quoted(&task.runtime);
            json_text::with_member(text, &["runtimes", task.name], "path", &path)
        }
    }
}

/// Undoes `with`, which wrote this path.
fn without(task: &Task<'_>, text: &str, path: Option<&Path>) -> Result<Option<String>> {
    let made = path.map(|path| alone(task, path)).unwrap_or_default();
    if text == made {
        return Ok(None);
    }
    if text.trim() == made.trim() {
        return Ok(Some(text.replace(made.trim(), "")));
    }
    json_text::without_member(text, &["runtimes"], task.name).map(Some)
}

/// Returns a file with the runtime and nothing else.
fn alone(task: &Task<'_>, path: &Path) -> String {
    json_text::alone(&["runtimes", task.name], "path", &quoted(path))
}

fn quoted(path: &Path) -> String {
    Value::from(path.display().to_string()).to_string()
}

fn path_of(runtime: &Value) -> Option<&Path> {
    runtime.get("path").and_then(Value::as_str).map(Path::new)
}

fn is_runmig(runtime: &Value) -> bool {
    let name = path_of(runtime)
        .and_then(Path::file_name)
        .and_then(|n| n.to_str());
    name.is_some_and(|n| n == "runmig" || n.starts_with("runmig-"))
}

/// Checks that the new text has the wanted runtime and default, and that all other values are the same.
fn check(before: &Value, after: &Value, task: &Task<'_>) -> Result<()> {
    let rest = |root: &Value| {
        let mut root = root.clone();
        let runtimes = root.get_mut("runtimes").and_then(Value::as_object_mut);
        let empty = runtimes.is_some_and(|runtimes| {
            runtimes.remove(task.name);
            runtimes.is_empty()
        });
        if let Some(root) = root.as_object_mut() {
            root.remove(DEFAULT);
            if empty {
                root.remove("runtimes");
            }
        }
        root
    };
    let there = after.get("runtimes").and_then(|r| r.get(task.name));
    let path = there.and_then(path_of);
    let default = after.get(DEFAULT).and_then(Value::as_str) == Some(task.name);
    let as_wanted =
        default == task.default && path == (!task.remove).then_some(task.runtime.as_path());
    if as_wanted && rest(before) == rest(after) {
        return Ok(());
    }
    Err(Error::new("the runtime cannot be changed alone").hint("add the runtime by hand"))
}
