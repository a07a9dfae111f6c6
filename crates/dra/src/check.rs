//! `runmig-dra check`: problems of the cluster, the kubelet and the engine's CDI. `migctl doctor --kubernetes` joins them with
//! those of the node.

use crate::api::probe::{self, Right};
use crate::api::{self, Client};
use crate::options::{Options, hook};
use crate::room::Room;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::finding::{self, Finding, Found, Status};
use runmig_lease::trust;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The most bytes of a configuration of containerd.
const MAX_SIZE: u64 = 1 << 20;

/// The rights without which no claim works.
const NEEDED: &[Right] = &[
    ["list", "resource.k8s.io", "resourceslices"],
    ["watch", "resource.k8s.io", "resourceslices"],
    ["create", "resource.k8s.io", "resourceslices"],
    ["update", "resource.k8s.io", "resourceslices"],
    ["delete", "resource.k8s.io", "resourceslices"],
    ["get", "resource.k8s.io", "resourceclaims"],
    ["list", "", "pods"],
    ["watch", "", "pods"],
];

/// The rights without which the driver serves claims, but reports nothing, or does not see other drivers on the node.
const USEFUL: &[Right] = &[
    ["patch", "resource.k8s.io", "resourceclaims/status"],
    [DRIVERS, "resource.k8s.io", "resourceclaims/driver"],
    ["create", "events.k8s.io", "events"],
    ["get", "", "nodes"],
];

/// A verb of Kubernetes for drivers alone.
const DRIVERS: &str = "associated-node:patch";

/// The hint where only an administrator may look.
const ADMINISTRATOR: &str = "run runmig-dra check with an administrator's --kubeconfig";

/// Makes all checks.
pub(crate) async fn check(options: &Options, config: &Config) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut add = |id, what, found| all.extend(finding::named(id, what, found));
    add(
        "kubernetes.gpus",
        "this node publishes GPUs",
        gpus(options, config),
    );
    add(
        "kubernetes.hook",
        "the hook belongs to root alone",
        hook(options).map(|_| Vec::new()).map_err(Finding::from),
    );
    add(
        "kubernetes.cdi",
        "the engine reads the CDI folder, which belongs to root alone",
        cdi(options),
    );
    add(
        "kubernetes.kubelet",
        "the kubelet looks for drivers in its folder",
        kubelet(&config.kubernetes.kubelet_dir),
    );
    let client = match reach(options).await {
        Ok(client) => client,
        Err(e) => {
            add("kubernetes.api", "", Err(e.into()));
            return all;
        }
    };
    let (client, node) = (&client, options.node.as_str());
    add(
        "kubernetes.api",
        "the API server answers, and is new enough",
        Ok(Vec::new()),
    );
    add(
        "kubernetes.rights",
        "this account has all rights",
        rights(client).await,
    );
    add(
        "kubernetes.gates",
        "the feature gates are on",
        Ok(gates(client, node).await),
    );
    add(
        "kubernetes.classes",
        "each extended resource has one DeviceClass",
        classes(client).await,
    );
    add(
        "kubernetes.node",
        "the cluster has this Node",
        has_node(client, node).await,
    );
    add(
        "kubernetes.drivers",
        "no other driver gives out the GPUs of this node",
        Ok(others(client, node).await),
    );
    all
}

/// Prints the findings: lines for people, or an object on each line for `migctl doctor`, which then decides.
///
/// # Errors
/// A finding for people is a failure.
pub(crate) fn print(findings: &[Finding], json: bool) -> Result<()> {
    let text = match json {
        true => {
            let lines: serde_json::Result<Vec<String>> =
                findings.iter().map(serde_json::to_string).collect();
            lines.context(|| "print the findings")?.join("\n") + "\n"
        }
        false => finding::table(findings, false),
    };
    show(&text)?;
    match finding::count(findings, Status::Fail) {
        n if n == 0 || json => Ok(()),
        n => Err(Error::new(format!(
            "cannot serve claims on this node: failed checks: {n}"
        ))
        .hint("follow the repair of each line with fail")),
    }
}

/// Prints a text. A reader such as `head` may end before it has all.
pub(crate) fn show(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context(|| "print it"),
        _ => Ok(()),
    }
}

fn gpus(options: &Options, config: &Config) -> Found {
    let (slices, left_out) = Room::once(config.clone(), &options.node)?;
    let left_out = left_out.iter().map(|left_out| {
        let text = format!("cannot publish {}: {}", left_out.what, left_out.reason);
        Finding::warn(
            text,
            "see docs/dra-scheduling.md, which lists the GPUs that are left out",
        )
    });
    let mut found: Vec<Finding> = left_out.collect();
    let mut devices = slices
        .iter()
        .flat_map(|slice| slice.spec.devices.iter().flatten());
    if devices.next().is_none() {
        found.push(Finding::fail(
            "cannot publish GPUs: no GPU of this node is in MIG mode and published",
            "switch MIG mode on with nvidia-smi -mig 1, or see kubernetes.gpus and policy",
        ));
    }
    Ok(found)
}

