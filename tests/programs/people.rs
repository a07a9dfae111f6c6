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
        "x.runmig.dev/web", "1g.10gb" => "write slice.runmig.dev/web or share.runmig.dev/web or gpu.runmig.dev/web";
        "runmg.dev/slice", "1g.10gb" => "write runmig.dev/slice";
        "rnumig.dev/gpu", "1" => "write runmig.dev/gpu";
        "Runmig.dev/share", "8Gi" => "write runmig.dev/share";
        "runmig.io/slice", "1g.10gb" => "write runmig.dev/slice";
        "runmig.dev/slice", "20GiB" => "write 20Gi";
        "runmig.dev/slice", "mig-1g.10gb" => "write 1g.10gb";
        "runmig.dev/share", "8GiB" => "write 8Gi";
        "runmig.dev/gpu", "1g.10gb" => "write runmig.dev/slice: 1g.10gb";
        "runmig.dev/slice", "1g.5gb" => "request one of 1g.10gb, ";
        "runmig.dev/slice", "2g.12gb" => "request one of 2g.20gb, ";
    } {
        setup.refuses(&[(key, value)], &format!("hint: {hint}"));
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
    setup.make("train", "1g.10gb");
    let migctl = setup.path("migctl");
    copy_program(&setup.program("migctl"), &migctl);
    chmod(&migctl, 0o755);
    chmod(setup.path(""), 0o755);
    let as_nobody = |verb: &str| {
        let mut migctl = setup.plain(&migctl);
        said(migctl.args(verb.split(' ')).uid(65534).gid(65534))
    };
    let state = setup.state().display().to_string();
    let verbs = "gpus; inspect; inspect train; list; top --once; explain 1g.10gb; explain --gpu 1; release train; \
                 gc --dry-run; events; metrics";
    for verb in verbs.split("; ") {
        eprintln!("{verb}");
        let said = as_nobody(verb).exits(1);
        assert_eq!(said.stdout, "", "{verb}");
        let why = format!("migctl: cannot read the ledger in {state}");
        begins_with(&said.stderr, &why);
        ends_with(&said.stderr, "hint: run it with sudo\n");
    }
    as_nobody("version").ok();
    let doctor = as_nobody("doctor --only mig");
    lacks(&doctor.stdout, "runmig did not make");
    doctor.says("the ledger cannot be read, see state.records");
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
    let why = "container web (aaaaaaaaaaaa) has it";
    setup.refuses(&[("runmig.dev/gpu", "1")], why);
    let id = |name: &str| setup.tells(&["list", "-q", "--container", name]);
    assert_eq!(id("db_1.x"), id("bbbbbbbbbbbb"));
    assert_eq!(id("db_1.x").lines().count(), 1);
    let lives = setup.migctl(&["release", "web"]).exits(1).stderr;
    has(&lives, "container web (aaaaaaaaaaaa) lives");
    for text in [&table, &gpus, &lives] {
        lacks(text, &engine_id('a'));
    }
    let inspected = setup.tells(&["inspect", "web"]);
    has(&inspected, "containerName: web\n");
    has(&inspected, &format!("container: {}\n", engine_id('a')));
    let item = &setup.items(&["inspect", "db_1.x"])[0];
    assert_eq!(item["containerName"], "db_1.x");
    let nobody = setup.migctl(&["inspect", "nobody"]).exits(1);
    nobody.warns("cannot find container or lease nobody");
    setup.ends(&['a', 'b'].map(engine_id));
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
    for call in ["list", "inspect", "inspect -d", "inspect -d --unit MiB"] {
        let said = setup.tells(&call.split(' ').collect::<Vec<_>>());
        let longest = said.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{call}: {said}");
        assert_eq!(said.contains('…'), call != "inspect", "{call}: {said}");
    }
    let inspect = setup.tells(&["inspect"]);
    (0..8).for_each(|gpu| has(&inspect, &format!("GPU{gpu}(")));
    let wide = setup.tells(&["list", "-o", "wide"]);
    lacks(&wide, "…");
    has(&wide, "MIG UUID");
    setup.ends(&['a', 'b'].map(engine_id));
}

#[test]
fn orders_and_shortens_lists() {
    let setup = setup("A100-80GB", 2);
    for (id, slice) in [("c1", "2g.20gb"), ("c3", "1g.10gb"), ("c2", "3g.40gb")] {
        setup.make(id, slice);
    }
    for (by, order) in [
        ("name", ["c1", "c2", "c3"]),
        ("profile", ["c3", "c1", "c2"]),
        // Equal ones go by their place on the GPU.
        ("state", ["c2", "c1", "c3"]),
        ("gpu", ["c2", "c1", "c3"]),
    ] {
        let said = setup.tells(&["list", "--no-headers", "--sort", by]);
        let ids = said.lines().map(|line| line.split(' ').next().unwrap());
        assert_eq!(ids.collect::<Vec<_>>(), order, "{by}");
    }
    let quiet = setup.tells(&["list", "-q", "--sort", "profile"]);
    let named = setup.tells(&["list", "-o", "name", "--sort", "profile"]);
    assert_eq!(quiet, named);
    let first = setup.tells(&["inspect", quiet.lines().next().unwrap()]);
    has(&first, "container: c3\n");
    let colour = setup.migctl(&["list", "--sort", "colour"]);
    colour.exits(2).warns("profile");

    let one = setup.tells(&["gpus", "--gpu", "1"]);
    begins_with(&one, "GPU 1:");
    lacks(&one, "GPU 0:");
    let uuid = setup.machine.gpu_uuid(0);
    assert_eq!(setup.items(&["gpus", "--gpu", &uuid]).len(), 1);
    let seventh = setup.migctl(&["gpus", "--gpu", "7"]).exits(1);
    seventh.warns("cannot find GPU 7: none that answers has this name");
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
        has(&help, offers);
        lacks(&help, hides);
    }
    setup.json(&["-o", "json", "list"]);
    setup.ends(&["c1", "c2", "c3"]);
}
