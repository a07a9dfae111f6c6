//! What the driver has and what the ledger says of it, at one moment, for those verbs that show both.

use super::list::container;
use super::output;
use crate::config::Config;
use crate::error::{Error, Result, printable};
use crate::gpu::{Driver, nvml};
use crate::lease::Leases;
use crate::model::{Gpu, Placement, Snapshot};
use crate::placement::{Movable, Reserved, Room};
use crate::process;
use crate::store::{Claim, Damaged, Lease, State};

pub struct World {
    pub driver: nvml::Session,
    pub snapshot: Snapshot,
    /// Of this boot.
    pub leases: Vec<Lease>,
    damaged: Vec<Claim>,
    /// Why the ledger could not be read, or a part of it.
    pub unread: Vec<Error>,
}

impl World {
    pub fn look(config: &Config) -> Result<World> {
        let driver = nvml::open(&config.driver.library)?;
        let snapshot = driver.snapshot()?;
        let (leases, damaged, mut unread) = match ledger(config) {
            Ok((leases, damaged)) => (leases, damaged, Vec::new()),
            Err(e) => (Vec::new(), Vec::new(), vec![e]),
        };
        let boot_id = process::boot_id(&config.driver.root)?;
        let mut claims = Vec::new();
        for d in damaged {
            let file = printable(&d.file.to_string_lossy());
            unread.push(Error::new(format!("lease {file} cannot be read")).caused_by(d.why));
            claims.extend(d.claim);
        }
        claims.retain(|c| c.boot_id == boot_id);
        Ok(World {
            driver,
            snapshot,
            leases: leases
                .into_iter()
                .filter(|l| l.boot_id == boot_id)
                .collect(),
            damaged: claims,
            unread,
        })
    }

    /// Everything that has a place for now.
    pub fn reserved(&self) -> Vec<Reserved> {
        let held = self.leases.iter().filter(|l| l.idle_since.is_none());
        let held = held.map(place_of);
        held.chain(self.damaged.iter().map(claimed)).collect()
    }

    /// Kept for the next.
    pub fn idle(&self) -> Vec<Reserved> {
        let idle = self.leases.iter().filter(|l| l.idle_since.is_some());
        idle.map(place_of).collect()
    }

    /// What no restart would move: not given back, or not to be read.
    pub fn stuck(&self) -> Vec<Reserved> {
        let stuck = self.leases.iter().filter(|l| is_quarantined(l));
        let stuck = stuck.map(place_of);
        stuck.chain(self.damaged.iter().map(claimed)).collect()
    }

    /// Slices that would lie elsewhere after a restart, with those who have them. An instance that an
    /// administrator made stays where it is.
    pub fn movable(&self) -> (Vec<Movable>, Vec<Vec<&Lease>>) {
        let (mut all, mut whose): (Vec<Movable>, Vec<Vec<&Lease>>) = Default::default();
        let moves = |l: &&Lease| l.state != State::Releasing && !l.adopted;
        for lease in self.leases.iter().filter(moves) {
            let place = place_of(lease);
            match all.iter().position(|m| m.place == place) {
                Some(at) => {
                    all[at].containers += 1;
                    whose[at].push(lease);
                }
                None => {
                    all.push(Movable {
                        place,
                        containers: 1,
                    });
                    whose.push(vec![lease]);
                }
            }
        }
        (all, whose)
    }

    /// Those who have what lies there.
    pub fn holders(&self, gpu: &Gpu, at: Placement) -> Vec<&Lease> {
        let here = |l: &&Lease| l.slice.gpu_uuid == gpu.uuid && l.slice.placement == at;
        self.leases.iter().filter(here).collect()
    }

    pub fn is_damaged(&self, gpu: &Gpu, at: Placement) -> bool {
        let mut claims = self.damaged.iter();
        claims.any(|c| c.gpu_uuid == gpu.uuid && c.placement == at)
    }

    /// All that lies on a GPU, or is promised.
    pub fn room<'g>(&self, gpu: &'g Gpu) -> Room<'g> {
        Room::new(gpu, &self.reserved(), &self.idle())
    }

    /// Tells what could not be read; whether that was all.
    pub fn tell_unread(&self) -> bool {
        for (_, why) in &self.snapshot.unreadable {
            output::complain(&printable(why));
        }
        for e in &self.unread {
            output::complain(&e.line());
        }
        self.snapshot.unreadable.is_empty() && self.unread.is_empty()
    }
}

fn ledger(config: &Config) -> Result<(Vec<Lease>, Vec<Damaged>)> {
    match Leases::existing(config)? {
        Some(leases) => leases.store().list(),
        None => Ok(Default::default()),
    }
}

pub fn is_quarantined(l: &Lease) -> bool {
    l.state == State::Releasing && l.idle_since.is_none()
}

fn place_of(lease: &Lease) -> Reserved {
    claimed(&Claim::of(lease))
}

fn claimed(claim: &Claim) -> Reserved {
    Reserved {
        gpu: claim.gpu_uuid.clone(),
        profile_id: claim.profile_id,
        placement: claim.placement,
    }
}

/// Whose a lease is, as people know it: `default/web-0/main`, or the container's id.
pub fn whose(l: &Lease) -> String {
    let h = &l.holder;
    let name = match (&h.namespace, &h.pod, &h.container_name) {
        (Some(namespace), Some(pod), Some(name)) => format!("{namespace}/{pod}/{name}"),
        (Some(namespace), Some(pod), None) => format!("{namespace}/{pod}"),
        (_, _, Some(name)) => name.clone(),
        _ => container(l),
    };
    printable(&name)
}
