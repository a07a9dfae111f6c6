//! `migctl events`: the history of creates, leases and instances.

use super::output::{self, Format};
use super::{completion, filter};
use clap::Args;
use clap_complete::ArgValueCompleter;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::events::{Event, History};
use std::os::fd::AsFd;
use std::time::SystemTime;

/// The milliseconds between two looks for more events.
const GAP: u8 = 200;

#[derive(Args)]
pub struct Options {
    /// Only events from this time on: RFC 3339, or a duration until now, as 30m
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Only events of this container or claim, by its id or its name
    #[arg(long, value_name = "NAME", value_parser = filter::not_empty, add = ArgValueCompleter::new(completion::holders))]
    container: Option<String>,
    /// Print events as they come
    #[arg(long, short)]
    follow: bool,
}

/// Reads a time, or a duration before this moment.
fn moment(text: &str) -> std::result::Result<SystemTime, String> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        return Ok(time);
    }
    let before = humantime::parse_duration(text).map_err(|_| {
        "it is neither a time, as 2026-11-24T09:00:00Z, nor a duration, as 30m".to_owned()
    })?;
    { SystemTime::now() }
        .checked_sub(before)
        .ok_or_else(|| "the duration is too long".to_owned())
}

pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let file = config.events_file().ok_or_else(|| {
        Error::new("cannot print events: the configuration turns them off")
            .hint("set events.file (docs/configuration.md)")
    })?;
    let is_new = |event: &Event, since| event.time.time().is_some_and(|time| time >= since);
    let is_of = |event: &Event, name: &String| {
        let lease = event.lease.as_ref();
        lease.is_some_and(|lease| lease.is_called(name))
    };
    let mut print = |event: Event| match format {
        _ if !options.since.is_none_or(|since| is_new(&event, since)) => {}
        _ if !{ options.container.iter() }.all(|name| is_of(&event, name)) => {}
        Format::Json => output::json_line("Event", &event),
        _ => output::line(&printable(&event.to_string())),
    };
    let (mut history, mut told) = (History::new(&file), 0);
    loop {
        history.read(!options.follow, &mut print)?;
        let skipped = history.unreadable - told;
        if skipped > 0 {
            let lines = if skipped == 1 { "line" } else { "lines" };
            output::eprint(&format!("skipped {skipped} {lines} that cannot be read"));
        }
        told += skipped;
        if !options.follow || reader_has_gone() {
            return Ok(0);
        }
    }
}

/// Waits for a moment, or for the end of whoever reads this output. Returns whether that has come.
fn reader_has_gone() -> bool {
    let output = std::io::stdout();
    // The kernel reports the end of a pipe or a socket without being asked.
    let mut fds = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(&mut fds, PollTimeout::from(GAP));
    fds[0].revents().is_some_and(|events| !events.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moment_is_time_or_duration() {
        let time = moment("2026-11-24T09:00:00Z").unwrap();
        assert_eq!(moment("2026-11-24 09:00:00").unwrap(), time);
        let (before, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let ago = moment("1h").unwrap();
        assert!(before - hour <= ago && ago <= SystemTime::now() - hour);
        for wrong in ["", "soon", "1", "24.11.2026", "900000000000years"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
