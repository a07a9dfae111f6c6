//! `migctl inspect`: the booked memory of each GPU, in the form of gpushare's `kubectl inspect gpushare`.

use super::filter::{namespace, not_empty};
use super::json::{BookingItem, GpuBookingItem, NodeBooking};
use super::list::{self, holder_name};
use super::output::{self, Format};
use super::{completion, shares, world};
use crate::bundles;
use clap::ValueEnum;
use clap_complete::ArgValueCompleter;
use runmig_lease::GpuBooking;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};

#[derive(clap::Args)]
pub struct Options {
    /// Show all that is known of one lease or container, by its id or its name
    #[arg(conflicts_with_all = ["detail", "unit"], value_parser = not_empty, add = ArgValueCompleter::new(completion::holders))]
    id: Option<String>,
    /// Show a row for each container
    #[arg(short, long)]
    detail: bool,
    /// The unit of the table
    #[arg(long, value_enum, default_value_t = Unit::Gib)]
    unit: Unit,
}

/// The most characters of a name in the table of details.
const NAME: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Unit {
    #[value(name = "GiB")]
    Gib,
    #[value(name = "MiB")]
    Mib,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Gib => "GiB",
            Unit::Mib => "MiB",
        }
    }

    /// Returns an amount without its unit; GiB with one digit where they are not whole, cut.
    fn show(self, mib: u64) -> String {
        match (self, mib % 1024 * 10 / 1024) {
            (Unit::Mib, _) => mib.to_string(),
            (Unit::Gib, 0) => (mib / 1024).to_string(),
            (Unit::Gib, tenth) => format!("{}.{tenth}", mib / 1024),
        }
    }

    fn of(self, booked: u64, total: Option<u64>) -> String {
        let total = total.map_or_else(|| "-".to_owned(), |total| self.show(total));
        format!("{}/{total}", self.show(booked))
    }
}

pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    if let Some(id) = &options.id {
        return one(config, format, id);
    }
    let (driver, mut world) = world::look(config, matches!(format, Format::Table))?;
    // Without the ledger nobody knows what is booked.
    if let Some(e) = world.unread.take() {
        return Err(e);
    }
    let gpus = world.bookings(&driver);
    match (format, options.detail) {
        (Format::Json, _) => output::json("NodeBooking", &node(&gpus)),
        (Format::Table, false) => summary(&gpus, options.unit),
        (Format::Table, true) => details(&gpus, options.unit),
    }
    let all_told = gpus.iter().all(|gpu| gpu.is_told);
    Ok(i32::from(!world::tell_unread(&world) || !all_told))
}

/// Prints the fields of the leases of one holder.
fn one(config: &Config, format: Format, id: &str) -> Result<i32> {
    let entries = list::called(&bundles::to_look(config)?, id)?;
    let seen = shares::observe(config, &entries);
    match format {
        Format::Json => list::json(&entries, &seen, &[], None),
        Format::Table => output::line(&list::fields(&entries, &seen).join("\n")),
    }
    Ok(0)
}

