//! A container that does not ask goes straight to the low-level runtime.

use crate::prelude::*;

#[track_caller]
fn same(setup: &Setup, arguments: &[&str]) -> Said {
    let ours = setup.runmig(arguments);
    let bare = said(&mut setup.bare(arguments));
    assert_eq!(ours.status.code(), bare.status.code(), "{arguments:?}");
    assert_eq!(ours.stdout, bare.stdout, "{arguments:?}");
    // crun and runc put times into their own errors.
    let [ours_is, bare_is] = [&ours, &bare].map(|said| said.stderr.is_empty());
    assert_eq!(ours_is, bare_is, "{arguments:?}");
    ours
}

pub fn answers_like_the_runtime(setup: &Setup) {
    let (_, id) = setup.made("1g.10gb", "sleep 1000");
    setup.runmig(&["start", &id]).ok();
    for flag in ["--version", "-v"] {
        let low = setup.bare(&[]).get_program().to_owned();
        let ours = said(setup.plain(&setup.program("runmig")).arg(flag));
        let bare = said(setup.plain(low.as_ref()).arg(flag));
        let rest = ours.stdout.strip_prefix(&bare.stdout);
        let line = rest.and_then(|rest| rest.strip_prefix("runmig: "));
        assert_eq!(line.map(|line| line.lines().count()), Some(1), "{ours:?}");
        assert_eq!(ours.status.code(), bare.status.code());
    }
    same(setup, &["--help"]).ok();
    same(setup, &["state", &id]).ok();
    same(setup, &["list"]).ok();
    same(setup, &["list", "-f", "json"]).ok();
    same(setup, &["exec", &id, "echo", "from", "inside"]).ok();
    same(setup, &["exec", &id, "sh", "-c", "exit 9"]).exits(9);
    same(setup, &["state", "nobody"]).exits(1);
    same(setup, &["delete", "--force", "nobody"]);
    same(setup, &["nonsense"]);
    setup.ends(&[&id]);
}

/// config.json, to the byte and the inode; and no trace of a call anywhere.
pub fn leaves_others_alone(setup: &Setup) {
    let bundle = setup.bundle("echo $NVIDIA_VISIBLE_DEVICES");
    bundle.edit(|config| {
        config["annotations"] = serde_json::json!({"org.example/runmig.dev": "1g.10gb"});
    });
    let look = |bundle: &Bundle| {
        let meta = std::fs::metadata(bundle.file()).unwrap();
        let times = (meta.mtime_nsec(), meta.ctime_nsec());
        (bundle.bytes(), meta.ino(), times)
    };
    let before = look(&bundle);
    let id = unique();
    let said = setup.runmig(&["run", "-b", bundle.as_str(), &id]).ok();
    assert_eq!(said.stdout, "\n");
    setup.create(&bundle, &id);
    setup.runmig(&["start", &id]).ok();
    setup.delete(&id);
    assert_eq!(look(&bundle), before);
    assert_eq!(bundle.names(), ["config.json", "rootfs"]);
    assert!(!setup.state().exists(), "no state directory was made");
}

/// runc takes options behind the id, and crun takes abbreviations: runmig reads neither.
pub fn refuses_words_that_may_name_a_bundle_that_asks(setup: &Setup) {
    let (asks, other) = (setup.asking("1g.10gb", "true"), setup.bundle("true"));
    let means = setup.bundle("true");
    means.annotate("runmg.dev/slice", "1g.10gb");
    let asks_to_stay = setup.asking("1g.10gb", "exec sleep 1000");
    let id = &unique();
    let with = |bundle: &Bundle, shape: usize| {
        let bundle = bundle.as_str();
        match shape {
            0 => format!("create {id} --bundle {bundle}"),
            1 => format!("create --bun={bundle} {id}"),
            2 => format!("create -b{bundle} {id}"),
            3 => format!("--unknown delete run {id} -b {bundle}"),
            _ => format!("restore --bogus -f {bundle}/config.json {id}"),
        }
    };
    fn words(line: &str) -> Vec<&str> {
        line.split(' ').collect()
    }
    for shape in 0..5 {
        let refused = |bundle: &Bundle| setup.runmig(&words(&with(bundle, shape))).refused();
        has(&refused(&asks), "asks for a GPU");
        let line = refused(&means);
        has(&line, "asks for a GPU");
        has(&line, "hint: write options before the id, ");
        let line = with(&other, shape);
        let words = words(&line);
        let delete = || drop(setup.bare(&["delete", "--force", id]).output());
        let ours = setup.runmig(&words);
        delete();
        let bare = said(&mut setup.bare(&words));
        delete();
        assert_eq!(ours.status.code(), bare.status.code(), "{line}: {ours:?}");
    }
    let mut within = setup.command(&["create", id, "--no-pivot=maybe"]);
    let within = said(within.current_dir(asks.as_str()));
    within.warns("the working directory may be the bundle");
    // An update has no bundle, and runc's takes no devices away.
    if setup.low.is_crun() {
        let update = ["update", "--pids-lim=50", id];
        let said = said(setup.command(&update).current_dir(asks.as_str()));
        lacks(&said.stderr, "the working directory");
        setup.create(&asks_to_stay, id);
        let line = setup.runmig(&update).refused();
        ends_with(
            &line,
            "which the update may take away; hint: write update --resources FILE ID",
        );
        setup.delete(id);
    }
    setup.nothing_is_left();
}

/// Checks the low-level runtime's features, refusals too; with our annotations if it lists such.
pub fn answers_features(setup: &Setup) {
    const LIST: &str = "potentiallyUnsafeConfigAnnotations";
    // as engines ask: no --root, anywhere
    let ours = said(setup.plain(&setup.program("runmig")).arg("features"));
    let bare = said(setup.plain(&setup.runtime).arg("features"));
    assert_eq!(ours.status.code(), bare.status.code());
    assert_eq!(ours.stderr, bare.stderr);
    if !bare.stdout.contains(LIST) {
        assert_eq!(ours.stdout, bare.stdout);
        return;
    }
    let (mut ours, bare) = (ours.json(), bare.json());
    let list = ours[LIST].as_array_mut().unwrap();
    let own = list.split_off(bare[LIST].as_array().unwrap().len());
    assert_eq!(
        own,
        ["runmig.", "slice.runmig.", "share.runmig.", "gpu.runmig."]
    );
    assert_eq!(ours, bare);
}

/// Not even a broken driver is noticed.
pub fn works_without_a_driver(setup: &Setup) {
    std::fs::remove_file(setup.machine.library()).unwrap();
    let bundle = setup.bundle("echo works");
    let said = setup.run(&bundle);
    assert_eq!(said.stdout, "works\n");
}
