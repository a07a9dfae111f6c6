//! Programs, configuration, the state directory and the ledger.

use super::breaking::{breaks, breaks_file, breaks_inside, etc, repairs_inside};
use super::{Diagnosis, setup};
use testkit::prelude::*;

#[test]
fn names_untrusted_program() {
    let setup = setup();
    // The setup's hook is a link to the built one.
    let (hook, built) = (setup.program("runmig-hook"), setup.path("built-hook"));
    fs::rename(&hook, &built).unwrap();
    copy_program(&built, &hook);
    let (broken, repaired) = (|| chmod(&hook, 0o777), || chmod(&hook, 0o755));
    let (text, repair) = breaks(&setup, "fail", "programs.files", broken, repaired);
    begins_with(&text, &format!("cannot trust {}", hook.display()));
    begins_with(&repair, "install runmig again");
}

#[test]
fn names_noexec_mount() {
    let setup = setup();
    let hook = setup.program("runmig-hook");
    let hook = hook.display();
    let bad = format!("mount --bind {hook} {hook}\nmount -o remount,bind,noexec {hook}");
    let (id, worlds) = ("programs.files", ["", bad.as_str()]);
    let (text, repair) = breaks_inside(&setup, "fail", id, worlds);
    assert_eq!(text, format!("the file system of {hook} is mounted noexec"));
    repairs_inside(&setup, id, worlds, &repair);
}

/// A hook of another version, and hooks that work in the administrator's shell but not as an engine starts them.
#[test]
fn names_hook_that_does_not_run() {
    let setup = setup();
    let (hook, kept) = (setup.program("runmig-hook"), setup.path("kept"));
    let version = format!("echo 'runmig-hook {}: a hook'", env!("CARGO_PKG_VERSION"));
    for (body, told) in testkit::rows! {
        "echo 'runmig-hook 9.9.9: a hook'" => "says runmig-hook 9.9.9";
        &format!("[ -n \"$HOME\" ] || exit 1; {version}") => "exit status: 1";
        &format!("[ \"$PWD\" != / ] || exit 1; {version}") => "exit status: 1";
    } {
        let broken = || {
            fs::rename(&hook, &kept).unwrap();
            script(&hook, body);
        };
        let repaired = || fs::rename(&kept, &hook).unwrap();
        let (text, _) = breaks(&setup, "fail", "programs.files", broken, repaired);
        has(&text, told);
    }
}