/// Checks the folder of CDI files, whose hooks the engine runs as root, and that containerd reads it. CRI-O always has CDI,
/// and containerd from 2.0 on unless its configuration switches it off.
fn cdi(options: &Options) -> Found {
    let dir = &options.cdi_dir;
    let looked = match dir.exists() {
        true => trust::folder(dir),
        false => trust::room_for(dir),
    };
    looked.context(|| format!("use CDI folder {}", dir.display()))?;
    let file = &options.containerd_config;
    if matches!(std::fs::symlink_metadata(file), Err(e) if e.kind() == ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let text = trust::read_to_string(file, MAX_SIZE);
    let text = text.context(|| format!("read the configuration of containerd, {}", file.display()));
    let problem = of_containerd(file, &text.map_err(Finding::warned)?, dir);
    Ok(problem.into_iter().collect())
}

/// Returns why containerd does not read the folder. Reads the settings line by line, since their table has another name
/// in each version.
fn of_containerd(file: &Path, text: &str, cdi_dir: &Path) -> Option<Finding> {
    let (name, dir) = (file.display(), cdi_dir.display());
    let value = |key: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let mut found = lines.filter(|(name, _)| name.trim() == key);
        found.next_back().map(|(_, value)| value.trim().to_owned())
    };
    // /var/run leads to /run on every system of today.
    let plain = |text: &str| text.replace('\'', "\"").replace("/var/run/", "/run/");
    let wanted = plain(&format!("\"{dir}\""));
    let is_enabled = value("enable_cdi");
    if is_enabled.as_deref() == Some("false") {
        return Some(Finding::fail(
            format!("cannot give slices to containers: {name} switches CDI off"),
            "remove enable_cdi = false and restart containerd",
        ));
    }
    if value("cdi_spec_dirs").is_some_and(|dirs| !plain(&dirs).contains(&wanted)) {
        return Some(Finding::fail(
            format!("cannot give slices to containers: cdi_spec_dirs in {name} lacks {dir}"),
            "add the folder to cdi_spec_dirs and restart containerd, or use --cdi-dir",
        ));
    }
    // In containerd 1 CDI is off by default.
    let is_old = matches!(value("version").as_deref(), Some("1" | "2"));
    (is_old && is_enabled.as_deref() != Some("true")).then(|| {
        Finding::warn(
            format!(
                "cannot find out whether containerd has CDI: {name} is of version 1 or 2, and containerd 1 has CDI only \
                 with enable_cdi = true"
            ),
            "upgrade to containerd 2, or add enable_cdi = true",
        )
    })
}

fn kubelet(dir: &Path) -> Found {
    let registry = dir.join("plugins_registry");
    let used = trust::folder(&registry).context(|| format!("use {}", registry.display()));
    used.map_err(|e| {
        let hint = "set kubernetes.kubelet_dir to the kubelet's --root-dir";
        Error::new("cannot register at the kubelet")
            .hint(hint)
            .caused_by(e)
    })?;
    Ok(Vec::new())
}

async fn reach(options: &Options) -> Result<Client> {
    let client = api::connect(options.kubeconfig.as_deref()).await?;
    probe::require_version(&client).await?;
    Ok(client)
}

async fn rights(client: &Client) -> Found {
    let mut found = Vec::new();
    let needed = NEEDED.iter().map(|right| (right, true));
    for (right, is_needed) in needed.chain(USEFUL.iter().map(|right| (right, false))) {
        if probe::may(client, right).await? {
            continue;
        }
        let [verb, _, resource] = right;
        let text = format!("cannot {verb} {resource}: this account lacks the right");
        let repair = "apply the ClusterRole of runmig-dra, or use its account";
        found.push(match is_needed {
            true => Finding::fail(text, repair),
            false => Finding::warn(text, repair),
        });
    }
    Ok(found)
}

async fn gates(client: &Client, node: &str) -> Vec<Finding> {
    let status = "DRAResourceClaimDeviceStatus";
    let has_status = probe::gate(client, status).await.and_then(|is_on| {
        is_on.ok_or_else(|| Error::new("the API server does not know the feature gate"))
    });
    let gates = [
        (
            "DRAPartitionableDevices",
            probe::keeps_counters(client, node).await,
            "the API server drops counters",
        ),
        (
            "DRAExtendedResource",
            probe::keeps_extended_resource(client).await,
            "pods cannot request nvidia.com/mig-… without a claim",
        ),
        (status, has_status, "claims do not show their slices"),
    ];
    let one = |(gate, is_on, effect): (&str, Result<bool>, &str)| match is_on {
        Ok(true) => None,
        Ok(false) => {
            let text = format!("cannot use feature gate {gate}: it is off, and {effect}");
            let repair = format!("remove {gate}=false from the flags of kube-apiserver");
            Some(match gate == status {
                true => Finding::warn(text, repair),
                false => Finding::fail(text, repair),
            })
        }
        Err(e) => Some(Finding::warned(
            Error::new(format!("cannot find out whether feature gate {gate} is on"))
                .hint(ADMINISTRATOR)
                .caused_by(e),
        )),
    };
    gates.into_iter().filter_map(one).collect()
}

