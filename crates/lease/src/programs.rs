//! The names of our programs. An engine calls a link `runmig-NAME` that is none of them to use the
//! configuration `NAME.toml`.

use std::path::Path;

/// The OCI runtime, which every call passes.
pub const FRONT: &str = "runmig";
/// The program for calls that concern a slice.
pub const SLICE: &str = "runmig-slice";
/// The poststop hook.
pub const HOOK: &str = "runmig-hook";
/// The Kubernetes driver.
pub const DRA: &str = "runmig-dra";
/// The Kubernetes driver's name in claims, in ResourceSlices and at the kubelet.
pub const DRIVER: &str = "gpu.runmig.dev";
/// The hook of containers with a claim of Kubernetes.
pub const CLAIM: &str = "runmig-claim";

/// The first argument of the hook by which a CDI device asks.
pub const REQUEST: &str = "runmig-request";
/// The file of that hook. crun shows a failed hook's path alone, so the name tells the remedy.
pub const REQUEST_FILE: &str = "runmig-request-wants-runtime-runmig";

/// All names that no configuration can have.
const ALL: &[&str] = &[FRONT, SLICE, HOOK, DRA, CLAIM, REQUEST, REQUEST_FILE];

/// Returns NAME for a link `runmig-NAME`, whatever folder it is in; none for a program's own name.
pub fn configuration_of(link: &Path) -> Option<&str> {
    let link = link.file_name()?.to_str()?;
    let name = link.strip_prefix("runmig-")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty() && name.chars().all(plain) && !ALL.contains(&link);
    is_name.then_some(name)
}

/// Returns the first version in what a program says of itself, as in `v2.1.5`, `1.6.20~ds1` or `28.2.2,`: as text, and its
/// numbers.
pub fn version(said: &str) -> Option<(&str, (u32, u32, u32))> {
    said.split_whitespace().find_map(|word| {
        let word = word.strip_prefix('v').unwrap_or(word);
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
        let shown = &word[..end.unwrap_or(word.len())];
        let mut parts = shown.split('.').map(|part| part.parse().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        Some((shown, (major, minor, parts.next().flatten().unwrap_or(0))))
    })
}

/// Returns the numbers in `podman version 5.8.3` or `podman version 6.1.0-rc1`; none in what another program says.
pub fn podman_version(said: &str) -> Option<(u32, u32, u32)> {
    let its = said.trim().strip_prefix("podman version ")?;
    let (_, numbers) = version(its.split_whitespace().next()?)?;
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_version_in_engine_output() {
        for (said, expected) in [
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3",
                ("1.6.20", (1, 6, 20)),
            ),
            (
                "containerd github.com/containerd/containerd/v2 v2.1.5 fcd43222d6b0",
                ("2.1.5", (2, 1, 5)),
            ),
            (
                "crio version 1.36.3\n   GitCommit: unknown",
                ("1.36.3", (1, 36, 3)),
            ),
            (
                "Docker version 28.2.2, build e6534b4",
                ("28.2.2", (28, 2, 2)),
            ),
            ("podman version 4.3.1", ("4.3.1", (4, 3, 1))),
            ("runc version 1.2", ("1.2", (1, 2, 0))),
        ] {
            assert_eq!(version(said), Some(expected), "{said}");
        }
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn links_name_configurations() {
        let name = |link: &'static str| configuration_of(Path::new(link));
        assert_eq!(name("/usr/bin/runmig-crun"), Some("crun"));
        assert_eq!(name("runmig-slice.d"), Some("slice.d"));
        for program in ALL.iter().chain(&["runmig-", "runmig-a b", "migctl", ""]) {
            assert_eq!(name(program), None, "{program}");
        }
        assert_eq!(name("/x/runmig-hook"), None);
    }

    #[test]
    fn lists_every_program() {
        let manifest = include_str!("../../../Cargo.toml");
        let (_, programs) = manifest.split_once("[[bin]]").unwrap();
        let (programs, _) = programs.split_once("[[bench]]").unwrap();
        let names = programs
            .lines()
            .filter_map(|line| line.strip_prefix("name = "));
        let names: Vec<&str> = names.map(|name| name.trim_matches('"')).collect();
        assert!(names.contains(&"migctl"), "{names:?}");
        let driver = include_str!("../../dra/Cargo.toml");
        assert!(driver.contains(&format!("[[bin]]\nname = \"{DRA}\"")));
        for name in names.iter().filter(|name| name.starts_with(FRONT)) {
            assert!(ALL.contains(name), "{name} is not listed");
        }
    }

    #[test]
    fn reads_version_of_podman_alone() {
        for (said, expected) in [
            ("podman version 5.8.3\n", Some((5, 8, 3))),
            ("podman version 6.1.0-rc1", Some((6, 1, 0))),
            ("podman version ", None),
            ("podman version of 5.8.3", None),
            ("Docker version 28.2.2, build e6534b4", None),
        ] {
            assert_eq!(podman_version(said), expected, "{said}");
        }
    }
}
