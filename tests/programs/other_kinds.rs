//! Calls that would lose a slice: a virtual machine or a module of WebAssembly in a container's place, and a checkpoint that
//! cannot be restored.

use testkit::prelude::*;

const SLICE: (&str, &str) = ("runmig.dev/slice", "1g.6gb");

#[track_caller]
fn refused(world: &World, id: &str, words: &str) {
    let line = said(&mut world.create_command(id)).refused();
    has(&line, words);
    has(
        &line,
        "gets no GPU; hint: use runc or crun without such a handler",
    );
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
        refused(
            &world,
            &id,
            &format!("annotation {}={} makes", handler.0, handler.1),
        );
    }
    // Without a request it is the engine's own business.
    world.bundle_saying("plain", &[handlers[0]]);
    world.create("plain");
    world.bundle_saying("other", &[SLICE, ("run.oci.hooks.stderr", "/dev/null")]);
    world.create("other");
    world.all_go(&["plain", "other"]);
}

#[test]
fn refuses_krun_by_name() {
    for name in ["krun", "crun-wasm"] {
        let world = World::small();
        let krun = world.path(name);
        let runc = world.bare(&[]).get_program().to_owned();
        fs::copy(runc, &krun).unwrap();
        world.configure_runtime(&krun);
        refused(
            &world,
            "one",
            &format!("the low-level runtime {name} makes"),
        );
        let link = world.path(&format!("links/{name}"));
        fs::create_dir(link.parent().unwrap()).unwrap();
        symlink(world.bare(&[]).get_program(), &link).unwrap();
        world.configure("");
        world.configure_runtime(&link);
        refused(
            &world,
            "one",
            &format!("the low-level runtime {name} makes"),
        );
    }
}

/// Failure: a checkpoint ends a container whose restore runmig would refuse
#[test]
fn refuses_checkpoint_that_loses_work() {
    let world = World::small();
    world.create("one");
    world.bundle_saying("plain", &[]);
    world.create("plain");
    let images = world.path("images");
    let image = images.to_str().unwrap();
    for options in [
        &["checkpoint", "one"][..],
        &["checkpoint", "--image-path", image, "one"],
        &["checkpoint", "one", "--tcp-established"],
        &["checkpoint", "--leave-running=false", "one"],
    ] {
        let line = said(&mut world.runmig(options)).refused();
        has(&line, "cannot checkpoint container one: it holds a GPU");
        has(&line, "hint: checkpoint it with --leave-running");
    }
    // The low-level runtime hears of the others; this one makes no checkpoints.
    for options in [
        &["checkpoint", "--leave-running", "one"][..],
        &[
            "checkpoint",
            "--image-path",
            image,
            "one",
            "--leave-running",
        ],
        &["checkpoint", "--pre-dump", "one"],
        &["checkpoint", "plain"],
        &["checkpoint", "nobody"],
    ] {
        let said = said(&mut world.runmig(options)).exits(1);
        has(&said.stderr, "stub-runtime: ");
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
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&table, mode).unwrap();
    for damaged in [String::new(), cut(40), "no table\n".to_owned()] {
        fs::write(&table, damaged).unwrap();
        let line = said(&mut world.create_command("one")).refused();
        has(&line, "mig-minors has no line gpu0/gi");
        has(
            &line,
            "hint: the driver writes this table: load the module nvidia again, or reboot",
        );
        world.as_if_nothing_had_been().unwrap();
        let doctor = said(&mut world.migctl(&["doctor", "--only", "nodes.mig"])).exits(1);
        has(&doctor.stdout, "mig-minors has no line gpu0/gi");
        has(&doctor.stdout, "load the module nvidia again, or reboot");
    }
    fs::remove_file(&table).unwrap();
    let hint = "load the module nvidia again, or reboot";
    has(&said(&mut world.create_command("one")).refused(), hint);
    let doctor = said(&mut world.migctl(&["doctor", "--only", "nodes.mig"])).exits(1);
    has(&doctor.stdout, hint);
    fs::write(&table, whole).unwrap();
    said(&mut world.migctl(&["doctor", "--only", "nodes.mig"])).ok();
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
    world.bundle_saying("one", &[("runmig.dev/share", "4Gi")]);
    let line = said(&mut world.create_command("one")).refused();
    has(&line, "more than 107: set state_dir to a shorter path");
    let doctor = said(&mut world.migctl(&["doctor", "--only", "sharing.levels"]));
    has(
        &doctor.stdout,
        "more than 107: set state_dir to a shorter path",
    );
    fs::remove_dir_all(Path::new(&deep).parent().unwrap()).unwrap();
    world.configure("");
}