/// Looks for classes of others with the extended resources of ours, of which the newest wins.
async fn classes(client: &Client) -> Found {
    let all = probe::classes(client).await;
    let all = all.map_err(|e| Finding::warned(e.hint(ADMINISTRATOR)))?;
    let mig = all.iter().filter_map(|class| {
        let resource = class.spec.extended_resource_name.as_deref()?;
        let name = class.metadata.name.as_deref()?;
        resource
            .starts_with("nvidia.com/mig-")
            .then_some((name, resource))
    });
    let is_ours = |(name, resource): &(&str, &str)| *resource == format!("nvidia.com/{name}");
    let (ours, theirs): (Vec<_>, Vec<_>) = mig.partition(is_ours);
    if let Some((name, resource)) = theirs.first() {
        return Err(Finding::fail(
            format!(
                "cannot serve {resource} alone: DeviceClass {name} has the same extended resource, and the newest class wins"
            ),
            "remove one of the two classes",
        ));
    }
    if ours.is_empty() {
        return Err(Finding::warn(
            "cannot serve extended resources: the cluster has no DeviceClass with nvidia.com/mig-…",
            "kubectl apply -f kubernetes/dra/classes.yaml",
        ));
    }
    Ok(Vec::new())
}

async fn has_node(client: &Client, node: &str) -> Found {
    match probe::node_object(client, node)
        .await
        .map_err(Finding::warned)?
    {
        Some(_) => Ok(Vec::new()),
        None => Err(Finding::fail(
            format!("cannot publish GPUs: the cluster has no Node {node}"),
            "name this node with --node as kubectl get nodes does",
        )),
    }
}

/// Names another driver on this node, and another program that publishes under this driver's name.
async fn others(client: &Client, node: &str) -> Vec<Finding> {
    let finding = |other: Result<Option<String>>, what, repair| match other {
        Ok(other) => other.map(|other| Finding::fail(format!("{what}: {other}"), repair)),
        Err(e) => Some(Finding::warned(e)),
    };
    let rival = finding(
        probe::rival(client, node).await,
        "cannot publish GPUs",
        "remove the other driver from this node, or runmig-dra",
    );
    let intruder = finding(
        probe::intruder(client, node, "").await,
        "cannot publish GPUs alone",
        "delete the ResourceSlice, and end the program that wrote it",
    );
    rival.into_iter().chain(intruder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// The rights in the shipped ClusterRole are those that the check looks for.
    #[test]
    fn asks_for_the_shipped_rights() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../kubernetes/dra/rights.yaml"
        );
        let text = std::fs::read_to_string(file).unwrap();
        let objects = text.split("\n---\n");
        let objects = objects.map(|object| serde_saphyr::from_str::<Value>(object).unwrap());
        let role = { objects }.find(|object| object["kind"] == "ClusterRole");
        let mut shipped = BTreeSet::new();
        for rule in role.unwrap()["rules"].as_array().unwrap() {
            let words = |key: &str| {
                let words = rule[key].as_array().unwrap().iter();
                words
                    .map(|word| word.as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            };
            for resource in words("resources") {
                for verb in words("verbs") {
                    shipped.insert((words("apiGroups")[0].clone(), resource.clone(), verb));
                }
            }
        }
        let asked = NEEDED.iter().chain(USEFUL).map(|right| {
            let [verb, group, resource] = right.map(str::to_owned);
            (group, resource, verb)
        });
        assert_eq!(asked.collect::<BTreeSet<_>>(), shipped);
    }

    #[test]
    fn reads_settings_of_containerd() {
        for (text, words) in testkit::rows! {
            "version = 3\n" => "";
            "version = 2\n" => "is of version 1 or 2";
            "version = 2\n  enable_cdi = true\n" => "";
            "version = 3\n  enable_cdi = false\n" => "switches CDI off";
            "cdi_spec_dirs = ['/etc/cdi', '/run/cdi']\n" => "";
            "cdi_spec_dirs = [\"/etc/cdi\"]\n" => "c.toml lacks /var/run/cdi";
        } {
            let found = of_containerd(Path::new("c.toml"), text, Path::new("/var/run/cdi"));
            let found = found.map(|finding| finding.text).unwrap_or_default();
            assert_eq!(found.is_empty(), words.is_empty(), "{text}: {found}");
            testkit::has(&found, words);
        }
    }
}
