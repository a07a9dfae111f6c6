//! migctl top on a terminal: what it shows, and that it leaves the terminal as it was.

use super::terminal::Terminal;
use super::{claim, create, setup};
use nix::sys::signal::Signal;
use std::process::Stdio;
use testkit::process::{going, stands_still, until};

/// Ends the page in one way.
type End = fn(&mut Terminal);

/// A long time between two looks, so that only changes draw.
const NEVER: [&str; 2] = ["--delay", "1h"];

#[test]
fn follows_changes_and_resizes() {
    let Some(setup) = setup() else { return };
    claim(&setup, "first", 0);
    let mut top = Terminal::top(&setup, (24, 80), &NEVER, &[("NO_COLOR", "1")]);
    let rows = top.until_shown("3 GPUs, 1 lease");
    assert_eq!(rows.len(), 24, "{rows:?}");
    let page = rows.join("\n");
    assert!(
        page.contains("A  .  .  .  .  .  .  .   7 of 8 free"),
        "{page}"
    );
    assert!(page.contains("GPU 1: NVIDIA L4"), "{page}");
    assert!(
        rows.iter()
            .any(|row| row.starts_with("claim team/first  slice  1g.10gb  0    0:1")),
        "{page}"
    );
    claim(&setup, "second", 1);
    top.until_shown("claim team/second  slice");
    top.resize(60, 200);
    let rows = top.until("60 rows", |rows| rows.len() == 60);
    assert!(rows[59].ends_with("g n k choose"), "{rows:?}");
    top.resize(1, 1);
    let rows = top.until("one row", |rows| rows.len() == 1);
    assert_eq!(rows[0].chars().count(), 1, "{rows:?}");
    top.resize(24, 80);
    top.until("24 rows", |rows| rows.len() == 24);
    top.press("k");
    top.until_shown("only kind slice");
    top.press("k");
    top.until_shown("no leases");
    let colours = top.sent.contains("\x1b[1m") || top.sent.contains("\x1b[31m");
    assert!(!colours, "NO_COLOR");
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn every_end_restores_terminal() {
    let Some(setup) = setup() else { return };
    claim(&setup, "train", 0);
    let ends: [(&str, End); 5] = [
        ("q", |top| top.press("q")),
        ("Ctrl-C", |top| top.press("\x03")),
        ("SIGINT", |top| top.signal(Signal::SIGINT)),
        ("SIGTERM", |top| top.signal(Signal::SIGTERM)),
        ("SIGHUP", |top| top.signal(Signal::SIGHUP)),
    ];
    for (name, end) in ends {
        let mut top = Terminal::top(&setup, (24, 80), &[], &[]);
        top.until_shown("team/train");
        assert!(top.is_raw() && top.sent.contains("\x1b[1m"), "{name}");
        assert!(
            top.sent.starts_with("\x1b[?1049h\x1b[?25l\x1b[?7l"),
            "{name}"
        );
        end(&mut top);
        assert_eq!(top.end().code(), Some(0), "{name}");
        assert!(
            top.sent.ends_with("\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"),
            "{name}: {:?}",
            top.sent
        );
        assert!(!top.is_raw(), "{name}");
    }
}

/// The user's terminal may be stopped, or behind a connection that hangs.
#[test]
fn stuck_terminal_delays_no_signal() {
    let Some(setup) = setup() else { return };
    // One page is larger than what the kernel keeps for a terminal.
    let mut top = Terminal::top(&setup, (60_000, 80), &NEVER, &[]);
    until("it writes", || top.is_raw() && top.is_full());
    stands_still(top.pid());
    top.signal(Signal::SIGWINCH);
    stands_still(top.pid());
    top.signal(Signal::SIGTERM);
    assert_eq!(top.end_unread().code(), Some(0));
    assert!(!top.is_raw());
}

#[test]
fn slow_terminal_gets_whole_page() {
    let Some(setup) = setup() else { return };
    claim(&setup, "train", 0);
    let mut top = Terminal::top(&setup, (60_000, 200), &NEVER, &[("NO_COLOR", "1")]);
    until("it writes", || top.is_full());
    stands_still(top.pid());
    top.signal(Signal::SIGCONT);
    let rows = top.until("60,000 rows", |rows| rows.len() == 60_000);
    assert!(
        rows[59_999].ends_with("g n k choose"),
        "{:?}",
        &rows[59_990..]
    );
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn ends_with_its_terminal() {
    let Some(setup) = setup() else { return };
    let mut top = Terminal::top(&setup, (24, 80), &NEVER, &[]);
    top.until_shown("no leases");
    stands_still(top.pid());
    top.close();
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn driver_that_hangs_leaves_keys() {
    let Some(setup) = setup() else { return };
    claim(&setup, "train", 0);
    let hang = ["--call", "nvmlDeviceGetCount_v2", "--takes", "600s"];
    setup.machine.sim("fault", &hang);
    let mut top = Terminal::top(&setup, (24, 80), &[], &[]);
    top.until_shown("claim team/train");
    top.until_shown("the driver has not answered for");
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}

/// An open session keeps an instance in use, so none stays between two pages.
#[test]
fn keeps_no_session() {
    let Some(setup) = setup() else { return };
    claim(&setup, "train", 0);
    setup.machine.sim("trace", &["on"]);
    let mut top = Terminal::top(&setup, (24, 80), &NEVER, &[]);
    top.until_shown("3 GPUs");
    stands_still(top.pid());
    let trace = setup.machine.sim("trace", &["show"]);
    let calls = |name: &str| trace.lines().filter(|call| call.contains(name)).count();
    assert_eq!(
        (calls("nvmlInit"), calls("nvmlShutdown")),
        (1, 1),
        "{trace}"
    );
}

#[test]
fn shows_memory_and_processes() {
    let Some(setup) = setup() else { return };
    create(&setup, "team", &[("runmig.dev/slice", "1g.10gb")]);
    create(&setup, "team", &[("runmig.dev/gpu", "1")]);
    let slice = setup.machine.the_instance();
    let hold = |place: &[&str], memory: &str| {
        let mut hold = setup.machine.sim_command("hold");
        hold.args(place).args(["--memory", memory]);
        let mut hold = going(hold.stdin(Stdio::piped()));
        hold.until("holding");
        hold
    };
    let _on_slice = hold(
        &[
            "--gpu",
            "0",
            "--gi",
            &slice.gi.to_string(),
            "--ci",
            &slice.ci.to_string(),
        ],
        "3Gi",
    );
    let _on_gpu = [hold(&["--gpu", "1"], "1Gi"), hold(&["--gpu", "1"], "1Gi")];
    let page = setup.migctl(&["top"]).ok().stdout;
    let words = |kind: &str| -> Vec<String> {
        let row = page
            .lines()
            .find(|row| row.split_whitespace().nth(1) == Some(kind));
        let words = row
            .unwrap_or_else(|| panic!("no {kind}: {page}"))
            .split_whitespace();
        words.rev().take(2).map(str::to_owned).collect()
    };
    let mib = |words: &[String]| words[1].trim_end_matches("Mi").parse::<u64>().unwrap();
    let (slice, gpu) = (words("slice"), words("gpu"));
    assert_eq!((slice[0].as_str(), gpu[0].as_str()), ("1", "2"), "{page}");
    assert!((3072..4096).contains(&mib(&slice)), "{page}");
    assert!((2048..3072).contains(&mib(&gpu)), "{page}");
}

#[test]
fn pipe_gets_one_page() {
    let Some(setup) = setup() else { return };
    claim(&setup, "train", 0);
    let said = setup
        .migctl(&["top", "--namespace", "team", "--gpu", "0"])
        .ok();
    let (_, events) = said.stdout.split_once("LAST EVENTS\n").expect("events");
    assert!(events.contains("ready"), "{events}");
    assert!(!said.stdout.contains('\x1b'), "{}", said.stdout);
    assert!(
        said.stdout.contains(", only GPU 0, namespace team\n"),
        "{}",
        said.stdout
    );
    assert!(
        said.stdout
            .contains("A  1g.10gb      0:1   leased: claim team/train\n"),
        "{}",
        said.stdout
    );
    assert!(!said.stdout.contains("GPU 1"), "{}", said.stdout);
    let mut once = Terminal::top(&setup, (24, 80), &["--once"], &[]);
    assert_eq!(once.end().code(), Some(0));
    assert!(
        once.sent.contains("team/train") && !once.sent.contains('\x1b'),
        "{}",
        once.sent
    );
    std::fs::remove_file(setup.machine.library()).unwrap();
    let said = setup.migctl(&["top"]).exits(1);
    assert!(said.stdout.contains("claim team/train"), "{}", said.stdout);
    assert!(
        said.stderr.contains("install the NVIDIA driver"),
        "{}",
        said.stderr
    );
}

/// Ten thousand leases on record, of which one page shows the last.
#[test]
fn scrolls_ten_thousand_leases() {
    let Some(setup) = setup() else { return };
    let _in_memory = super::fill(&setup, 10_000);
    let mut top = Terminal::top(&setup, (24, 80), &NEVER, &[]);
    top.until_shown("10000 leases");
    top.press("\x1b[F");
    top.until_shown("-10000 of 10000");
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}
