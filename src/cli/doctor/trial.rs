//! A lease to try: makes it, opens its nodes, releases it. Only an option asks for it.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use super::nodes;
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Error, Result};
use runmig_lease::gpu::nodes::Nodes;
use runmig_lease::model::Cgroup;
use runmig_lease::request::{self, GPU, SHARE, SLICE};
use runmig_lease::store::{Container, Held, Key};
use runmig_lease::{LeaseManager, Patience, Returned};
use std::time::Instant;

pub const CHECKS: &[Check] = &[
    Check::new(
        "trial.node",
        "the nodes of the lease that an option asks for open",
        "the repair of the finding",
    ),
    Check::new(
        "trial.lease",
        "runmig makes and releases the lease that an option asks for",
        "the repair of the finding",
    ),
];

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
    /// Returns the annotation that asks for the same.
    fn annotation(&self) -> Option<(String, String)> {
        let options = [(SLICE, &self.slice), (SHARE, &self.share), (GPU, &self.gpu)];
        let mut asked = options
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?)));
        asked
            .next()
            .map(|(key, value)| (key.to_owned(), value.clone()))
    }

    /// Says whether an option asks for a lease.
    pub fn is_asked(&self) -> bool {
        self.annotation().is_some()
    }

    pub fn findings(&self, host: &Host) -> Vec<Finding> {
        let (Ok(config), Some(annotation)) = (&host.config, self.annotation()) else {
            return vec![Finding::skip(
                "trial.lease",
                "the configuration cannot be read",
            )];
        };
        lease(config, host, annotation).unwrap_or_else(|e| vec![Finding::failed("trial.lease", &e)])
    }
}

fn lease(config: &Config, host: &Host, annotation: (String, String)) -> Result<Vec<Finding>> {
    let value = annotation.1.clone();
    let nothing = || Error::new(format!("cannot try {value}: it asks for nothing"));
    let request = request::parse(&[annotation])?.ok_or_else(nothing)?;
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
    let mut findings: Vec<Finding> = { acquired.leases.iter() }
        .flat_map(|held| opened(host, held))
        .collect();
    let begin = Instant::now();
    let ended = acquired.leases.iter().map(|held| release(&leases, held));
    let ended: Result<Vec<()>> = ended.collect();
    let released = begin.elapsed().as_millis();
    findings.push(match ended {
        Ok(_) => Finding::ok(
            "trial.lease",
            format!("{value} was made in {made} ms and released in {released} ms"),
        ),
        Err(e) => Finding::failed("trial.lease", &e),
    });
    Ok(findings)
}

/// Opens the nodes of a slice.
fn opened(host: &Host, held: &Held) -> Vec<Finding> {
    let ids = held.instance.slice().and_then(|slice| {
        let gpu = slice.gpu_uuid.clone();
        Some((gpu, slice.gpu_instance?, slice.compute_instance?))
    });
    let (Some((gpu, gi, ci)), Ok(seen)) = (ids, host.seen()) else {
        return Vec::new();
    };
    let gpu = { seen.inventory.snapshot.gpus.iter() }.find(|known| known.uuid == gpu);
    let root = host.driver_root();
    let both = Nodes::read(&root).and_then(|nodes| {
        gpu.map_or(Ok(Vec::new()), |gpu| {
            Ok(nodes.capability_nodes(gpu.minor, gi, ci)?.to_vec())
        })
    });
    match both {
        Ok(both) => both
            .iter()
            .map(|node| nodes::check(&root, "trial.node", node))
            .collect(),
        Err(e) => vec![Finding::failed("trial.node", &e)],
    }
}

fn release(leases: &LeaseManager<'_>, held: &Held) -> Result<()> {
    match leases.release_unless(held, Patience::default(), |_| None)? {
        Returned::Yes => Ok(()),
        Returned::No(why) => Err(Error::new(format!(
            "cannot release the lease of the trial: {why}"
        ))
        .hint("run migctl gc")),
    }
}
