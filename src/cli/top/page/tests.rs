mod machine;

use super::*;
use machine::{container, created, facts, gpu, held, now, usage, whole};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::text::Text;
use runmig_lease::error::is_hidden;
use runmig_lease::model::OperationId;
use runmig_lease::store::{Portion, Waiter, Waiting};

fn view() -> View {
    View {
        filter: Filter::default(),
        sort: Column::Gpu,
        offset: 0,
    }
}

fn sized(rows: u16, columns: u16) -> Option<Size> {
    Some(Size::new(columns, rows))
}

fn text(page: &Page) -> String {
    let lines = page.lines.iter().map(Line::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the rows that a terminal shows.
fn screen(facts: &Facts, rows: u16, columns: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let page = page(facts, &view(), sized(rows, columns), now());
    let drawn = terminal.draw(|frame| frame.render_widget(Text::from(page.lines), frame.area()));
    let cells = drawn.unwrap().buffer.content();
    let row = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect();
    cells.chunks(columns.into()).map(row).collect()
}

/// Returns the first words of the rows of leases.
fn holders(facts: &Facts, view: &View) -> String {
    let page = page(facts, view, None, now());
    let lines = page.lines.iter().map(Line::to_string);
    let rows = lines.skip_while(|line| !line.starts_with("HOLDER")).skip(1);
    let first = rows.map(|row| row.split(' ').next().unwrap().to_owned());
    first.collect::<Vec<_>>().join(" ")
}

#[test]
fn draws_gpus_and_leases() {
    let page = page(&facts(), &view(), sized(24, 80), now());
    let expected = "\
migctl top 2027-01-15T08:01:00Z: leases 4, waiting 0, by GPU
GPU 0: A  .  .  B  .  .  .   5 of 7 free, 0 % fragmented

HOLDER         KIND   PROFILE       GPU  PLACE  STATE        AGE  USED    PROCS
team/train/a   slice  1g.10gb       0    0:1    ready        60s  512Mi   1
other/web/d    slice  1g.10gb       0    3:1    quarantined  10m  12Mi    0
team/infer/b   share  share 4096Mi  1    -      ready        60s  3072Mi  2
other/whole/c  gpu    gpu           2    -      ready        60s  -       -";
    let found = text(&page);
    assert!(found.starts_with(expected), "{found}");
    assert!(found.ends_with(&format!("\n1-4 of 4; {KEYS}")), "{found}");
    let alarms = page
        .lines
        .iter()
        .filter(|line| line.style == Style::new().red());
    assert_eq!(alarms.count(), 1);
}

/// A terminal of every size, with names of 300 characters that a terminal would obey.
#[test]
fn fits_every_size() {
    let mut facts = facts();
    let long = "\u{1b}[2J\u{9b}5A\u{202e}\n".to_owned() + &"n".repeat(300);
    let lease = |n| {
        let holder = container("team", &long, &long);
        held(n, whole(n as u32 % 8), Portion::All, holder)
    };
    facts.inventory.leases = (0..10_000).map(lease).collect();
    facts.inventory.snapshot.gpus = (0..8).map(gpu).collect();
    facts.inventory.snapshot.gpus[0].name = long.clone();
    facts.gpus = (0..8).map(|_| usage()).collect();
    facts.complaints = vec![long.clone(); 3];
    let waiter = Waiter {
        container: long.clone(),
        request: long,
        ..Waiter::default()
    };
    let waiting = |number| Waiting {
        number,
        operation: OperationId::new("o"),
        waiter: waiter.clone(),
    };
    facts.inventory.waiting = (0..9).map(waiting).collect();
    for (rows, columns) in [(1, 1), (1, 80), (2, 2), (5, 20), (24, 80), (60, 200)] {
        let shown = screen(&facts, rows, columns);
        assert_eq!(shown.len(), usize::from(rows), "{rows}x{columns}");
        let is_inert = |row: &String| !row.chars().any(is_hidden);
        assert!(shown.iter().all(is_inert), "{shown:?}");
        if rows >= 24 {
            let page = page(&facts, &view(), sized(rows, columns), now());
            assert!(page.visible >= usize::from(rows) / 3, "{}", page.visible);
        }
    }
    let found = screen(&facts, 24, 80).join("\n");
    for word in ["GPU 0:", "HOLDER", "1-"] {
        assert!(found.contains(word), "no {word}: {found}");
    }
    let printed = text(&page(&facts, &view(), None, now()));
    assert!(!printed.chars().any(|c| c != '\n' && is_hidden(c)));
}

#[test]
fn keys_scroll_leases() {
    let mut facts = facts();
    let lease = |n| {
        let holder = container("team", &format!("{n:02}"), "c");
        held(n, whole(3), Portion::All, holder)
    };
    facts.inventory.leases = (0..100).map(lease).collect();
    let mut view = view();
    let mut press = |keys: &[KeyCode]| {
        let mut shown = page(&facts, &view, sized(24, 80), now());
        for key in keys {
            assert!(view.press(KeyEvent::from(*key), &shown));
            shown = page(&facts, &view, sized(24, 80), now());
        }
        let rows = shown.lines.iter().map(Line::to_string);
        let first = rows.skip_while(|row| !row.starts_with("HOLDER")).nth(1);
        (first.unwrap()[..7].to_owned(), shown.visible)
    };
    let (first, visible) = press(&[]);
    assert_eq!(first, "team/00");
    use KeyCode::{Down, End, Home, PageDown, PageUp, Up};
    assert_eq!(press(&[Down, Down, Up]).0, "team/01");
    assert_eq!(press(&[Home, PageDown]).0, format!("team/{visible:02}"));
    let last = format!("team/{:02}", 100 - visible);
    assert_eq!(press(&[End, Down, PageDown]).0, last);
    assert_eq!(press(&[Home, Up, PageUp]).0, "team/00");
    view.offset = 1000;
    let beyond = page(&facts, &view, sized(24, 80), now());
    assert_eq!(beyond.offset, 100 - beyond.visible);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for end in [KeyEvent::from(KeyCode::Char('q')), control_c] {
        assert!(!view.press(end, &beyond));
    }
}

#[test]
fn orders_by_column() {
    let facts = facts();
    let by = |sort| holders(&facts, &View { sort, ..view() });
    let names = [
        "team/train/a",
        "team/infer/b",
        "other/whole/c",
        "other/web/d",
    ];
    let order = |order: [usize; 4]| order.map(|at| names[at]).join(" ");
    assert_eq!(by(Column::Gpu), order([0, 3, 1, 2]));
    assert_eq!(by(Column::Holder), order([3, 2, 1, 0]));
    assert_eq!(by(Column::Used), order([1, 0, 3, 2]));
    assert_eq!(by(Column::Procs), order([1, 0, 3, 2]));
    assert!(by(Column::Age).ends_with(names[3]));
    assert!(by(Column::State).starts_with(names[3]));
    let mut view = view();
    view.press(KeyEvent::from(KeyCode::Char('<')), &Page::default());
    assert_eq!(view.sort, Column::Profile);
}

#[test]
fn shows_queue() {
    let mut facts = facts();
    let waiter = Waiter {
        container: "train".to_owned(),
        name: Some("web".to_owned()),
        request: "7g.80gb".to_owned(),
        since: created(),
        pid: 77,
        ..Waiter::default()
    };
    let waiting = |number| Waiting {
        number,
        operation: OperationId::new("o"),
        waiter: waiter.clone(),
    };
    facts.inventory.waiting = (0..5).map(waiting).collect();
    let found = text(&page(&facts, &view(), sized(60, 200), now()));
    let queue = "WAITING  NAME  REQUEST  FOR  PID\ntrain    web   7g.80gb  60s  77\n";
    assert!(found.contains(queue), "{found}");
    assert_eq!(found.matches("7g.80gb").count(), 5, "{found}");
}
