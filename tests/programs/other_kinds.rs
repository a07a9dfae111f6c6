//! Calls that would lose a slice: a virtual machine or a module of WebAssembly in a container's place, and a checkpoint that
//! cannot be restored.

use testkit::prelude::*;

const SLICE: (&str, &str) = ("runmig.dev/slice", "1g.6gb");

#[track_caller]
fn refused(world: &World, id: &str, words: &str) {
    let line = world.refuses(id, words);
    let hint = "gets no GPU; hint: use runc or crun without such a handler";
    has(&line, hint);
    world.as_if_nothing_had_been().unwrap();
}

/// Failure: an annotation has crun make a virtual machine or a WebAssembly module in the place of a container that asks
#[test]
fn refuses_handlers_of_crun() {
    let world = World::with_whole_gpus();
    world.configure("sharing.enforcement = [\"none\"]");
    let handlers = [
        ("run.oci.handler", "krun"),
        ("run.oci.handler", "wasm"),
        ("run.oci.handler", "wasm-smart"),
        ("run.oci.handler", "wasmedge"),
        ("module.wasm.image/variant", "compat-smart"),
    ];
    let asks = [SLICE, ("runmig.dev/gpu", "1"), ("runmig.dev/share", "4Gi")];
    for (n, handler) in handlers.into_iter().enumerate() {
        let id = format!("c{n}");
        world.bundle_saying(&id, &[asks[n % asks.len()], handler]);
        let (key, value) = handler;
        refused(&world, &id, &format!("annotation {key}={value} makes"));
    }
    // Without a request it is the engine's own business.
    world.create_saying("plain", &[handlers[0]]);
    world.create_saying("other", &[SLICE, ("run.oci.hooks.stderr", "/dev/null")]);
    world.all_go(&["plain", "other"]);
}

#[test]
fn refuses_krun_by_name() {
    for name in ["krun", "crun-wasm"] {
        let world = World::small();
        let runc = world.bare(&[]).get_program().to_owned();
        let (krun, link) = (world.path(name), world.path("links").join(name));
        fs::copy(&runc, &krun).unwrap();
        fs::create_dir(link.parent().unwrap()).unwrap();
        symlink(&runc, &link).unwrap();
        for runtime in [krun, link] {
            world.configure("");
            world.configure_runtime(&runtime);
            let words = format!("the low-level runtime {name} makes");
            refused(&world, "one", &words);
        }
    }
}

/// Failure: a checkpoint ends a container whose restore runmig would refuse
#[test]
fn refuses_checkpoint_that_loses_work() {
    let world = World::small();
    world.create("one");
    world.create_saying("plain", &[]);
    let images = world.path("images");
    let image = images.to_str().unwrap();
    let checkpoint = |options: &[&str]| {
        let all = [&["checkpoint"], options].concat();
        said(&mut world.runmig(&all))
    };
    for options in [
        &["one"][..],
        &["--image-path", image, "one"],
        &["one", "--tcp-established"],
        &["--leave-running=false", "one"],
    ] {
        let line = checkpoint(options).refused();
        has(&line, "cannot checkpoint container one: it holds a GPU");
        has(&line, "hint: checkpoint it with --leave-running");
    }
    // The low-level runtime hears of the others; this one makes no checkpoints.
    for options in [
        &["--leave-running", "one"][..],
        &["--image-path", image, "one", "--leave-running"],
        &["--pre-dump", "one"],
        &["plain"],
        &["nobody"],
    ] {
        checkpoint(options).exits(1).warns("stub-runtime: ");
    }
    world.all_go(&["one", "plain"]);
}

/// Failure: the driver's table of capabilities is empty or cut
#[test]
fn names_damaged_table_of_capabilities() {
    let world = World::small();
    let table = world.machine().join("proc/driver/nvidia-caps/mig-minors");
    let whole = fs::read_to_string(&table).unwrap();
    let cut = |length: usize| whole[..length].to_owned();
    chmod(&table, 0o644);
    let (lacks, hint) = (
        "mig-minors has no line gpu0/gi",
        "load the module nvidia again, or reboot",
    );
    let doctor = || world.ctl(&["doctor", "--only", "nodes.mig"]);
    for damaged in [String::new(), cut(40), "no table\n".to_owned()] {
        fs::write(&table, damaged).unwrap();
        let line = world.refuses("one", lacks);
        let why = ": the driver writes this table";
        has(&line, &format!("hint: {hint}{why}"));
        world.as_if_nothing_had_been().unwrap();
        doctor().exits(1).says(lacks).says(hint);
    }
    fs::remove_file(&table).unwrap();
    world.refuses("one", hint);
    doctor().exits(1).says(hint);
    fs::write(&table, whole).unwrap();
    doctor().ok();
    world.create("one");
    world.all_go(&["one"]);
}

#[test]
fn names_state_directory_too_deep_for_sockets() {
    let world = World::with_whole_gpus();
    world.install_mps();
    let deep = format!("/run/runmig-test-{}/{}", unique(), "d".repeat(80));
    let config = world.path("config.toml");
    world.configure("sharing.enforcement = [\"mps\"]");
    let text = fs::read_to_string(&config).unwrap();
    let state = format!("{:?}", world.state());
    fs::write(&config, text.replace(&state, &format!("{deep:?}"))).unwrap();
    let why = "more than 107: set state_dir to a shorter path";
    world.refuses_saying("one", &[("runmig.dev/share", "4Gi")], why);
    world.ctl(&["doctor", "--only", "sharing.levels"]).says(why);
    fs::remove_dir_all(Path::new(&deep).parent().unwrap()).unwrap();
    world.configure("");
}
