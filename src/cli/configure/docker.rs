//! docker: a runtime in daemon.json, which is one file and has no comments.

use super::engine::Found;
use super::{Plan, Task, json};
use crate::error::{Context, Error, Result};
use serde_json::Value;
use std::path::Path;

const CONFIG: &str = "/etc/docker/daemon.json";
const DEFAULT: &str = "default-runtime";
/// The first docker whose containers can have annotations.
const ANNOTATIONS: u32 = 24;

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let engine = Found::of(task, "docker", "dockerd")?;
    if task.drop_in.is_some() {
        return Err(Error::new("docker reads one file and no drop-ins")
            .hint("--engine-config names another daemon.json"));
    }
    let path = task.engine_config.unwrap_or(CONFIG.as_ref());
    let change = task.change(path, |before| {
        after(task, before).context(|| format!("change {}", path.display()))
    })?;
    let too_old = engine.version.is_some() && !engine.at_least(ANNOTATIONS);
    let note = format!(
        "{}: its containers can have no annotations and so ask for nothing; docker {ANNOTATIONS} \
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
    let empty = before.is_none_or(|text| text.trim().is_empty());
    let text = if empty {
        "{}\n"
    } else {
        before.unwrap_or_default()
    };
    let root: Value = serde_json::from_str(text)
        .map_err(|e| Error::new(e.to_string()).hint("nothing was changed"))?;
    let runtimes = root.get("runtimes");
    if !root.is_object() || runtimes.is_some_and(|r| !r.is_object()) {
        return Err(Error::new("it, or its \"runtimes\", is no object"));
    }
    let there = runtimes.and_then(|r| r.get(task.name));
    let same = there.and_then(path_of) == Some(task.runtime.as_path());
    // To put ours in its place would take what else it says.
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
        return Err(Error::new(format!("its {DEFAULT} is {other} already"))
            .hint("take that out, or leave --set-as-default away"));
    }
    let mut after = text.to_owned();
    if !same || task.remove {
        after = json::without_member(&after, &["runtimes"], task.name);
    }
    if !same && !task.remove {
        let path = Value::from(task.runtime.display().to_string());
        let at = ["runtimes", task.name];
        after = json::with_member(&after, &at, "path", &path.to_string());
    }
    if task.default != (default == Some(task.name)) {
        after = json::without_member(&after, &[], DEFAULT);
        if task.default {
            after = json::with_member(&after, &[], DEFAULT, &Value::from(task.name).to_string());
        }
    }
    if after == text {
        return Ok(before.map(str::to_owned));
    }
    check(&root, &after, task)?;
    // What holds nothing is what we once made.
    let nothing = task.remove && after.trim() == "{}";
    Ok((!nothing).then_some(after))
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

/// The new text says what it is to say, and nothing else: it was made without understanding it.
fn check(before: &Value, after: &str, task: &Task<'_>) -> Result<()> {
    let parsed: Value = serde_json::from_str(after).context(|| "read the result")?;
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
    let there = parsed.get("runtimes").and_then(|r| r.get(task.name));
    let path = there.and_then(path_of);
    let default = parsed.get(DEFAULT).and_then(Value::as_str) == Some(task.name);
    let as_wanted =
        default == task.default && path == (!task.remove).then_some(task.runtime.as_path());
    if as_wanted && rest(before) == rest(&parsed) {
        return Ok(());
    }
    Err(Error::new("it cannot be changed without changing more").hint("add the runtime by hand"))
}
