//! The names of config.json: every key that version 1.3 of the specification gives a Linux container.

/// In the order of their bytes.
#[rustfmt::skip]
const NAMES: [&str; 162] = [
    "access", "action", "additionalGids", "allow", "ambient", "annotations", "apparmorProfile",
    "architectures", "args", "blockIO", "bounding", "burst", "capabilities", "cgroupsPath",
    "checkBeforeUpdate", "class", "classID", "closID", "commandLine", "consoleSize", "containerID", "cpu",
    "cpus", "createContainer", "createRuntime", "cwd", "deadline", "defaultAction", "defaultErrnoRet",
    "destination", "deviceTree", "devices", "disableOOMKiller", "domain", "domainname", "dtdevs",
    "effective", "enableMonitoring", "env", "errnoRet", "execCPUAffinity", "fileMode", "final",
    "firstGFN", "firstMFN", "flags", "freebsd", "gid", "gidMappings", "hard", "hcaHandles", "hcaObjects",
    "height", "hooks", "hostID", "hostname", "hugepageLimits", "idle", "index", "inheritable", "initial",
    "intelRdt", "ioPriority", "iomems", "irqs", "kernel", "kernelTCP", "l3CacheSchema", "leafWeight",
    "limit", "linux", "listenerMetadata", "listenerPath", "major", "maskedPaths", "memBwSchema", "memory",
    "memoryPolicy", "mems", "minor", "mode", "mountLabel", "mounts", "name", "names", "namespaces",
    "nanosecs", "netDevices", "network", "nice", "noNewPrivileges", "nodes", "nrMFNs", "ociVersion",
    "oomScoreAdj", "op", "options", "pageSize", "path", "period", "permitted", "personality", "pids",
    "policy", "poststart", "poststop", "prestart", "priorities", "priority", "process", "quota", "rate",
    "rdma", "readonly", "readonlyPaths", "realtimePeriod", "realtimeRuntime", "reservation", "resources",
    "rlimits", "root", "rootfsPropagation", "runtime", "scheduler", "schemata", "seccomp", "secs",
    "selinuxLabel", "shares", "size", "soft", "solaris", "source", "startContainer", "swap", "swappiness",
    "syscalls", "sysctl", "terminal", "throttleReadBpsDevice", "throttleReadIOPSDevice",
    "throttleWriteBpsDevice", "throttleWriteIOPSDevice", "timeOffsets", "timeout", "type", "uid",
    "uidMappings", "umask", "unified", "useHierarchy", "user", "username", "value", "valueTwo", "vcpus",
    "vm", "weight", "weightDevice", "width", "windows", "zos",
];

/// Objects with keys of the user's choice, where Go distinguishes cases.
const MAPS: [&str; 6] = [
    "annotations",
    "netDevices",
    "rdma",
    "sysctl",
    "timeOffsets",
    "unified",
];

/// Returns the name of the specification that Go's encoding/json matches to the key.
pub fn known_name(key: &str) -> Option<&'static str> {
    let known = NAMES.binary_search(&key).ok().map(|at| NAMES[at]);
    known.or_else(|| NAMES.into_iter().find(|name| is_same(key, name)))
}

pub fn is_map(name: &str) -> bool {
    MAPS.contains(&name)
}

/// Returns whether Go matches the key to that name. Go ignores case, and also matches the two letters
/// outside ASCII that Unicode folds into the name.
pub fn is_same(key: &str, name: &str) -> bool {
    key == name
        || key
            .chars()
            .map(fold)
            .eq(name.chars().map(|c| c.to_ascii_lowercase()))
}

fn fold(c: char) -> char {
    match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_tells_all_names_apart() {
        assert!(NAMES.is_sorted());
        for name in NAMES {
            assert_eq!(known_name(name), Some(name));
            assert_eq!(known_name(&name.to_uppercase()), Some(name));
        }
    }
}
