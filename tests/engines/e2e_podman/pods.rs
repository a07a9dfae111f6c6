//! podman's pods: each container asks for itself, and the pause container has nothing.

use crate::e2e_podman::ASK;
use crate::e2e_podman::images::Image;
use testkit::podman::{IMAGE, id, on_each};
use testkit::prelude::*;

/// Gone when dropped: `podman rm` leaves pause containers alone.
struct Pod<'a>(&'a Podman<'a>);

impl<'a> Pod<'a> {
    fn new(podman: &'a Podman<'a>) -> Pod<'a> {
        podman.import(IMAGE, &["CMD [\"/bin/sleep\", \"1000\"]"]);
        Pod(podman)
    }

    /// podman 5 removes the cgroups here already.
    fn stop(&self) -> Said {
        self.forget_cgroups();
        self.0.podman(&["pod", "stop", "--all", "--time=0"])
    }

    fn remove(&self) -> Said {
        self.stop();
        self.forget_cgroups();
        self.0.podman(&["pod", "rm", "--all", "--force"])
    }

    /// podman makes a pod's cgroup for every controller that the kernel has. Without a mount (this
    /// is about cgroup v1) that is a plain directory, which it then cannot remove.
    fn forget_cgroups(&self) {
        let list = ["pod", "ps", "--quiet", "--no-trunc"];
        let ids = self.0.podman(&list).stdout;
        for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            for id in ids.lines() {
                let path = controller.path().join("libpod_parent").join(id);
                if !path.join("cgroup.procs").exists() {
                    let _ = std::fs::remove_dir_all(path);
                }
            }
        }
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Each container's id, and the profile it has.
fn profiles(setup: &Setup) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let leases = setup.leases().into_iter();
    let pairs = leases.map(|l| (text(&l["container"]), text(&l["profile"])));
    pairs.collect()
}

fn id_of(podman: &Podman, name: &str) -> String {
    let said = podman.inspect("--format={{.Id}}", name);
    id(&said).to_owned()
}

#[test]
fn gives_pod_two_different_slices() {
    on_each(Setup::of, |setup, podman| {
        let pod = Pod::new(podman);
        podman.podman(&["pod", "create", "--name=pair"]).ok();
        let slices = [("first", "1g.10gb"), ("second", "3g.40gb")];
        for (name, slice) in [slices[0], slices[1], ("third", "none")] {
            let annotation = format!("--annotation=runmig.dev/slice={slice}");
            let name = format!("--name={name}");
            let options = ["--detach", "--pod=pair", &name, &annotation];
            podman.run("run", &options, "exec sleep 1000").ok();
        }
        let wanted = slices.map(|(name, slice)| (id_of(podman, name), slice.to_owned()));
        let wanted = BTreeMap::from(wanted);
        assert_eq!(profiles(setup), wanted);
        let saw = |name: &str| podman.podman(&["exec", name, "sh", "-c", SHOW]).ok().stdout;
        assert_ne!(nodes(&saw("first")), nodes(&saw("second")));
        assert_eq!(nodes(&saw("third")).len(), 0);

        pod.stop().ok();
        until("the slices are back", || setup.leases().is_empty());
        podman.podman(&["pod", "start", "pair"]).ok();
        assert_eq!(profiles(setup), wanted);
        pod.remove().ok();
        setup.nothing_is_left();
        table::passed(&podman.name(), "a pod of two with different slices");
    });
}

/// podman names the pod, and what an image says of one counts for nothing.
/// Failure: an image names a pod of podman
#[test]
fn containers_of_pod_share_slice() {
    on_each(Setup::of, |setup, podman| {
        let pod = Pod::new(podman);
        let image = Image::new(podman, &[("io.kubernetes.cri-o.SandboxID", "made-up")]);
        podman.podman(&["pod", "create", "--name=pair"]).ok();
        let options = ["--pod=pair", ASK, "--annotation=runmig.dev/scope=pod"];
        image.start(&options);
        let detached = [&options[..], &["--detach"]].concat();
        podman.run("run", &detached, "sleep 1000").ok();
        let instance = setup.machine.the_instance();
        let leases = setup.leases();
        assert_eq!(leases.len(), 2);
        assert!(leases.iter().all(|l| l["migUUID"] == instance.uuid));
        pod.remove().ok();
        setup.nothing_is_left();
    });
}

/// The annotation of a pod reaches each of its containers; podman tells their names to nobody, so one
/// of them alone cannot be meant.
#[test]
fn kube_play() {
    on_each(Setup::of, |setup, podman| {
        let pod = Pod::new(podman);
        let file = setup.path("pod.yaml");
        let write = |annotation: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: played\n  annotations:\n    \
                 {annotation}\nspec:\n  containers:\n  - name: a\n    image: {IMAGE}\n    \
                 command: [/bin/sleep, \"1000\"]\n  - name: b\n    image: {IMAGE}\n    \
                 command: [/bin/sleep, \"1000\"]\n"
            );
            std::fs::write(&file, text).unwrap();
        };
        write("runmig.dev/slice: 2g.20gb");
        let file = file.to_str().unwrap();
        podman.podman(&["kube", "play", file]).ok();
        let wanted =
            ["played-a", "played-b"].map(|name| (id_of(podman, name), "2g.20gb".to_owned()));
        assert_eq!(profiles(setup), BTreeMap::from(wanted));
        pod.remove().ok();
        setup.nothing_is_left();
    });
}
