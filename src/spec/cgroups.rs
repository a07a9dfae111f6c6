//! Predicts the cgroup of a container that does not exist yet.

use super::document::Document;
use runmig_lease::model::Cgroup;
use runmig_lease::process::OwnCgroup;

/// The way in which the low-level runtime manages cgroups.
#[derive(Clone, Debug)]
pub struct CgroupManager {
    pub is_crun: bool,
    /// The low-level runtime uses systemd's scopes instead of the file system.
    pub is_systemd: bool,
    /// The caller's own cgroup. runc makes relative paths below it.
    pub own: Option<OwnCgroup>,
}

/// Returns the cgroup that the low-level runtime will make for a container.
pub fn cgroup(document: &Document, id: &str, manager: &CgroupManager) -> Cgroup {
    let given = document.text(&["linux", "cgroupsPath"]);
    Cgroup {
        names: names(given.unwrap_or_default(), id),
        path: path(given, id, manager),
    }
}

fn names(path: &str, id: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split(':').collect();
    if let [_, prefix, name] = parts[..] {
        return vec![format!("{prefix}-{name}.scope")];
    }
    match path.rsplit('/').find(|part| !part.is_empty()) {
        Some(last) => vec![last.to_owned()],
        // An empty name would match every process on the machine.
        None if id.is_empty() => Vec::new(),
        None => vec![
            id.to_owned(),
            format!("crun-{id}.scope"),
            format!("runc-{id}.scope"),
        ],
    }
}

fn path(given: Option<&str>, id: &str, manager: &CgroupManager) -> Option<String> {
    if id.is_empty() {
        return None;
    }
    match (manager.is_systemd, manager.is_crun) {
        (true, is_crun) => scope(given.unwrap_or_default(), id, is_crun),
        (false, true) => match given {
            Some("") => None,
            given => Some(clean(given.unwrap_or(id))),
        },
        (false, false) => match given.unwrap_or_default() {
            "" => below(manager.own.as_ref()?, id),
            absolute if absolute.starts_with('/') => Some(clean(absolute)),
            relative => below(manager.own.as_ref()?, relative),
        },
    }
}

/// Returns a relative path as runc takes it: below its own cgroup, and on cgroup v2 beside it.
fn below(own: &OwnCgroup, relative: &str) -> Option<String> {
    let parent = match own {
        OwnCgroup::V1(own) => own,
        OwnCgroup::V2(own) => own.rsplit_once('/')?.0,
    };
    Some(clean(&format!("{parent}{}", clean(relative))))
}

fn clean(path: &str) -> String {
    runmig_lease::paths::clean(path).display().to_string()
}

/// Returns the path of a systemd scope, given as `slice:prefix:name`.
fn scope(given: &str, id: &str, is_crun: bool) -> Option<String> {
    let (slice, unit) = match (given, is_crun) {
        ("", true) => ("", format!("crun-{id}.scope")),
        ("", false) => ("", format!("runc-{id}.scope")),
        (given, true) => {
            let (slice, rest) = given.split_once(':')?;
            (slice, format!("{}.scope", rest.replacen(':', "-", 1)))
        }
        (given, false) => {
            let parts: Vec<&str> = given.split(':').collect();
            let [slice, prefix, name] = parts[..] else {
                return None;
            };
            match name.ends_with(".slice") {
                true => (slice, name.to_owned()),
                false => (slice, format!("{prefix}-{name}.scope")),
            }
        }
    };
    let is_unit = !unit.contains('/');
    is_unit.then(|| Some(format!("{}/{unit}", slice_path(slice)?)))?
}

