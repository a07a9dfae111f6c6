//! `migctl events`: the history of creates, leases and instances.

use super::completion;
use super::output::{self, Format};
use clap::Args;
use clap::builder::PossibleValuesParser;
use clap_complete::ArgValueCompleter;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::events::{Event, EventFilter, EventType, History, Watch, Woken};
use runmig_lease::policy::GpuName;
use runmig_lease::store::Shown;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::SystemTime;

#[derive(Args)]
pub struct Options {
    /// Only events from this time on: RFC 3339, or a duration until now, as 30m
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Only events until this time
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "follow")]
    until: Option<SystemTime>,
    /// Only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = PossibleValuesParser::new(EventType::WORDS))]
    types: Vec<String>,
    /// Only events of this container: its id, the first 12 characters or more, or its name in the pod
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::containers))]
    container: Option<String>,
    /// Only events of this namespace of Kubernetes
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    /// Only events on this GPU: its index or UUID
    #[arg(long, value_name = "GPU")]
    gpu: Option<GpuName>,
    /// Only events of this kind of portion
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Shown::KINDS))]
    kind: Option<String>,
    /// Only the last events, so many of them
    #[arg(long, value_name = "NUMBER")]
    last: Option<usize>,
    /// Print events as they come
    #[arg(long, short)]
    follow: bool,
}

impl Options {
    fn filter(&self) -> EventFilter {
        EventFilter {
            since: self.since,
            until: self.until,
            types: self.types.clone(),
            container: self.container.clone(),
            namespace: self.namespace.clone(),
            gpu: self.gpu.clone(),
            kind: self.kind.clone(),
        }
    }
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
    // The watch comes first, so that it misses no event.
    let mut watch = match options.follow {
        true => Some(Watch::on(&file)?),
        false => None,
    };
    let filter = options.filter();
    let mut history = History::new(&file);
    let mut printer = Printer::new(format);
    let mut last = VecDeque::new();
    let mut keep = |event: Event| match options.last {
        _ if !filter.has(&event) => {}
        None => printer.print(&event),
        Some(most) => {
            last.push_back(event);
            if last.len() > most {
                last.pop_front();
            }
        }
    };
    history.read(&mut keep)?;
    if !options.follow {
        history.end(&mut keep);
    }
    last.iter().for_each(|event| printer.print(event));
    let mut told = tell_unreadable(&history, 0);
    while let Some(watch) = &mut watch {
        if watch.wait(std::io::stdout().as_fd())? == Woken::ByReader {
            break;
        }
        history.read(&mut |event| {
            if filter.has(&event) {
                printer.print(&event);
            }
        })?;
        told = tell_unreadable(&history, told);
    }
    Ok(0)
}

/// Tells the number of unreadable lines, if it has grown. Returns it.
fn tell_unreadable(history: &History, told: u64) -> u64 {
    let unreadable = history.unreadable();
    if unreadable > told {
        let lines = match unreadable - told {
            1 => "1 line".to_owned(),
            count => format!("{count} lines"),
        };
        output::eprint(&format!("skipped {lines} that cannot be read"));
    }
    unreadable
}

/// Prints events one by one, so columns have fixed widths.
struct Printer {
    format: Format,
    has_head: bool,
}

impl Printer {
    fn new(format: Format) -> Printer {
        Printer {
            format,
            has_head: false,
        }
    }

    fn print(&mut self, event: &Event) {
        match self.format {
            Format::Json => output::json_line(event),
            Format::Table => {
                if !self.has_head {
                    row(["TIME", "TYPE", "PORTION", "HOLDER", "DETAIL"]);
                    self.has_head = true;
                }
                let portion = event.portion();
                let (holder, detail) = (event.holder(), event.detail());
                let parts = [
                    event.time.as_str(),
                    event.event_type.word(),
                    &portion,
                    &holder,
                    &detail,
                ];
                row(parts
                    .map(printable)
                    .each_ref()
                    .map(|part| match part.as_str() {
                        "" => "-",
                        part => part,
                    }));
            }
        }
    }
}

fn row([time, event_type, portion, holder, detail]: [&str; 5]) {
    let row = format!("{time:24}   {event_type:14}   {portion:24}   {holder:30}   {detail}");
    output::line(row.trim_end());
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
