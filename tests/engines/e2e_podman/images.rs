//! Images whose manifest carries annotations: podman 4 makes them the container's, podman 5 does not.
//! Neither gets such an image a slice, a place in the queue, or a part in another's rights.

use crate::e2e_podman::ASK;
use sha2::{Digest, Sha256};
use testkit::podman::{id, on_each};
use testkit::prelude::*;

const NONE: &str = "--annotation=runmig.dev/slice=none";

pub struct Image<'a> {
    podman: &'a Podman<'a>,
    id: String,
}

impl<'a> Image<'a> {
    /// Made as a registry would hand it out.
    pub fn new(podman: &'a Podman, annotations: &[(&str, &str)]) -> Image<'a> {
        Image::under("annotations", podman, annotations)
    }

    /// The same with another spelling of the manifest's key.
    fn under(key: &str, podman: &'a Podman, annotations: &[(&str, &str)]) -> Image<'a> {
        const BASE: &str = "localhost/runmig-base:1";
        // podman makes a name of the path, and wants it in lower case.
        const LAYOUT: &str = "oci:layout:1";
        podman.import(BASE, &["LABEL made=by-a-test"]);
        podman.podman(&["push", "--quiet", BASE, LAYOUT]).ok();
        podman.podman(&["rmi", BASE]).ok();
        let layout = podman.storage().with_file_name("layout");
        annotate(&layout, key, annotations);
        let pulled = podman.podman(&["pull", "--quiet", LAYOUT]).ok();
        fs::remove_dir_all(layout).unwrap();
        Image {
            id: id(&pulled).to_owned(),
            podman,
        }
    }

    fn run(&self, options: &[&str]) -> Said {
        let mut run = self.podman.command(&["run", "--rm"]);
        run.args(options).args([&self.id, "/bin/sh", "-c", SHOW]);
        said(&mut run)
    }

    pub fn start(&self, options: &[&str]) -> String {
        let mut run = self.podman.command(&["run", "--detach"]);
        run.args(options).args([&self.id, "/bin/sleep", "1000"]);
        id(&said(&mut run).ok()).to_owned()
    }

    #[track_caller]
    pub fn refused(&self, options: &[&str], why: &str) {
        self.run(options).exits(126).warns(why);
    }
}

/// Writes annotations into the one manifest of an OCI layout.
fn annotate(layout: &Path, key: &str, annotations: &[(&str, &str)]) {
    let read = |file: &Path| -> Value { serde_json::from_slice(&fs::read(file).unwrap()).unwrap() };
    let blob = |digest: &str| layout.join("blobs/sha256").join(&digest["sha256:".len()..]);
    let mut index = read(&layout.join("index.json"));
    let entry = &mut index["manifests"][0];
    let mut manifest = read(&blob(entry["digest"].as_str().unwrap()));
    manifest[key] = json!(annotations.iter().copied().collect::<BTreeMap<_, _>>());
    let text = manifest.to_string();
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    entry["digest"] = json!(format!("sha256:{hex}"));
    entry["size"] = json!(text.len());
    fs::write(blob(&format!("sha256:{hex}")), text).unwrap();
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
}

pub fn hands_annotations_on(podman: &Podman) -> bool {
    let version = podman.podman(&["version", "--format={{.Client.Version}}"]);
    version.ok().stdout.starts_with("4.")
}

/// Failure: an image asks, waits, or poses as another engine's container (podman before 4.5.1)
#[test]
fn user_wins_over_image() {
    on_each(Setup::of, |setup, podman| {
        let image = Image::new(
            podman,
            &[
                ("io.container.manager", "cri-o"),
                ("io.kubernetes.container.name", "web"),
                ("slice.runmig.dev/web", "7g.80gb"),
                ("io.kubernetes.pod.namespace", "team-a"),
                ("io.kubernetes.pod.name", "trainer-1"),
                ("io.kubernetes.cri-o.ContainerType", "sandbox"),
                ("io.kubernetes.cri-o.SandboxID", "made-up"),
                ("runmig.dev/slice", "7g.80gb"),
            ],
        );
        let ids = [image.start(&[ASK]), image.start(&[ASK])];
        let leases = setup.leases();
        assert_eq!(leases.len(), 2);
        for lease in leases {
            assert_eq!(lease["profile"], "1g.10gb", "{lease}");
            assert_eq!(lease["namespace"], Value::Null, "{lease}");
            assert_eq!(lease["pod"], Value::Null, "{lease}");
        }
        ids.iter().for_each(|id| drop(podman.remove(id).ok()));
        assert_eq!(image.run(&[NONE]).ok().stdout, "VISIBLE=\n");
        let pod = "--annotation=runmig.dev/scope=pod";
        let own = "--annotation=io.kubernetes.cri-o.SandboxID=made-up";
        image.refused(&[ASK, pod], "the engine names no pod");
        // A newer podman keeps the image's word out, so this is the user's.
        if hands_annotations_on(podman) {
            image.refused(&[ASK, pod, own], "the engine names no pod");
        }
        setup.nothing_is_left();
    });
}

/// podman before 4.5.1 looks for an image in further stores, so runmig finds its annotations there.
#[test]
fn finds_image_in_additional_store() {
    const OWN: &str = r#"cp -a /etc/containers "$0/etc" && cp "$0/storage.conf" "$0/etc/" &&
        mount --bind "$0/etc" /etc/containers && exec "$@""#;
    on_each(Setup::of, |setup, podman| {
        if !hands_annotations_on(podman) {
            return;
        }
        let asks = ("runmig.dev/slice", "7g.80gb");
        let image = Image::new(podman, &[asks]);
        let other = podman.storage().with_file_name("other");
        fs::rename(podman.storage(), &other).unwrap();
        let conf = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {:?}\n\
             [storage.options]\nadditionalimagestores = [\"/nowhere\", {other:?}]\n",
            podman.storage(),
            podman.storage().with_file_name("runroot"),
        );
        let run = |option: &[&str]| {
            // One for each: podman's process that cleans up may still use it.
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("storage.conf"), &conf).unwrap();
            let store = format!("--storage-opt=.imagestore={}", other.display());
            let shows = [&image.id, "/bin/sh", "-c", SHOW];
            let podman = podman.command(&[&[&store, "run", "--rm"], option, &shows].concat());
            let mut all = Command::new("unshare");
            all.args(["--mount", "sh", "-c", OWN]).arg(dir.path());
            all.arg(podman.get_program()).args(podman.get_args());
            let set = { podman.get_envs() }.filter_map(|(key, value)| Some((key, value?)));
            all.envs(set).env_remove("RUNMIG_CONFIG");
            said(all.current_dir(podman.get_current_dir().unwrap()))
        };
        run(&[]).exits(126).warns("the image carries the same");
        has(&run(&[ASK]).ok().stdout, "VISIBLE=MIG-");
        setup.nothing_is_left();
    });
}

#[test]
fn image_gets_no_slice() {
    on_each(Setup::of, |setup, podman| {
        let image = Image::new(podman, &[("runmig.dev/slice", "7g.80gb")]);
        let carries = "cannot tell whether annotation runmig.dev/slice = \"7g.80gb\" is the user's: \
                       the image carries the same; hint: give the container this annotation with \
                       another value";
        let hands_on = hands_annotations_on(podman);
        if hands_on {
            image.refused(&[], carries);
        } else {
            assert_eq!(image.run(&[]).ok().stdout, "VISIBLE=\n");
        }
        let same = ["--annotation=runmig.dev/slice=7g.80gb"];
        match hands_on {
            // Nothing tells the two apart.
            true => image.refused(&same, carries),
            false => drop(image.run(&same).ok()),
        }
        image.run(&["--annotation=runmig.dev/slice= 7g.80gb"]).ok();
        assert_eq!(image.run(&[NONE]).ok().stdout, "VISIBLE=\n");
        setup.nothing_is_left();
        podman.configure_runmig("policy.image_annotations = \"allow\"");
        let said = image.run(&[]).ok().stdout;
        assert_eq!(said.contains("VISIBLE=MIG-"), hands_on, "{said}");
        setup.nothing_is_left();
    });
}

/// podman matches a key in any case, as Go's decoders do.
#[test]
fn reads_manifests_as_podman_does() {
    on_each(Setup::of, |setup, podman| {
        for key in ["Annotations", "aNNOTATIONS"] {
            let image = Image::under(key, podman, &[("runmig.dev/slice", "7g.80gb")]);
            if hands_annotations_on(podman) {
                image.refused(&[], "the image carries the same");
                let same = "--annotation=runmig.dev/slice=7g.80gb";
                image.refused(&[same], "the image carries the same");
            }
        }
        setup.nothing_is_left();
    });
}

#[test]
fn image_does_not_queue() {
    on_each(Setup::of, |setup, podman| {
        let image = Image::new(podman, &[("runmig.dev/wait", "23h")]);
        let whole = "--annotation=runmig.dev/slice=7g.80gb";
        for _ in 0..2 {
            podman.run("run", &["--detach", whole], "sleep 1000").ok();
        }
        match hands_annotations_on(podman) {
            true => image.refused(&[ASK], "annotation runmig.dev/wait = \"23h\" is the user's"),
            false => image.refused(&[ASK], "cannot allocate 1g.10gb: "),
        }
        let short = "--annotation=runmig.dev/wait=1ms";
        image.refused(&[ASK, short], "cannot allocate 1g.10gb: ");
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
    });
}

/// podman's record of an image is damaged, so runmig cannot tell if the image carried the request.
/// Failure: podman's records of an image are damaged or elsewhere
#[test]
fn refuses_what_no_record_tells() {
    on_each(Setup::of, |setup, podman| {
        let image = Image::new(podman, &[]);
        let made = |option: &str| {
            let create = ["create", option, &image.id, "/bin/sleep", "1000"];
            id(&podman.podman(&create).ok()).to_owned()
        };
        let (asks, none) = (made(ASK), made(NONE));
        let storage = podman.storage().join("vfs-images").join(&image.id);
        let mut find = Command::new("find");
        find.arg(&storage)
            .args(["-name", "*anifest*", "-o", "-name", "=bWFuaWZlc3Qt*"]);
        for file in said(&mut find).ok().stdout.lines() {
            fs::write(file, "{").unwrap();
        }
        if !hands_annotations_on(podman) {
            // This podman keeps an image's annotations out, so the record does not matter.
            podman.podman(&["start", &asks]).ok();
            podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
            return setup.nothing_is_left();
        }
        let refused = podman.podman(&["start", &asks]);
        has(&refused.stderr, "is the user's or the image's");
        has(&refused.stderr, "policy.image_annotations");
        podman.podman(&["start", &none]).ok();
        podman.configure_runmig("policy.image_annotations = \"allow\"");
        podman.podman(&["start", &asks]).ok();
        assert_eq!(setup.the_lease()["container"], asks);
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
    });
}