fn booked(gpus: &[GpuBooking<'_>]) -> u64 {
    gpus.iter().map(|gpu| gpu.booked_mib).sum()
}

fn total(gpus: &[GpuBooking<'_>]) -> u64 {
    gpus.iter().filter_map(|gpu| gpu.total_mib).sum()
}

/// Returns the percentage, cut; `-` where no GPU has a figure.
fn percent(gpus: &[GpuBooking<'_>]) -> String {
    let percent = (booked(gpus) * 100).checked_div(total(gpus));
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

fn summary(gpus: &[GpuBooking<'_>], unit: Unit) {
    let mut head: Vec<String> = { gpus.iter() }
        .map(|on| format!("GPU{}(Allocated/Total)", on.gpu.index))
        .collect();
    head.push(format!("GPU Memory({})", unit.name()));
    let of_node = unit.of(booked(gpus), Some(total(gpus)));
    let mut row: Vec<String> = { gpus.iter() }
        .map(|on| unit.of(on.booked_mib, on.total_mib))
        .collect();
    row.push(of_node.clone());
    across(&[], &head, &[row]);
    output::line(&"-".repeat(70));
    output::line("Allocated/Total GPU Memory On Node:");
    output::line(&format!("{of_node} ({})", percent(gpus)));
}

/// Prints a table with a column for each GPU behind some others. A machine with more GPUs than a line has room for gets
/// several tables.
fn across(fixed: &[&str], head: &[String], rows: &[Vec<String>]) {
    const GAP: usize = 3;
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        let fixed = fixed.iter().map(|name| name.len());
        let head = fixed.chain(head.iter().map(String::len));
        GAP + cells.chain(head.skip(at).take(1)).max().unwrap_or(0)
    };
    let mut left: Vec<usize> = (fixed.len()..fixed.len() + head.len()).collect();
    while !left.is_empty() {
        let mut columns: Vec<usize> = (0..fixed.len()).collect();
        let mut room =
            (output::WIDTH + GAP).saturating_sub(columns.iter().map(|at| width(*at)).sum());
        while let Some(at) = left.first().copied()
            && (room >= width(at) || columns.len() == fixed.len())
        {
            room = room.saturating_sub(width(at));
            columns.push(left.remove(0));
        }
        let name = |at: &usize| match at.checked_sub(fixed.len()) {
            Some(at) => head[at].as_str(),
            None => fixed[*at],
        };
        let heads: Vec<&str> = columns.iter().map(name).collect();
        let row = |row: &Vec<String>| columns.iter().map(|at| row[*at].clone()).collect();
        output::table(&heads, &rows.iter().map(row).collect::<Vec<_>>());
    }
}

fn details(gpus: &[GpuBooking<'_>], unit: Unit) {
    let head: Vec<String> = { gpus.iter() }
        .map(|on| format!("GPU{}(Allocated)", on.gpu.index))
        .collect();
    let mut rows = Vec::new();
    for (n, on) in gpus.iter().enumerate() {
        for (held, mib) in &on.held {
            let namespace = namespace(&held.lease).filter(|name| !name.is_empty());
            let holder = holder_name(&held.lease);
            let names = [holder.as_str(), namespace.unwrap_or("-")];
            let mut row = names.map(|name| output::cut(name, NAME)).to_vec();
            row.extend((0..gpus.len()).map(|at| match (at == n, *mib) {
                // A GPU without a figure.
                (true, 0) => "-".to_owned(),
                (is_its, mib) => unit.show(if is_its { mib } else { 0 }),
            }));
            rows.push(row);
        }
    }
    across(&["NAME", "NAMESPACE"], &head, &rows);
    let (booked, unit_name) = (unit.show(booked(gpus)), unit.name());
    output::line(&format!(
        "Allocated : {booked} {unit_name} ({})",
        percent(gpus)
    ));
    output::line(&format!(
        "Total     : {} {unit_name}",
        unit.show(total(gpus))
    ));
}

fn node<'a>(gpus: &'a [GpuBooking<'a>]) -> NodeBooking<'a> {
    NodeBooking {
        total_bytes: total(gpus) << 20,
        booked_bytes: booked(gpus) << 20,
        items: gpus.iter().map(item).collect(),
    }
}

fn item<'a>(on: &'a GpuBooking<'a>) -> GpuBookingItem<'a> {
    GpuBookingItem {
        index: on.gpu.index,
        uuid: on.gpu.uuid.as_str(),
        name: printable(&on.gpu.name),
        r#use: super::gpus::use_word(&on.usage),
        total_bytes: on.total_mib.map(|mib| mib << 20),
        booked_bytes: on.booked_mib << 20,
        leases: { on.held.iter() }
            .map(|(held, mib)| BookingItem {
                id: held.lease.id.as_str(),
                container: held.lease.holder.name(),
                booked_bytes: mib << 20,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_amounts() {
        assert_eq!(Unit::Gib.show(8192), "8");
        assert_eq!(Unit::Gib.show(5000), "4.8");
        assert_eq!(Unit::Gib.show(1025), "1");
        assert_eq!(Unit::Mib.show(5000), "5000");
        assert_eq!(Unit::Gib.of(8192, None), "8/-");
    }
}
