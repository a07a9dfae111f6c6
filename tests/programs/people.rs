//! What people see: misspelt requests, names of containers, widths, and users who are not root.

use std::os::unix::process::CommandExt;
use testkit::prelude::*;

fn setup(gpu: &str, count: u32) -> Setup {
    Setup::on(Low::Runc, Machine::new(gpu, count))
}

/// Returns an id as engines make them.
fn engine_id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// Failure: a key or a value of a request is misspelt, and another project's key looks like one
#[test]
fn never_starts_a_misspelt_request_without_its_slice() {
    let setup = setup("H100-80GB", 1);
    for (key, value, hint) in testkit::rows! {
        "runmig.dev/slices", "1g.10gb" => "write runmig.dev/slice";
        "runmig.dev/slcie", "1g.10gb" => "write runmig.dev/slice";
        "slices.runmig.dev/web", "1g.10gb" => "write slice.runmig.dev/web";
        "x.runmig.dev/web", "1g.10gb" => "write slice.runmig.dev/web or share.runmig.dev/web or gpu.runmig.dev/web";
        "runmig/slice", "1g.10gb" => "write runmig.dev/slice";
        "runmg.dev/slice", "1g.10gb" => "write runmig.dev/slice";
        "rnumig.dev/gpu", "1" => "write runmig.dev/gpu";
        "Runmig.dev/share", "8Gi" => "write runmig.dev/share";
        "runmig.io/slice", "1g.10gb" => "write runmig.dev/slice";
        "runmig.dev/slice", "20GiB" => "write 20Gi";
        "runmig.dev/slice", "40 gb" => "write 40G";
        "runmig.dev/slice", "mig-1g.10gb" => "write 1g.10gb";
        "runmig.dev/slice", "1G.10GB" => "write 1g.10gb";
        "runmig.dev/share", "8GiB" => "write 8Gi";
        "runmig.dev/gpu", "1g.10gb" => "write runmig.dev/slice: 1g.10gb";
        "runmig.dev/slice", "1g.5gb" => "request one of 1g.10gb, ";
        "runmig.dev/slice", "2g.12gb" => "request one of 2g.20gb, ";
    } {
        let bundle = setup.bundle("true");
        bundle.annotate(key, value);
        let line = setup.refused(&bundle);
        assert!(
            line.contains(&format!("hint: {hint}")),
            "{key}={value}: {line}"
        );
        setup.nothing_is_left();
    }
    for key in [
        "rundig.dev/owner",
        "example.com/runmig",
        "runmig.example.com/owner",
        "ruming.dev/slice",
        "tekton.dev/slice",
    ] {
        let bundle = setup.bundle("true");
        bundle.annotate(key, "1g.10gb");
        let before = bundle.bytes();
        setup.run(&bundle);
        assert_eq!(bundle.bytes(), before, "{key}");
    }
}

/// Failure: a user who is not root asks migctl
#[test]
fn refuses_users_who_may_not_read_the_ledger() {
    let setup = setup("A100-80GB", 1);
    setup.create(&setup.asking("1g.10gb", "true"), "train");
    let migctl = setup.path("migctl");
    process::copy_program(&setup.program("migctl"), &migctl);
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(&migctl);
    open(&setup.path(""));
    open(setup.config().parent().unwrap());
    for verb in [
        &["gpus"][..],
        &["inspect"],
        &["inspect", "train"],
        &["list"],
        &["top", "--once"],
        &["explain", "1g.10gb"],
        &["explain", "--gpu", "1"],
        &["release", "train"],
        &["gc", "--dry-run"],
        &["events"],
        &["metrics"],
    ] {
        let said = said(setup.plain(&migctl).args(verb).uid(65534).gid(65534)).exits(1);
        assert_eq!(said.stdout, "", "{verb:?}");
        let line = format!(
            "migctl: cannot read the ledger in {}",
            setup.state().display()
        );
        assert!(said.stderr.starts_with(&line), "{verb:?}: {}", said.stderr);
        ends_with(&said.stderr, "hint: run it with sudo\n");
    }
    said(setup.plain(&migctl).arg("version").uid(65534).gid(65534)).ok();
    let mut doctor = setup.plain(&migctl);
    doctor.args(["doctor", "--only", "mig"]);
    let doctor = said(doctor.uid(65534).gid(65534));
    assert!(!doctor.stdout.contains("runmig did not make"), "{doctor:?}");
    has(
        &doctor.stdout,
        "the ledger cannot be read, see state.records",
    );
    setup.delete("train");
}

