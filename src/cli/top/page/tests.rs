mod machine;

use super::*;
use crate::cli::filter::Filter;
use crate::cli::top::columns::Column;
use crate::cli::top::keys::Key;
use machine::{container, created, facts, gpu, held, now, usage, whole};
use runmig_lease::error::is_hidden;
use runmig_lease::store::{Portion, Waiter, Waiting};

fn view() -> View {
    View::new(&Filter::default(), Column::Gpu, false)
}

fn sized(rows: usize, columns: usize) -> Size {
    Size {
        rows: Some(rows),
        columns: Some(columns),
    }
}

fn text(page: &Page) -> String {
    let lines = page.lines.iter().map(|line| line.text.as_str());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the first words of the rows of leases.
fn holders(facts: &Facts, view: &View) -> Vec<String> {
    let page = page(facts, view, Size::UNLIMITED, now());
    let lines = page.lines.iter().map(|line| line.text.as_str());
    let rows = lines.skip_while(|line| !line.starts_with("HOLDER")).skip(1);
    rows.map(|row| row.split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn draws_gpus_and_leases() {
    let page = page(&facts(), &view(), sized(24, 80), now());
    let expected = "\
migctl top 08:01:00Z: 1 GPU, 4 leases, 0 waiting, by GPU
GPU 0: NVIDIA A100 (GPU-0), MIG enabled
slice   0  1  2  3  4  5  6
        A  .  .  B  .  .  .   5 of 7 free, 0 % fragmented
  A  1g.10gb      0:1   leased: team/train/a
  B  1g.10gb      3:1   quarantined: other/web/d, could not be released

HOLDER         KIND   PROFILE       GPU  PLACE  STATE        AGE  USED    PROCS
team/train/a   slice  1g.10gb       0    0:1    ready        60s  512Mi   1
other/web/d    slice  1g.10gb       0    3:1    quarantined  10m  12Mi    0
team/infer/b   share  share 4096Mi  1    -      ready        60s  3072Mi  2
other/whole/c  gpu    gpu           2    -      ready        60s  -       -";
    let found = text(&page);
    assert!(found.starts_with(expected), "{found}");
    assert!(found.ends_with(&format!("\n1-4 of 4; {KEYS}")), "{found}");
    let alarms = page.lines.iter().filter(|line| line.style == Style::Alarm);
    assert_eq!(alarms.count(), 1);
}

/// A terminal of every size, with names of 300 characters that a terminal would obey.
#[test]
fn fits_every_size() {
    let mut facts = facts();
    let long = "\u{1b}[2J\u{9b}5A\u{202e}\n".to_owned() + &"n".repeat(300);
    facts.inventory.leases = (0..10_000)
        .map(|n| {
            held(
                n,
                whole(n as u32 % 8),
                Portion::All,
                container("team", &long, &long),
            )
        })
        .collect();
    facts.inventory.snapshot.gpus = (0..8).map(gpu).collect();
    facts.inventory.snapshot.gpus[0].name = long.clone();
    facts.gpus = (0..8).map(|_| usage()).collect();
    facts.complaints = vec![long.clone(); 3];
    facts.events = vec![long.clone(); 9];
    let waiter = Waiter {
        container: long.clone(),
        request: long,
        ..Waiter::default()
    };
    facts.inventory.waiting = (0..9)
        .map(|number| Waiting {
            number,
            waiter: Some(waiter.clone()),
        })
        .collect();
    for (rows, columns) in [
        (1, 1),
        (1, 80),
        (2, 2),
        (5, 20),
        (24, 80),
        (60, 200),
        (200, 1),
    ] {
        let page = page(&facts, &view(), sized(rows, columns), now());
        assert_eq!(page.lines.len(), rows, "{rows}x{columns}");
        for line in &page.lines {
            assert!(
                line.text.chars().count() <= columns,
                "{rows}x{columns}: {line:?}"
            );
            assert!(!line.text.chars().any(is_hidden), "{line:?}");
        }
        if rows >= 24 {
            assert!(
                page.visible >= rows / 3,
                "{rows}x{columns}: {}",
                page.visible
            );
        }
    }
    let page = page(&facts, &view(), sized(24, 80), now());
    let found = text(&page);
    for word in ["GPU 0:", "… ", "HOLDER", "1-"] {
        assert!(found.contains(word), "no {word}: {found}");
    }
}

#[test]
fn more_room_gives_more_detail() {
    let mut facts = facts();
    facts.inventory.snapshot.gpus = (0..8).map(gpu).collect();
    facts.gpus = (0..8).map(|_| usage()).collect();
    let drawn = |rows| text(&page(&facts, &view(), sized(rows, 200), now()));
    assert!(drawn(60).contains("leased: team/train/a"));
    assert!(!drawn(32).contains("leased: team/train/a"));
    assert!(drawn(32).contains("GPU 7: NVIDIA A100 (GPU-7), MIG enabled"));
    assert!(drawn(24).contains("GPU 7: .  .  .  .  .  .  .   7 of 7 free"));
    assert!(!drawn(12).contains("GPU 7"));
    assert!(drawn(12).contains("more\n"));
}

#[test]
fn keys_scroll_leases() {
    let mut facts = facts();
    facts.inventory.leases = (0..100)
        .map(|n| {
            held(
                n,
                whole(3),
                Portion::All,
                container("team", &format!("{n:02}"), "c"),
            )
        })
        .collect();
    let mut view = view();
    let mut press = |keys: &[Key]| {
        let mut now_shown = page(&facts, &view, sized(24, 80), now());
        for key in keys {
            assert!(view.press(*key, &now_shown, &facts));
            now_shown = page(&facts, &view, sized(24, 80), now());
        }
        let rows = now_shown.lines.iter().map(|line| line.text.clone());
        let first = rows.skip_while(|row| !row.starts_with("HOLDER")).nth(1);
        (first.unwrap()[..7].to_owned(), now_shown.visible)
    };
    let (first, visible) = press(&[]);
    assert_eq!(first, "team/00");
    assert_eq!(press(&[Key::Down, Key::Down, Key::Up]).0, "team/01");
    assert_eq!(
        press(&[Key::Home, Key::PageDown]).0,
        format!("team/{visible:02}")
    );
    let last = format!("team/{:02}", 100 - visible);
    assert_eq!(press(&[Key::End, Key::Down, Key::PageDown]).0, last);
    assert_eq!(press(&[Key::Home, Key::Up, Key::PageUp]).0, "team/00");
    view.offset = 1000;
    let beyond = page(&facts, &view, sized(24, 80), now());
    assert_eq!(beyond.offset, 100 - beyond.visible);
    assert!(!view.press(Key::Quit, &beyond, &facts));
}

#[test]
fn orders_by_column() {
    let facts = facts();
    let by =
        |sort, reverse| holders(&facts, &View::new(&Filter::default(), sort, reverse)).join(" ");
    let (a, b, c, d) = (
        "team/train/a",
        "team/infer/b",
        "other/whole/c",
        "other/web/d",
    );
    assert_eq!(by(Column::Gpu, false), [a, d, b, c].join(" "));
    assert_eq!(by(Column::Gpu, true), [c, b, d, a].join(" "));
    assert_eq!(by(Column::Holder, false), [d, c, b, a].join(" "));
    assert_eq!(by(Column::Used, false), [b, a, d, c].join(" "));
    assert_eq!(by(Column::Procs, false), [b, a, d, c].join(" "));
    assert_eq!(by(Column::Age, true).split(' ').next(), Some(d));
    assert_eq!(by(Column::State, false).split(' ').next(), Some(d));
    let mut view = view();
    let shown = page(&facts, &view, Size::UNLIMITED, now());
    view.press(Key::PreviousColumn, &shown, &facts);
    view.press(Key::Reverse, &shown, &facts);
    assert_eq!((view.sort, view.reverse), (Column::Profile, true));
}

#[test]
fn keys_choose_leases() {
    let facts = facts();
    let mut view = view();
    let shown = page(&facts, &view, Size::UNLIMITED, now());
    let mut after = |key| {
        view.press(key, &shown, &facts);
        (holders(&facts, &view).len(), view.filter.words())
    };
    let words = |n: usize, words: &str| (n, words.to_owned());
    assert_eq!(after(Key::Gpu), words(2, "GPU 0"));
    assert_eq!(after(Key::Namespace), words(1, "GPU 0, namespace other"));
    assert_eq!(after(Key::Gpu), words(1, "GPU 1, namespace other"));
    assert_eq!(after(Key::Gpu), words(1, "GPU 2, namespace other"));
    assert_eq!(after(Key::Gpu), words(2, "namespace other"));
    assert_eq!(after(Key::Namespace), words(2, "namespace team"));
    assert_eq!(after(Key::Namespace), words(4, ""));
    assert_eq!(after(Key::Kind), words(2, "kind slice"));
    assert_eq!(after(Key::Kind), words(1, "kind share"));
    let chosen = page(&facts, &view, Size::UNLIMITED, now());
    assert!(chosen.lines[0].text.ends_with(", only kind share"));
}

#[test]
fn shows_queue_and_events() {
    let mut facts = facts();
    assert!(!text(&page(&facts, &view(), Size::UNLIMITED, now())).contains("LAST EVENTS"));
    facts.events = (0..9).map(|n| format!("event {n}")).collect();
    let waiter = Waiter {
        container: "train".to_owned(),
        request: "7g.80gb".to_owned(),
        since: created(),
        pid: 77,
        ..Waiter::default()
    };
    facts.inventory.waiting = (0..5)
        .map(|number| Waiting {
            number,
            waiter: Some(waiter.clone()),
        })
        .collect();
    let found = text(&page(&facts, &view(), sized(60, 200), now()));
    let queue = "WAITING   REQUEST   FOR   PID\ntrain     7g.80gb   60s   77\n";
    assert!(found.contains(queue), "{found}");
    assert!(found.contains("… 2 more"), "{found}");
    assert!(found.contains("LAST EVENTS\nevent 4\n"), "{found}");
    assert!(found.contains("event 8\n\nHOLDER"), "{found}");
    let whole = text(&page(&facts, &view(), Size::UNLIMITED, now()));
    assert_eq!(whole.matches("7g.80gb").count(), 5, "{whole}");
}
