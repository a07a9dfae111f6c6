//! Finds the engines' files that name a program. While one does, the program has to stay.

use super::file::Change;
use super::{Task, containerd, crio, docker, is_runmig, podman, rancher};
use runmig_lease::error::Result;
use std::path::{Path, PathBuf};

/// Returns why the program has to stay after the changes: a file that names it, or an error that
/// hides such a file.
pub fn reason(task: &Task<'_>, name: &str, changes: &[Change]) -> Option<String> {
    let mut unknown = None;
    let mut is_caller = |file: &PathBuf| match task.after(changes, file) {
        Ok(text) => text.is_some_and(|text| names(&text, name)),
        Err(e) => {
            unknown.get_or_insert(e);
            false
        }
    };
    match files(task).map(|files| files.into_iter().find(|file| is_caller(file))) {
        Ok(Some(file)) => return Some(format!("{} names it", file.display())),
        Ok(None) => {}
        Err(e) => unknown = Some(e),
    }
    let why = unknown?.line();
    Some(format!(
        "migctl cannot tell whether another engine calls it: {why}"
    ))
}

/// Returns the absolute paths in the files that are those of a runmig, each with its file.
pub fn programs(task: &Task<'_>) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut all = Vec::new();
    for file in files(task)? {
        let text = task.read(&file)?.unwrap_or_default();
        let lines = { text.lines() }.filter(|line| !line.trim_start().starts_with('#'));
        let programs = lines.flat_map(values).map(Path::new);
        let programs = programs.filter(|word| word.is_absolute() && is_runmig(word));
        all.extend(programs.map(|program| (file.clone(), program.to_owned())));
    }
    Ok(all)
}

/// Returns the words of a line between quotes, without those of a key that ends in `root`, which name folders.
fn values(line: &str) -> impl Iterator<Item = &str> {
    let mut key = "";
    line.split(['"', '\'']).filter(move |word| {
        let is_folder = key.to_ascii_lowercase().ends_with("root");
        let next = word.trim_matches([' ', '=', ':']);
        key = if next.is_empty() { key } else { next };
        !is_folder
    })
}

/// Returns the files in which engines look for runtimes: the default ones, and those of this run.
fn files(task: &Task<'_>) -> Result<Vec<PathBuf>> {
    let mut files = containerd::imported(task, &[], containerd::CONFIG.as_ref())?;
    let mains = [crio::CONFIG, docker::CONFIG].into_iter();
    files.extend(mains.chain(podman::CONFIGS).map(PathBuf::from));
    let dirs = [containerd::DROP_INS, crio::DROP_INS].into_iter();
    let dirs = dirs.chain(podman::DROP_INS).map(PathBuf::from);
    for dir in dirs.chain(rancher::drop_ins()) {
        files.extend(task.below(&dir)?);
    }
    let told = [task.engine_config, task.drop_in].into_iter().flatten();
    files.extend(told.map(Path::to_owned));
    Ok(files)
}

/// Returns whether the text has the name as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(goes_on) && !text[at + name.len()..].starts_with(goes_on)
    })
}