#[test]
fn shows_names_of_docker_beside_short_ids() {
    let setup = setup("L4", 2);
    for (digit, name) in [('a', "/web"), ('b', "/db_1.x")] {
        let id = engine_id(digit);
        let folder = setup.path("containers").join(&id);
        fs::create_dir_all(&folder).unwrap();
        let record = json!({"ID": id, "Name": name});
        fs::write(folder.join("config.v2.json"), record.to_string()).unwrap();
        fs::write(folder.join("hostname"), "").unwrap();
        let bundle = setup.bundle("sleep 1000");
        bundle.annotate("runmig.dev/gpu", "1");
        let source = folder.join("hostname");
        bundle.mount([bind(source, "/etc/hostname", &["rbind"])]);
        setup.create(&bundle, &id);
    }
    let table = setup.tells(&["list"]);
    has(&table, "aaaaaaaaaaaa  web ");
    has(&table, "bbbbbbbbbbbb  db_1.x ");
    let gpus = setup.tells(&["gpus"]);
    has(&gpus, "container web (aaaaaaaaaaaa) has it");
    has(&gpus, "container db_1.x (bbbbbbbbbbbb) has it");
    has(&setup.tells(&["top", "--once"]), "web (aaaaaaaaaaaa)");
    has(&setup.tells(&["events"]), "web (aaaaaaaaaaaa)");
    let bundle = setup.bundle("true");
    bundle.annotate("runmig.dev/gpu", "1");
    has(
        &setup.refused(&bundle),
        "container web (aaaaaaaaaaaa) has it",
    );
    let ids = setup.tells(&["list", "-q", "--container", "db_1.x"]);
    assert_eq!(
        ids,
        setup.tells(&["list", "-q", "--container", "bbbbbbbbbbbb"])
    );
    assert_eq!(ids.lines().count(), 1);
    let lives = setup.migctl(&["release", "web"]).exits(1).stderr;
    has(&lives, "container web (aaaaaaaaaaaa) lives");
    for text in [&table, &gpus, &lives] {
        assert!(!text.contains(&engine_id('a')), "{text}");
    }
    let inspected = setup.tells(&["inspect", "web"]);
    has(&inspected, "containerName: web\n");
    has(&inspected, &format!("container: {}\n", engine_id('a')));
    let json = setup.json(&["inspect", "db_1.x", "-o", "json"]);
    assert_eq!(json["items"][0]["containerName"], "db_1.x");
    has(
        &setup.migctl(&["inspect", "nobody"]).exits(1).stderr,
        "cannot find container or lease nobody",
    );
    for digit in ['a', 'b'] {
        setup.delete(&engine_id(digit));
    }
}

#[test]
fn fits_into_a_hundred_columns() {
    let setup = setup("A100-80GB", 8);
    for (n, slice) in ["3g.40gb", "1g.10gb"].into_iter().enumerate() {
        let bundle = setup.asking(slice, "true");
        let long = format!("{}-{n}", "very-long-name".repeat(4));
        bundle.annotate("io.kubernetes.cri.sandbox-namespace", &long);
        bundle.annotate("io.kubernetes.cri.sandbox-name", &long);
        bundle.annotate("io.kubernetes.cri.container-name", &long);
        setup.create(&bundle, &engine_id(char::from(b'a' + n as u8)));
    }
    for call in [
        &["list"][..],
        &["inspect"],
        &["inspect", "-d"],
        &["inspect", "-d", "--unit", "MiB"],
    ] {
        let said = setup.tells(call);
        let longest = said.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{call:?}: {said}");
        assert_eq!(said.contains('…'), call != ["inspect"], "{call:?}: {said}");
    }
    let inspect = setup.tells(&["inspect"]);
    assert!(
        (0..8).all(|gpu| inspect.contains(&format!("GPU{gpu}("))),
        "{inspect}"
    );
    let wide = setup.tells(&["list", "-o", "wide"]);
    assert!(!wide.contains('…'), "{wide}");
    has(&wide, "MIG UUID");
    for digit in ['a', 'b'] {
        setup.delete(&engine_id(digit));
    }
}

#[test]
fn orders_and_shortens_lists() {
    let setup = setup("A100-80GB", 2);
    for (id, slice) in [("c1", "2g.20gb"), ("c3", "1g.10gb"), ("c2", "3g.40gb")] {
        setup.create(&setup.asking(slice, "true"), id);
    }
    let ids = |by: &str| -> Vec<String> {
        let said = setup.tells(&["list", "--no-headers", "--sort", by]);
        said.lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("name"), ["c1", "c2", "c3"]);
    assert_eq!(ids("profile"), ["c3", "c1", "c2"]);
    assert_eq!(ids("gpu").len(), 3);
    let quiet = setup.tells(&["list", "-q", "--sort", "profile"]);
    let named = setup.tells(&["list", "-o", "name", "--sort", "profile"]);
    assert_eq!(quiet, named);
    setup
        .migctl(&["inspect", quiet.lines().next().unwrap()])
        .ok()
        .says("container: c3\n");
    has(
        &setup.migctl(&["list", "--sort", "colour"]).exits(2).stderr,
        "profile",
    );

    let one = setup.tells(&["gpus", "--gpu", "1"]);
    begins_with(&one, "GPU 1:");
    lacks(&one, "GPU 0:");
    let uuid = setup.machine.gpu_uuid(0);
    let json = setup.json(&["gpus", "--gpu", &uuid, "-o", "json"]);
    assert_eq!(json["items"].as_array().unwrap().len(), 1);
    has(
        &setup.migctl(&["gpus", "--gpu", "7"]).exits(1).stderr,
        "cannot find this GPU",
    );
    let version = concat!("migctl ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(setup.tells(&["version"]), version);
    assert_eq!(setup.tells(&["--version"]), version);
    for (verb, offers, hides) in [
        ("list", "wide", "--config-file"),
        ("gpus", "--output", "wide"),
        ("top", "--once", "--output"),
        ("version", "version", "--output"),
        ("metrics", "--textfile", "--output"),
    ] {
        let help = setup.tells(&[verb, "--help"]);
        assert!(
            help.contains(offers) && !help.contains(hides),
            "{verb}: {help}"
        );
    }
    setup.json(&["-o", "json", "list"]);
    for id in ["c1", "c2", "c3"] {
        setup.delete(id);
    }
}
