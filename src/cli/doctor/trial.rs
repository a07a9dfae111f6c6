//! A lease to try: makes it, opens its nodes, releases it. Only an option asks for it.

use super::gpus;
use super::host::Host;
use crate::bundles;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Error, Result};
use runmig_lease::finding::{self, Finding, Found};
use runmig_lease::gpu::device_nodes::Nodes;
use runmig_lease::model::Cgroup;
use runmig_lease::request::{self, GPU, SHARE, SLICE};
use runmig_lease::store::{Container, Held, Key};
use runmig_lease::{Leases, Patience, Returned};
use std::time::Instant;

#[derive(clap::Args)]
pub struct Trial {
    /// Make a slice, open its nodes and release it: 1g.10gb
    #[arg(long, value_name = "PROFILE")]
    slice: Option<String>,
    /// Make a share and release it: 8Gi
    #[arg(long, value_name = "AMOUNT", conflicts_with = "slice")]
    share: Option<String>,
    /// Take a whole GPU and release it: 1
    #[arg(long, value_name = "N", conflicts_with_all = ["slice", "share"])]
    gpu: Option<String>,
}

impl Trial {
    /// Returns the findings about the lease that an option asks for; none without one.
    pub fn findings(&self, host: &Host) -> Vec<Finding> {
        for (key, value) in [(SLICE, &self.slice), (SHARE, &self.share), (GPU, &self.gpu)] {
            if let Some(value) = value {
                return finding::named("trial.lease", "", lease(host, key, value));
            }
        }
        Vec::new()
    }
}

fn lease(host: &Host, key: &str, value: &str) -> Found {
    let config = host.config()?;
    let nothing = || Error::new(format!("cannot try {value}: it asks for nothing"));
    let request = request::parse(&[(key.to_owned(), value.to_owned())])?.ok_or_else(nothing)?;
    let name = format!("runmig-doctor-{}", std::process::id());
    let holder = Container {
        key: Key::new("/run/runmig-doctor".into(), name.clone()),
        ..Container::default()
    };
    let cgroup = Cgroup {
        names: vec![name],
        path: None,
    };
    let (leases, _) = bundles::existing_or_new(config, Actor::Operator)?;
    let begin = Instant::now();
    let acquired = leases.acquire(holder, &request, cgroup)?;
    let made = begin.elapsed().as_millis();
    let held = acquired.leases.iter();
    let opened: Result<Vec<_>> = held.clone().map(|held| opened(host, held)).collect();
    let begin = Instant::now();
    let ended: Vec<_> = held.map(|held| release(&leases, held)).collect();
    let released = begin.elapsed().as_millis();
    ended.into_iter().collect::<Result<Vec<()>>>()?;
    let mut found: Vec<Finding> = opened?.into_iter().flatten().collect();
    if found.is_empty() {
        let text = format!("{value} was made in {made} ms and released in {released} ms");
        found.push(Finding::ok(text));
    }
    Ok(found)
}

/// Returns what keeps the nodes of a slice from being opened.
fn opened(host: &Host, held: &Held) -> Result<Vec<Finding>> {
    let (Some(slice), Ok(seen), Ok(config)) = (held.instance.slice(), host.seen(), host.config())
    else {
        return Ok(Vec::new());
    };
    let gpu = seen.inventory.snapshot.gpu(&slice.gpu_uuid);
    let (Some(gpu), Some(gi), Some(ci)) = (gpu, slice.gpu_instance, slice.compute_instance) else {
        return Ok(Vec::new());
    };
    let root = &config.driver.root;
    let both = Nodes::read(root)?.capability_nodes(gpu.minor, gi, ci)?;
    Ok(gpus::unusable(root, &both))
}

fn release(leases: &Leases<'_>, held: &Held) -> Result<()> {
    match leases.release_unless(held, Patience::default(), |_| None)? {
        Returned::Yes => Ok(()),
        Returned::No(why) => {
            let e = Error::new(format!("cannot release the lease of the trial: {why}"));
            Err(e.hint("run migctl gc"))
        }
    }
}
