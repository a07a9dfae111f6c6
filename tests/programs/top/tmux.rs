//! migctl top in tmux, as a user has it, begun by a shell whose terminal it has to leave as it was.

use super::{claim, setup};
use std::process::Command;
use testkit::process::until;
use testkit::{Setup, said, skip};

/// A server of its own, with a window in which a shell waits.
struct Tmux<'a> {
    setup: &'a Setup,
}

impl<'a> Tmux<'a> {
    fn of(setup: &'a Setup, columns: u16, rows: u16) -> Option<Tmux<'a>> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip("tmux is not there: apt-get install tmux");
            return None;
        }
        let tmux = Tmux { setup };
        let (x, y) = (columns.to_string(), rows.to_string());
        // The status line would take a row.
        std::fs::write(setup.path("tmux.conf"), "set -g status off\n").unwrap();
        tmux.ok(&[
            "new-session",
            "-d",
            "-x",
            &x,
            "-y",
            &y,
            "env PS1=ready: sh -i",
        ]);
        tmux.until_shown("ready:");
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut tmux = self.setup.plain("tmux".as_ref());
        tmux.arg("-u").arg("-S").arg(self.setup.path("tmux.socket"));
        tmux.arg("-f").arg(self.setup.path("tmux.conf"));
        tmux.args(arguments);
        tmux
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        said(&mut self.command(arguments)).ok().stdout
    }

    fn screen(&self) -> String {
        self.ok(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn until_shown(&self, words: &str) -> String {
        let mut screen = String::new();
        until(words, || {
            screen = self.screen();
            screen.contains(words)
        });
        screen
    }

    /// Types a line into the shell.
    fn types(&self, line: &str) {
        self.ok(&["send-keys", "-l", line]);
        self.ok(&["send-keys", "Enter"]);
    }

    /// Returns the modes of the terminal, from a file: the screen has them in pieces.
    fn modes(&self) -> String {
        let file = self.setup.path("modes");
        self.types(&format!("stty -g >{0}.new; mv {0}.new {0}", file.display()));
        until("stty has said it", || file.exists());
        let modes = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        modes
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
fn draws_in_tmux_and_leaves() {
    let Some(setup) = setup() else { return };
    claim(&setup, "first", 0);
    for (columns, rows) in [(80, 24), (200, 60)] {
        let Some(tmux) = Tmux::of(&setup, columns, rows) else {
            return;
        };
        let before = tmux.modes();
        let name = format!("on-{columns}");
        for (n, end) in ["q", "C-c"].into_iter().enumerate() {
            tmux.types("clear; echo before");
            let top = setup.program("migctl");
            // Only a change draws again.
            tmux.types(&format!("{} top --delay 1h", top.display()));
            let screen = tmux.until_shown("q quit");
            let lines: Vec<&str> = screen.lines().collect();
            assert_eq!(lines.len(), usize::from(rows), "{screen}");
            assert!(
                lines
                    .iter()
                    .all(|line| line.chars().count() <= usize::from(columns))
            );
            assert!(screen.contains("claim team/first"), "{screen}");
            assert!(!screen.contains("before"), "{screen}");
            let start = u32::try_from(n).unwrap() + if columns == 80 { 1 } else { 3 };
            claim(&setup, &format!("{name}-{n}"), start);
            tmux.until_shown(&format!("claim team/{name}-{n}"));
            tmux.ok(&["send-keys", end]);
            let screen = tmux.until_shown("before");
            assert!(!screen.contains("q quit"), "{screen}");
            assert_eq!(tmux.modes(), before, "{end}");
        }
    }
}