/// Returns the configuration without a low-level runtime.
fn without_runtime(setup: &Setup) -> String {
    let text = fs::read_to_string(setup.config()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("runtime"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The create has the same words.
#[test]
fn names_broken_low_level_runtime() {
    let setup = setup();
    let bad = format!("runtime = \"/nowhere/runc\"\n{}\n", without_runtime(&setup));
    let (text, _) = breaks_file(&setup, "fail", "programs.runtime", &setup.config(), &bad);
    has(&text, "/nowhere/runc");
    fs::write(setup.config(), &bad).unwrap();
    let create = setup.try_create(&setup.asking("1g.10gb", "true"), "web");
    create.warns(text.split(": ").last().unwrap());
}

#[test]
fn names_old_crun() {
    let old = Setup::on(Low::Crun, Machine::new("A100-80GB", 1));
    let Some(new) = Setup::try_on(Low::NewCrun, Machine::new("A100-80GB", 1)) else {
        return;
    };
    let [old_path, new_path] = [&old, &new].map(|setup| setup.runtime.to_str().unwrap());
    let named = fs::read_to_string(new.config()).unwrap();
    let bad = named.replace(new_path, old_path);
    let (text, repair) = breaks_file(&new, "warn", "programs.runtime", &new.config(), bad);
    begins_with(&text, "crun version 1.8");
    begins_with(&repair, "install crun 1.21");
}

/// The crun of CRI-O lies where runmig does not look.
#[test]
fn names_crun_of_an_engine() {
    let (setup, crun) = (setup(), Low::Crun.find().unwrap());
    fs::write(setup.config(), without_runtime(&setup)).unwrap();
    let there = setup.path("libexec");
    fs::create_dir_all(there.join("crio")).unwrap();
    copy_program(&crun, &there.join("crio/crun"));
    let engine = format!("mount --bind {} /usr/libexec", there.display());
    // No runc and no crun in the usual places; mount itself is in the last of them.
    let hide = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    let hide = hide
        .map(|folder| format!("mount -t tmpfs none {folder}"))
        .join("\n");
    let repair = |engine: &str| {
        let world = format!("{}\n{engine}\n{hide}", etc(&setup));
        let seen = Diagnosis::inside(&setup, &world, &["--only=programs.runtime"]);
        seen.of_id("programs.runtime").1
    };
    begins_with(&repair(&engine), "set runtime = \"/usr/libexec/crio/crun\"");
    // Without the engine's crun the repair is another one.
    begins_with(&repair(""), "install runc");
}

/// Another handler has a configuration and a low-level runtime of its own.
#[test]
fn names_broken_handler() {
    let setup = setup();
    let with = |text: &str| {
        let etc = etc(&setup);
        format!("{etc}\nmkdir /etc/runmig; echo '{text}' >/etc/runmig/other.toml")
    };
    let runtime = |path: &str| with(&format!("runtime = \"{path}\""));
    let good = || runtime(setup.runtime.to_str().unwrap());
    let bad = with("nonsense = 1");
    let (text, _) = breaks_inside(&setup, "fail", "configuration.files", [&good(), &bad]);
    has(&text, "/etc/runmig/other.toml");
    has(&text, "nonsense");
    let bad = runtime("/nowhere/crun");
    let (text, _) = breaks_inside(&setup, "fail", "programs.runtime", [&good(), &bad]);
    has(&text, "/nowhere/crun");
}

#[test]
fn names_broken_configuration() {
    let setup = setup();
    let config = setup.config();
    let good = fs::read_to_string(&config).unwrap();
    let bad = format!("nonsense = 1\n{good}");
    let (text, _) = breaks_file(&setup, "fail", "configuration.files", &config, bad);
    has(&text, "nonsense");
    let uuid = setup.machine.gpu_uuid(0);
    let today = format!(
        "rules name GPUs by index, which may be another GPU after a reboot; today 0 is NVIDIA A100-SXM4-80GB ({uuid})"
    );
    for (rule, told) in testkit::rows! {
        "[[policy.reserve]]\ngpus = [0]\npod = \"x\"" => today.as_str();
        "[policy]\nexclude_gpus = [7]" => "rules name GPUs that this machine lacks: 7";
        "[policy]\nprofiles = [\"9g.*\"]" =>
            "policy.profiles permits no profile that this machine offers, so it refuses every slice";
    } {
        let bad = format!("{good}\n{rule}\n");
        let (text, repair) = breaks_file(&setup, "warn", "configuration.rules", &config, bad);
        assert_eq!(text, told);
        has(&repair, config.to_str().unwrap());
    }
    let limited = format!("{good}\n[[policy.limit]]\nuser = \"*\"\nslices = 2\n");
    fs::write(&config, limited).unwrap();
    let empty = setup.path("empty");
    fs::write(&empty, "").unwrap();
    let bad = format!("mount --bind {} /proc/$$/loginuid", empty.display());
    let (text, _) = breaks_inside(&setup, "warn", "configuration.rules", ["", &bad]);
    ends_with(&text, "so they never apply");
}

#[test]
fn names_state_directory_of_others() {
    let setup = setup();
    let state = setup.state();
    fs::create_dir_all(&state).unwrap();
    chmod(&state, 0o700);
    let look = || Diagnosis::of(&setup, &["--only=state.folder"]);
    look().has("ok", ["state.folder"]);
    chmod(&state, 0o777);
    let (text, repair) = look().of_id("state.folder");
    // The create's own words; the repair is a command.
    let bundle = setup.asking("1g.10gb", "true");
    let create = || setup.try_create(&bundle, "web");
    create().warns(&text);
    said(Command::new("sh").args(["-c", &repair])).ok();
    look().has("ok", ["state.folder"]);
    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "").unwrap();
    create().warns("it is not a folder; hint: set state_dir to a folder");
    let (text, repair) = look().of_id("state.folder");
    has(&text, "it is not a folder");
    assert_eq!(repair, "set state_dir to a folder");
    fs::remove_file(&state).unwrap();
    symlink("/nowhere", &state).unwrap();
    create().warns("is a link that leads nowhere; hint: remove it");
}

#[test]
fn names_full_file_system() {
    let setup = setup();
    let state = setup.state().display().to_string();
    fs::create_dir(&state).unwrap();
    let mount = |options: &str| format!("mount -t tmpfs -o mode=0700,{options} none {state}");
    let good = mount("size=64m,nr_inodes=5000");
    for bad in ["size=8m,nr_inodes=5000", "size=64m,nr_inodes=500"] {
        let worlds = [good.as_str(), &mount(bad)];
        let (text, _) = breaks_inside(&setup, "fail", "state.space", worlds);
        has(&text, &state);
    }
}

#[test]
fn names_damaged_ledger() {
    let setup = setup();
    setup.make("web", "1g.10gb");
    let ledger = setup.state().join("ledger.json");
    let (text, repair) = breaks_file(&setup, "fail", "state.records", &ledger, "x");
    has(&text, "the ledger in ");
    has(&text, "is damaged: ");
    assert_eq!(repair, "run migctl gc --repair as root");
    setup.delete("web");
}
