//! The file of each slice, and the containers in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::faults::World;
use testkit::process::until;
use testkit::{going, said, unique};

fn jobs(world: &World) -> PathBuf {
    world.path("jobs")
}

/// Turns the files on. A release that waits for a lock of its own never ends.
fn write_jobs(world: &World) {
    let jobs = jobs(world);
    world.configure(&format!(
        "lock_timeout = \"10m\"\nsharing.enforcement = [\"none\"]\ndcgm.job_mapping_dir = {jobs:?}"
    ));
}

fn small() -> World {
    let world = World::small();
    write_jobs(&world);
    world
}

/// The text of each file, by its name.
fn texts(world: &World) -> BTreeMap<String, String> {
    let entries = fs::read_dir(jobs(world)).into_iter().flatten().flatten();
    let text = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((name, fs::read_to_string(path).ok()?))
    };
    entries.filter_map(|entry| text(entry.path())).collect()
}

/// The name of the file of a container's slice.
fn name_of(world: &World, id: &str) -> String {
    let lease = world.lease_of(id);
    match lease["gpuInstanceID"].as_u64() {
        Some(gi) => format!("{}.{gi}", lease["gpuIndex"]),
        None => lease["gpuIndex"].to_string(),
    }
}

#[track_caller]
fn assert_texts(world: &World, wanted: &[(&str, &str)]) {
    let wanted = wanted
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    assert_eq!(texts(world), wanted.collect());
}

#[test]
fn names_container_before_it_exists() {
    let world = small();
    let fifo = world.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.behave(&format!("create-waits {}", fifo.display()));
    let create = going(&mut world.create_command("train"));
    until("the file has the container", || {
        texts(&world).values().any(|text| text == "train\n")
    });
    assert!(!world.root().join("train").join("state.json").exists());
    fs::write(&fifo, "go on").unwrap();
    create.end().ok();
    world.behave("");
    let name = name_of(&world, "train");
    assert!(name.starts_with("0."), "{name}");
    assert_texts(&world, &[(&name, "train\n")]);
    let mode = fs::metadata(jobs(&world).join(&name))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o644);
    // An exporter that has just listed the file must find it.
    world.delete("train");
    assert_texts(&world, &[(&name, "")]);
}

#[test]
fn names_pod_and_each_container() {
    let world = small();
    for id in ["one", "two"] {
        world.bundle_saying(
            id,
            &[
                ("runmig.dev/slice", world.profile),
                ("runmig.dev/scope", "pod"),
                ("io.kubernetes.cri.sandbox-id", "sandbox"),
                ("io.kubernetes.cri.sandbox-namespace", "team-a"),
                ("io.kubernetes.cri.sandbox-name", "web-0"),
                ("io.kubernetes.cri.container-name", id),
            ],
        );
        world.create(id);
    }
    let name = name_of(&world, "one");
    assert_texts(&world, &[(&name, "team-a/web-0/one\nteam-a/web-0/two\n")]);
    world.delete("one");
    assert_texts(&world, &[(&name, "team-a/web-0/two\n")]);
    world.delete("two");
    assert_texts(&world, &[(&name, "")]);
}

#[test]
fn shares_have_their_gpu() {
    let world = World::with_whole_gpus();
    write_jobs(&world);
    let mut containers = BTreeMap::<String, Vec<&str>>::new();
    for (id, asked) in [
        ("one", "runmig.dev/share"),
        ("two", "runmig.dev/share"),
        ("all", "runmig.dev/gpu"),
    ] {
        let amount = if asked.ends_with("gpu") { "1" } else { "4Gi" };
        world.bundle_saying(id, &[(asked, amount)]);
        let mut create = world.runmig(&["create", "--bundle"]);
        said(create.arg(world.path("bundles").join(id)).arg(id)).ok();
        containers.entry(name_of(&world, id)).or_default().push(id);
    }
    let wanted: Vec<(String, String)> = containers
        .into_iter()
        .map(|(gpu, ids)| (gpu, ids.iter().map(|id| format!("{id}\n")).collect()))
        .collect();
    assert_eq!(texts(&world).into_iter().collect::<Vec<_>>(), wanted);
    assert!(
        wanted.iter().all(|(gpu, _)| gpu == "1" || gpu == "2"),
        "{wanted:?}"
    );
}

#[test]
fn create_that_fails_empties_its_file() {
    let world = small();
    world.behave("create-fails-late");
    said(&mut world.create_command("train")).exits(1);
    let texts = texts(&world);
    assert!(
        texts.len() == 1 && texts.values().all(String::is_empty),
        "{texts:?}"
    );
}

