//! `migctl inspect`: the booked memory of each GPU, in the form of gpushare's `kubectl inspect gpushare`.

use super::json::{BookingItem, GpuBookingItem, NodeBooking};
use super::list::holder_name;
use super::output::{self, Format};
use super::world;
use clap::ValueEnum;
use runmig_lease::GpuBooking;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};

#[derive(clap::Args)]
pub struct Options {
    /// Show a row for each container
    #[arg(short, long)]
    detail: bool,
    /// The unit of the table
    #[arg(long, value_enum, default_value_t = Unit::Gib)]
    unit: Unit,
}

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
        let total = total.map_or_else(|| "?".to_owned(), |total| self.show(total));
        format!("{}/{total}", self.show(booked))
    }
}

pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let (driver, world) = world::look(config, matches!(format, Format::Table))?;
    let gpus = world.bookings(&driver);
    match (format, options.detail) {
        (Format::Json, _) => output::json(&node(&gpus)),
        (Format::Table, false) => summary(&gpus, options.unit),
        (Format::Table, true) => details(&gpus, options.unit),
    }
    let all_told = gpus.iter().all(|gpu| gpu.total_mib.is_some());
    Ok(i32::from(!world::tell_unread(&world) || !all_told))
}

fn booked(gpus: &[GpuBooking<'_>]) -> u64 {
    gpus.iter().map(|gpu| gpu.booked_mib).sum()
}

fn total(gpus: &[GpuBooking<'_>]) -> u64 {
    gpus.iter().filter_map(|gpu| gpu.total_mib).sum()
}

/// Returns the percentage, cut.
fn percent(gpus: &[GpuBooking<'_>]) -> u64 {
    booked(gpus) * 100 / total(gpus).max(1)
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
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    output::table(&head, &[row]);
    output::line(&"-".repeat(70));
    output::line("Allocated/Total GPU Memory On Node:");
    output::line(&format!("{of_node} ({}%)", percent(gpus)));
}

fn details(gpus: &[GpuBooking<'_>], unit: Unit) {
    let mut head = vec!["NAME".to_owned(), "NAMESPACE".to_owned()];
    head.extend({ gpus.iter() }.map(|on| format!("GPU{}(Allocated)", on.gpu.index)));
    let mut rows = Vec::new();
    for (n, on) in gpus.iter().enumerate() {
        for (held, mib) in &on.held {
            let namespace = match held.lease.claim() {
                Some(claim) => Some(claim.namespace.clone()),
                None => held.lease.container().and_then(|c| c.namespace.clone()),
            };
            let mut row = vec![
                holder_name(&held.lease),
                namespace.unwrap_or_else(|| "-".to_owned()),
            ];
            row.extend((0..gpus.len()).map(|at| unit.show(if at == n { *mib } else { 0 })));
            rows.push(row);
        }
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    output::table(&head, &rows);
    let (booked, unit_name) = (unit.show(booked(gpus)), unit.name());
    output::line(&format!(
        "Allocated : {booked} {unit_name} ({}%)",
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
        assert_eq!(Unit::Gib.of(8192, None), "8/?");
    }
}
