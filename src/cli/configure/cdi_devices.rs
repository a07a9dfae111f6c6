//! The CDI files by whose devices containers ask: `--device runmig.dev/slice=1g.10gb`.
//!
//! One name that CDI does not know, or a later version, makes a whole file unusable for some engine.

use super::{MADE, Plan, Task};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::model::known_profiles;
use runmig_lease::programs::{FRONT, REQUEST, REQUEST_FILE};
use runmig_lease::request::{DEVICE_KINDS, device_name};
use runmig_lease::trust;
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const DIR: &str = "/etc/cdi";
/// The slices of a GPU.
const SLICES: u32 = 7;
/// The most GPUs that a machine has, as `gpus_per_container` allows them.
const GPUS: u32 = 16;
/// Parts of a GPU up to which every fraction has a device, and those beyond with one part alone.
const PARTS: [u32; 2] = [8, 16];
const WAITS: [&str; 8] = ["10s", "30s", "1m", "2m", "5m", "10m", "30m", "1h"];

pub fn plan(task: &Task<'_>) -> Result<Plan> {
    let others = [task.engine_config, task.drop_in, task.executable];
    if task.default || task.name != FRONT || others.iter().any(Option::is_some) {
        return Err(Error::new(
            "cannot use these options for CDI files, which belong to no engine",
        )
        .hint("give --dry-run, --remove, --root or --runtime-path alone"));
    }
    let hook = task.runtime.with_file_name(REQUEST_FILE);
    let hook = match task.remove {
        true => hook,
        false => installed(task, &hook)?,
    };
    let changes = DEVICE_KINDS.map(|kind| {
        let name = kind.rsplit('/').next().unwrap_or(kind);
        let file = PathBuf::from(format!("{DIR}/runmig-{name}.yaml"));
        let text = (!task.remove).then(|| specification(kind, name, &hook));
        task.own_file(&file, text)
    });
    let changes: Result<Vec<_>> = changes.into_iter().collect();
    let changes = changes.map_err(|e| e.hint("move that file or folder away"));
    Ok(Plan::new("CDI files".to_owned(), changes?, None))
}

/// Returns the path of the hook without links: a create believes no other.
fn installed(task: &Task<'_>, hook: &Path) -> Result<PathBuf> {
    let (found, _) = trust::program(&task.on_disk(hook))
        .context(|| format!("let engines call {} as root", hook.display()))
        .map_err(|e| e.hint("install runmig with scripts/install or a package"))?;
    let inside = found.strip_prefix(task.root).unwrap_or(&found);
    Ok(Path::new("/").join(inside))
}

/// Returns the file of one kind, a line for each device.
fn specification(kind: &str, name: &str, hook: &Path) -> String {
    let mut text = format!("{MADE}cdiVersion: \"0.5.0\"\nkind: {kind}\ndevices:\n");
    let mut device = |device: String, value: &str| {
        let hook = json!({
            "hookName": "createRuntime",
            "path": hook,
            "args": [REQUEST, format!("{name}={value}")],
        });
        let line = json!({"name": device, "containerEdits": {"hooks": [hook]}});
        let _ = writeln!(text, "- {line}");
    };
    for value in values(name) {
        device(device_name(&value), &value);
        // As kind:of, for users of engines that take it; compose cuts a name at the colon.
        if value.contains('/') {
            device(value.replace('/', ":"), &value);
        }
    }
    text
}

/// Returns the values for which a kind has devices, as annotations have them.
fn values(kind: &str) -> Vec<String> {
    let profiles = known_profiles();
    let largest = profiles.iter().map(|profile| profile.gigabytes).max();
    let amounts = (1..=largest.unwrap_or(0)).map(|gib| format!("{gib}Gi"));
    match kind {
        "slice" => {
            let several = profiles.iter().flat_map(|profile| {
                let most = SLICES / profile.gpu_slices.max(1);
                (2..=most).map(move |count| format!("{profile}*{count}"))
            });
            let names = profiles.iter().map(ToString::to_string);
            names.chain(several).chain(amounts).collect()
        }
        "share" => {
            let [all, few] = PARTS;
            let several = (2..=all).flat_map(|of| (1..of).map(move |part| format!("{part}/{of}")));
            let single = (all + 1..=few).map(|of| format!("1/{of}"));
            several.chain(single).chain(amounts).collect()
        }
        "gpu" => (1..=GPUS).map(|count| count.to_string()).collect(),
        _ => WAITS.map(str::to_owned).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runmig_lease::request::{device_request, parse};
    use std::collections::BTreeSet;

    /// The names that every engine takes: see the grammar of CDI devices in version 0.5.0.
    #[test]
    fn devices_have_plain_names_and_readable_values() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
        let mut all = 0;
        for kind in DEVICE_KINDS {
            let name = kind.rsplit('/').next().unwrap();
            let text = specification(kind, name, Path::new("/usr/bin/x"));
            let mut names = BTreeSet::new();
            for line in text.lines().filter_map(|line| line.strip_prefix("- ")) {
                let device: serde_json::Value = serde_json::from_str(line).unwrap();
                let name = device["name"].as_str().unwrap();
                let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
                assert!(name.chars().all(plain), "{name}");
                assert!(
                    edge(name.chars().next()) && edge(name.chars().last()),
                    "{name}"
                );
                assert!(names.insert(name.to_owned()), "{name} twice");
                let argument = device["containerEdits"]["hooks"][0]["args"][1]
                    .as_str()
                    .unwrap();
                let asked = device_request(argument).expect(argument);
                let mut pairs = vec![(asked.key.to_owned(), asked.value)];
                if name.ends_with(['s', 'm', 'h']) && kind.ends_with("wait") {
                    pairs.push(("runmig.dev/slice".to_owned(), "1g.10gb".to_owned()));
                }
                assert!(parse(&pairs).unwrap().is_some(), "{argument}");
                all += 1;
            }
            assert!(names.len() >= 8, "{kind}");
        }
        assert!(all > 300, "{all}");
    }
}