/// A kill leaves a wrong file behind, and an unfinished one.
#[test]
fn collection_repairs_files() {
    let world = small();
    world.create("train");
    let name = name_of(&world, "train");
    let jobs = jobs(&world);
    fs::write(jobs.join(&name), "gone\n").unwrap();
    fs::write(jobs.join("0.77"), "gone\n").unwrap();
    let ended = std::process::Command::new("true")
        .spawn()
        .and_then(|mut child| {
            child.wait()?;
            Ok(child.id())
        });
    let unfinished = format!(".runmig-{}-1-0.5", ended.unwrap());
    fs::write(jobs.join(&unfinished), "half").unwrap();
    let running = format!(".runmig-{}-1-0.6", std::process::id());
    fs::write(jobs.join(&running), "half").unwrap();
    fs::write(jobs.join("README"), "an administrator's").unwrap();
    // It comes first, and keeps no other file from its text.
    fs::create_dir(jobs.join("0")).unwrap();
    world.gc().ok();
    assert_texts(
        &world,
        &[
            (&running, "half"),
            (&name, "train\n"),
            ("0.77", ""),
            ("README", "an administrator's"),
        ],
    );
}

/// A collection by systemd has a umask that would keep dcgm-exporter out.
#[test]
fn umask_hides_no_file() {
    let world = small();
    let mut command = world.create_command("train");
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
            Ok(())
        });
    }
    said(&mut command).ok();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(jobs(&world)), 0o755);
    assert_eq!(mode(jobs(&world).join(name_of(&world, "train"))), 0o644);
}

#[test]
fn concurrent_changes_lose_no_container() {
    let world = World::with_whole_gpus();
    write_jobs(&world);
    let ids: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
    let creates: Vec<_> = ids
        .iter()
        .map(|id| {
            let wanted = [("runmig.dev/share", "1Gi")];
            let bundle = world.bundle_saying(id, &wanted);
            going(world.runmig(&["create", "--bundle"]).arg(bundle).arg(id))
        })
        .collect();
    for create in creates {
        create.end().ok();
    }
    // Deletes at once, and a reader that lists and then reads, as dcgm-exporter does.
    let over = AtomicBool::new(false);
    let (gone, ids) = ids.split_at(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for entry in fs::read_dir(jobs(&world)).unwrap().flatten() {
                    if !entry.file_name().to_string_lossy().starts_with('.') {
                        fs::read(entry.path()).expect("a file that is listed");
                    }
                }
            }
        });
        let delete = |id: &String| going(&mut world.runmig(&["delete", "--force", id]));
        let deletes: Vec<_> = gone.iter().map(delete).collect();
        for delete in deletes {
            delete.end().ok();
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut wanted = BTreeMap::<String, String>::new();
    for id in ids {
        wanted
            .entry(name_of(&world, id))
            .or_default()
            .push_str(&format!("{id}\n"));
    }
    let mut texts = texts(&world);
    texts.retain(|_, text| !text.is_empty());
    assert_eq!(texts, wanted);
}

/// The log has the reason, and the create its slice.
#[test]
fn wrong_folder_fails_no_create() {
    let world = World::small();
    let log = || fs::read_to_string(world.state().join("runmig.log")).unwrap_or_default();
    let complaints = |text: &str| text.matches("the job files are not up to date").count();
    let open = world.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for (place, why) in [
        (
            PathBuf::from("/nonexistent/a/jobs"),
            "No such file or directory",
        ),
        (open.join("jobs"), "others than root can write to it"),
        (world.path("config.toml"), "not a folder"),
    ] {
        world.configure(&format!("dcgm.job_mapping_dir = {place:?}"));
        let (id, before) = (unique(), complaints(&log()));
        let created = world.create(&id);
        assert_eq!(created.stderr, "", "{place:?}");
        let log = log();
        assert_eq!(complaints(&log), before + 1, "{log}");
        let last = log
            .lines()
            .rfind(|line| line.contains("job files"))
            .unwrap();
        assert!(last.contains(why), "{last}");
        world.delete(&id);
    }
}

/// A link in the place of a file is replaced, and what it leads to stays.
#[test]
fn replaces_link_itself() {
    let world = small();
    world.create("train");
    let name = name_of(&world, "train");
    let precious = world.path("precious");
    fs::write(&precious, "precious").unwrap();
    let file = jobs(&world).join(&name);
    fs::remove_file(&file).unwrap();
    symlink(&precious, &file).unwrap();
    world.gc().ok();
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    assert_texts(&world, &[(&name, "train\n")]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}
