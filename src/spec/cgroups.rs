//! How the cgroup of a container that is not there yet will be called.

use super::document::Document;
use crate::error::Result;

/// Path components, one of which the container's cgroup will have: the last of a cgroupfs path, the
/// scope of a systemd triple, or what low-level runtimes make of the id when nothing is said.
pub fn cgroup_names(bytes: &[u8], id: &str) -> Result<Vec<String>> {
    let document = Document::parse(bytes)?;
    let given = document
        .root
        .get("linux")
        .and_then(|linux| linux.get("cgroupsPath"))
        .and_then(|path| path.as_str())
        .unwrap_or_default();
    Ok(names(given, id))
}

fn names(path: &str, id: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split(':').collect();
    if let [_, prefix, name] = parts[..] {
        return vec![if prefix.is_empty() {
            format!("{name}.scope")
        } else {
            format!("{prefix}-{name}.scope")
        }];
    }
    match path.rsplit('/').find(|part| !part.is_empty()) {
        Some(last) => vec![last.to_owned()],
        // With an empty name every process there is would be the container's.
        None if id.is_empty() => Vec::new(),
        None => vec![
            id.to_owned(),
            format!("crun-{id}.scope"),
            format!("runc-{id}.scope"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_gives_the_name_of_the_cgroup() {
        assert_eq!(names("/kubepods/besteffort/pod1/abc", "x"), ["abc"]);
        assert_eq!(
            names("kubepods-pod1.slice:cri-containerd:abc", "x"),
            ["cri-containerd-abc.scope"]
        );
        assert_eq!(names("system.slice::abc", "x"), ["abc.scope"]);
        assert_eq!(names("", "x"), ["x", "crun-x.scope", "runc-x.scope"]);
        assert_eq!(names("", ""), [""; 0]);
        assert_eq!(names("/", "x"), ["x", "crun-x.scope", "runc-x.scope"]);
    }
}
