//! `migctl cordon`, `uncordon` and `drain`: close a GPU for new leases, open it again, and wait for the end of those
//! on it.

use super::driver;
use super::list::{self, holder_name};
use super::output::{self, Format};
use super::{filter, release, world};
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::{Actor, LeaseKind};
use runmig_lease::error::{Error, Result};
use runmig_lease::gpu::Queries;
use runmig_lease::model::GpuUuid;
use runmig_lease::policy::GpuName;
use runmig_lease::store::{Changes, Entry};
use runmig_lease::{Leases, MAX_REASON};
use std::time::{Duration, Instant};

/// The time between two collections: nothing tells of the end of a container that no engine deletes.
const COLLECT_AGAIN: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct Options {
    /// The GPU, by its index or its UUID
    gpu: GpuName,
    /// Why, for those who see it in migctl gpus, explain and refusals
    #[arg(long, value_parser = reason)]
    reason: Option<String>,
}

fn reason(text: &str) -> std::result::Result<String, String> {
    match text.chars().count() {
        n if n > MAX_REASON => Err(format!("it has {n} characters, more than {MAX_REASON}")),
        _ => filter::not_empty(text),
    }
}

pub fn cordon(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let (named, leases) = Named::find(config, &options.gpu)?;
    leases.cordon(&named.uuid, options.reason.as_deref(), false)?;
    let left = named.left(&leases, "cordoned")?;
    // An idle slice is nobody's.
    let leases = left.iter().filter(|entry| entry.lease().is_some()).count();
    let said = format!("{} is cordoned; leases on it: {leases}", named.title);
    tell(format, &left, &said);
    Ok(0)
}

pub fn uncordon(config: &Config, format: Format, gpu: &GpuName) -> Result<i32> {
    let (named, leases) = Named::find(config, gpu)?;
    let said = match leases.uncordon(&named.uuid)? {
        true => format!("{} is open again", named.title),
        false => format!("{} was not cordoned", named.title),
    };
    tell(format, &named.left(&leases, "open")?, &said);
    Ok(0)
}

/// Ends idle slices and leases of dead containers, and names what is left each time that it changes.
pub fn drain(
    config: &Config,
    format: Format,
    options: &Options,
    wait: Option<Duration>,
) -> Result<i32> {
    let (named, leases) = Named::find(config, &options.gpu)?;
    leases.cordon(&named.uuid, options.reason.as_deref(), true)?;
    let begun = Instant::now();
    named.left(&leases, "cordoned")?;
    let mut changes = Changes::of(&config.state_dir)?;
    let mut told = Vec::new();
    loop {
        leases.gc(false)?;
        let mut left = on(&leases, &named)?;
        // An idle slice that stays is on record, and is tried again.
        left.retain(|entry| {
            let is_idle = entry.idle_since().is_some();
            !is_idle || {
                let end = release::release(&leases, entry);
                end.inspect_err(|e| output::eprint(&e.line())).is_err()
            }
        });
        let names: Vec<String> = left.iter().map(|entry| named.has(entry)).collect();
        if format == Format::Table && names != told {
            names.iter().for_each(|name| output::line(name));
        }
        told = names;
        let time = wait.unwrap_or_default().saturating_sub(begun.elapsed());
        if !left.is_empty() && !time.is_zero() {
            changes.wait_for(time.min(COLLECT_AGAIN))?;
            continue;
        }
        if left.is_empty() || format == Format::Json {
            tell(format, &left, &format!("{} is free", named.title));
        }
        if wait.is_some() && !left.is_empty() {
            let (title, count) = (&named.title, left.len());
            let why = format!("cannot drain {title} in time: still on it: {count}");
            let hint = match left.iter().all(is_stuck) {
                true => "run migctl gc to see what keeps them",
                false => "end their containers, or wait longer with --wait",
            };
            return Err(Error::new(why).hint(hint));
        }
        return Ok(0);
    }
}

/// A GPU that an administrator names.
struct Named {
    uuid: GpuUuid,
    /// The name for people: one that does not answer has no index.
    title: String,
}

impl Named {
    /// Finds the GPU, and opens the leases.
    fn find<'a>(config: &'a Config, name: &GpuName) -> Result<(Named, Leases<'a>)> {
        let snapshot = driver::ask(config).snapshot();
        let mut gpus = snapshot.iter().flat_map(|snapshot| &snapshot.gpus);
        let found = gpus.find(|gpu| name.names(gpu.index, gpu.uuid.as_str()));
        let found = found.map(|gpu| (gpu.uuid.clone(), format!("GPU {}", gpu.index)));
        // The GPU may be off the bus just now.
        let by_uuid = || {
            let uuid = name.uuid()?.as_str().to_ascii_lowercase();
            let uuid = uuid.replacen("gpu-", "GPU-", 1);
            output::eprint(&format!("no GPU that answers has the UUID {uuid}"));
            Some((GpuUuid::new(uuid.clone()), uuid))
        };
        let Some((uuid, title)) = found.or_else(by_uuid) else {
            return Err(world::no_gpu(name, &snapshot?)
                .hint("name it by its full UUID, which nvidia-smi -L shows"));
        };
        let (leases, _) = bundles::existing_or_new(config, Actor::Operator)?;
        crate::log::start(config);
        Ok((Named { uuid, title }, leases))
    }

    /// Returns what is on record on it, now that it is `done`.
    fn left(&self, leases: &Leases<'_>, done: &str) -> Result<Vec<Entry>> {
        let left = on(leases, self);
        left.inspect_err(|_| {
            let title = &self.title;
            output::eprint(&format!(
                "{title} is {done}, and nobody knows what is on it"
            ));
        })
    }

    fn has(&self, entry: &Entry) -> String {
        let (title, resource) = (&self.title, &entry.instance().resource);
        let (holder, state) = (entry.lease().map(holder_name), entry.shown_state());
        match (holder, entry.shown().kind) {
            (None, _) => format!("{title} has {resource}, which is {state}"),
            (Some(holder), _) if is_stuck(entry) => {
                format!("{title} has {resource} of {holder}, which is {state}")
            }
            (Some(holder), LeaseKind::Share) => format!("{title} has a share of {holder}"),
            (Some(holder), LeaseKind::Gpu) => format!("{title} has the lease of {holder}"),
            (Some(holder), _) => format!("{title} has {resource} of {holder}"),
        }
    }
}

/// Whether its container is gone, and something keeps it.
fn is_stuck(entry: &Entry) -> bool {
    ["quarantined", "releasing"].contains(&entry.shown_state())
}

/// Returns what is on record on a GPU, but for the instances of administrators and layouts, which stay.
fn on(leases: &Leases<'_>, named: &Named) -> Result<Vec<Entry>> {
    let mut entries = leases.store().list()?.entries;
    entries.retain(|entry| {
        let instance = entry.instance();
        let stays = entry.lease().is_none() && instance.outlives_leases();
        *instance.resource.gpu_uuid() == named.uuid && !stays
    });
    Ok(entries)
}

fn tell(format: Format, left: &[Entry], said: &str) {
    match format {
        Format::Json => list::json(left, &[], &[], None),
        Format::Table => output::line(said),
    }
}