/// Returns the path of a slice unit: `a-b.slice` lies in `a.slice`. Without a name it is systemd's default
/// for scopes.
fn slice_path(slice: &str) -> Option<String> {
    let name = match slice {
        "" => "system",
        "-.slice" => return Some(String::new()),
        slice => slice.strip_suffix(".slice")?,
    };
    let mut path = String::new();
    let mut prefix = String::new();
    for part in name.split('-') {
        if part.is_empty() || part.contains('/') {
            return None;
        }
        prefix.push_str(part);
        path.push_str(&format!("/{prefix}.slice"));
        prefix.push('-');
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_the_cgroup() {
        assert_eq!(names("/kubepods/besteffort/pod1/abc", "x"), ["abc"]);
        assert_eq!(
            names("kubepods-pod1.slice:cri-containerd:abc", "x"),
            ["cri-containerd-abc.scope"]
        );
        assert_eq!(names("system.slice::abc", "x"), ["-abc.scope"]);
        assert_eq!(names("", "x"), ["x", "crun-x.scope", "runc-x.scope"]);
        assert_eq!(names("", ""), [""; 0]);
        assert_eq!(names("/", "x"), ["x", "crun-x.scope", "runc-x.scope"]);
    }

    #[test]
    fn tells_path_as_runtimes_make_it() {
        let v1 = Some(OwnCgroup::V1("/own/a".to_owned()));
        let v2 = Some(OwnCgroup::V2("/own/a".to_owned()));
        let root = Some(OwnCgroup::V2("/".to_owned()));
        // The columns are the given path, the caller's own cgroup, and the paths of runc and crun.
        for (given, own, runc, crun) in testkit::rows! {
            Some("/a/b"), &v2, Some("/a/b") => Some("/a/b");
            Some("//a/./c/../b/"), &None, Some("/a/b") => Some("/a/b");
            Some("/../.."), &v2, Some("/") => Some("/");
            Some("a/b"), &v1, Some("/own/a/a/b") => Some("/a/b");
            Some("a/b"), &v2, Some("/own/a/b") => Some("/a/b");
            Some("../b"), &v1, Some("/own/a/b") => Some("/b");
            Some("a"), &root, Some("/a") => Some("/a");
            Some("a"), &None, None => Some("/a");
            Some("s.slice:p:n"), &root, Some("/s.slice:p:n") => Some("/s.slice:p:n");
            None, &v1, Some("/own/a/x") => Some("/x");
            None, &v2, Some("/own/x") => Some("/x");
            None, &None, None => Some("/x");
            Some(""), &v2, Some("/own/x") => None;
        } {
            check(given, own, false, (runc, crun));
        }
    }

    #[test]
    fn tells_path_of_systemd_scopes() {
        let docker = Some("/system.slice/docker-x.scope");
        let pod = Some("/kubepods.slice/kubepods-pod1.slice/crio-x.scope");
        for (given, runc, crun) in testkit::rows! {
            Some("system.slice:docker:x"), docker => docker;
            Some(":docker:x"), docker => docker;
            Some("kubepods-pod1.slice:crio:x"), pod => pod;
            Some("-.slice:p:x"), Some("/p-x.scope") => Some("/p-x.scope");
            Some("a.slice::x"), Some("/a.slice/-x.scope") => Some("/a.slice/-x.scope");
            Some("a.slice:p:a-b.slice"), Some("/a.slice/a-b.slice") => Some("/a.slice/p-a-b.slice.scope");
            Some("a.slice:x"), None => Some("/a.slice/x.scope");
            Some("/a/b"), None => None;
            Some("a--b.slice:p:x"), None => None;
            Some("a:p:x"), None => None;
            Some("a.slice:p:x/y"), None => None;
            None, Some("/system.slice/runc-x.scope") => Some("/system.slice/crun-x.scope");
        } {
            check(given, &None, true, (runc, crun));
        }
    }

    #[track_caller]
    fn check(
        given: Option<&str>,
        own: &Option<OwnCgroup>,
        is_systemd: bool,
        (runc, crun): (Option<&str>, Option<&str>),
    ) {
        for (is_crun, wanted) in [(false, runc), (true, crun)] {
            let manager = CgroupManager {
                is_crun,
                is_systemd,
                own: own.clone(),
            };
            let made = path(given, "x", &manager);
            assert_eq!(made.as_deref(), wanted, "{given:?} {manager:?}");
        }
    }
}
