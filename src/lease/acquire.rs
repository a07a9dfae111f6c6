//! From a request to a slice that exists.

use super::{Leases, Patience, Returned, alive, now};
use crate::error::{Context, Error, Result, printable};
use crate::gpu::{Driver, INSUFFICIENT_RESOURCES};
use crate::model::Snapshot;
use crate::placement::{self, NoRoom, Reserved, Wanted};
use crate::process;
use crate::request::{self, Request};
use crate::store::{Claim, Holder, Lease, Slice, State};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often the driver may refuse a place that we held for free before we believe it.
const MAX_REFUSALS: usize = 8;
/// A slice that an administrator destroys wakes nobody, so a waiter looks for itself so often.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN_UNWATCHED: Duration = Duration::from_millis(200);

impl Leases<'_> {
    /// A lease on a slice that exists, still *creating*: its container is not made yet.
    pub fn acquire(&self, holder: Holder, asked: &Request, cgroups: Vec<String>) -> Result<Lease> {
        self.clear_the_way(&holder)?;
        let end = Instant::now() + asked.wait.unwrap_or(self.config.wait);
        let mut refused = Vec::new();
        let mut collected = false;
        loop {
            // Watched from before we look, so that nothing given back in between is missed.
            let watch = Watch::on(self, end);
            let no = match self.reserve(&holder, asked, &cgroups, &refused)? {
                Ok((driver, lease)) => match self.make(&driver, lease) {
                    Ok(lease) => return Ok(lease),
                    Err(Failed {
                        place: Some(place), ..
                    }) if refused.len() < MAX_REFUSALS => {
                        refused.push(place);
                        continue;
                    }
                    Err(Failed { error, .. }) => return Err(error),
                },
                Err(no) => no,
            };
            if matches!(no, NoRoom::Never { .. }) {
                return Err(no.into());
            }
            if !collected {
                collected = true;
                if self.collect(false)?.gave_room() {
                    continue;
                }
            }
            if Instant::now() >= end {
                return Err(no.into());
            }
            watch.wait(end)?;
            collected = false;
            refused.clear();
        }
    }

    /// An earlier lease of the same container: rolled back, unless the container lives.
    fn clear_the_way(&self, holder: &Holder) -> Result<()> {
        for lease in self.of(&holder.key)? {
            let against = |now: &Lease| {
                let is_over = now.boot_id != self.boot_id || now.state == State::Releasing;
                (!is_over).then(|| alive::sign_of_life(now)).flatten()
            };
            match self.release_unless(&lease.id, Patience::with(&lease), against) {
                Ok(Returned::Yes) => {}
                Ok(Returned::No(life)) => {
                    return Err(Error::new(format!(
                        "container {} exists already and holds slice {} of GPU {} ({life})",
                        holder.key.id, lease.slice.profile, lease.slice.gpu_index
                    ))
                    .hint("delete it first, or use another id"));
                }
                // Its slice stays on record and is tried again; the new container takes another.
                Err(e) => tracing::warn!(lease = lease.id, "{}", e.line()),
            }
        }
        Ok(())
    }

    /// Chooses a place and puts it on record, one create at a time. So is the look at the
    /// driver: two hundred at once that look first and queue afterwards take six times as long.
    fn reserve(
        &self,
        holder: &Holder,
        asked: &Request,
        cgroups: &[String],
        refused: &[Reserved],
    ) -> Result<std::result::Result<(impl Driver + use<>, Lease), NoRoom>> {
        // Opened first: the driver takes its time to start, and others can choose meanwhile.
        let driver = self.driver()?;
        let why = format!("create of {}", holder.key.id);
        let _plan = self.store.lock_plan(&why)?;
        let snapshot = driver.snapshot()?;
        let mut reserved = self.reserved(&snapshot)?;
        reserved.extend_from_slice(refused);
        let wanted = Wanted {
            alternatives: &asked.alternatives,
            min_compute: asked.min_compute,
            ..Wanted::default()
        };
        let decision = match placement::choose(&snapshot, &reserved, &wanted) {
            Ok(decision) => decision,
            Err(no) => return Ok(Err(no)),
        };
        let lease = Lease {
            id: random_id()?,
            state: State::Creating,
            boot_id: self.boot_id.clone(),
            created: now(),
            holder: holder.clone(),
            slice: Slice {
                request: request::written(&asked.alternatives),
                profile: decision.profile.name.clone(),
                profile_id: decision.profile.id,
                gpu_uuid: decision.gpu.uuid.clone(),
                gpu_index: decision.gpu.index,
                gpu_minor: decision.gpu.minor,
                placement: decision.placement,
                gpu_instance: None,
                compute_instance: None,
                mig_uuid: None,
                emptied: false,
            },
            creator: process::current(),
            runtime_process: None,
            init: None,
            cgroups: cgroups.to_vec(),
            attempt: None,
            unknown: serde_json::Map::new(),
        };
        let ledger = self.store.lock(&why)?;
        ledger.sweep();
        ledger.put(&lease)?;
        tracing::info!(
            lease = lease.id,
            container = holder.key.id,
            "{} at {} on GPU {} is to be made",
            lease.slice.profile,
            lease.slice.placement,
            lease.slice.gpu_index
        );
        Ok(Ok((driver, lease)))
    }

    /// What the ledger has promised, by the names of its records where they cannot be read.
    fn reserved(&self, snapshot: &Snapshot) -> Result<Vec<Reserved>> {
        let (leases, damaged) = self.store.list()?;
        for d in &damaged {
            let file = printable(&d.file.to_string_lossy());
            tracing::warn!("{file} cannot be read: {}", d.why.line());
        }
        let known = |uuid: &str| snapshot.gpus.iter().any(|g| g.uuid == uuid);
        let claims = leases.iter().map(Claim::of);
        Ok(claims
            .chain(damaged.into_iter().filter_map(|d| d.claim))
            .filter(|c| c.boot_id == self.boot_id && known(&c.gpu_uuid))
            .map(|c| Reserved {
                gpu: c.gpu_uuid,
                profile_id: c.profile_id,
                placement: c.placement,
            })
            .collect())
    }

    /// Makes what the lease says. A failure takes it back.
    fn make(&self, driver: &impl Driver, lease: Lease) -> std::result::Result<Lease, Failed> {
        match self.try_make(driver, &lease) {
            Ok(lease) => Ok(lease),
            Err(Trouble::Refused(error)) => {
                // The driver made nothing, so there is nothing to destroy: what lies at that place
                // now is somebody else's.
                let forgotten = self
                    .store
                    .lock("refused create")
                    .and_then(|l| l.remove(&lease));
                let slice = lease.slice;
                Err(Failed {
                    error: error.and(forgotten.err()),
                    place: Some(Reserved {
                        gpu: slice.gpu_uuid,
                        profile_id: slice.profile_id,
                        placement: slice.placement,
                    }),
                })
            }
            Err(Trouble::Other(error)) => {
                let released = self.release(&lease.id, Patience::default());
                Err(Failed {
                    error: error.and(released.err()),
                    place: None,
                })
            }
        }
    }

    fn try_make(&self, driver: &impl Driver, lease: &Lease) -> std::result::Result<Lease, Trouble> {
        let slice = &lease.slice;
        let other = |e: crate::gpu::DriverError| Trouble::Other(e.into());
        let _lock = self.store.lock_gpu(
            &slice.gpu_uuid,
            &format!("create of {}", lease.holder.key.id),
        )?;
        let profile = crate::model::Profile {
            name: slice.profile.clone(),
            id: slice.profile_id,
            ..crate::model::Profile::default()
        };
        let gi = driver
            .create_gpu_instance(&slice.gpu_uuid, &profile, slice.placement)
            .map_err(|e| match e.code() {
                Some(INSUFFICIENT_RESOURCES) => Trouble::Refused(e.into()),
                _ => other(e),
            })?;
        // What cannot be put on record (a full disk, a record that somebody took away) goes at once:
        // nobody else could know that it is ours.
        let unrecorded = |error: Error, ci: Option<u32>| {
            let undone = ci
                .map_or(Ok(()), |ci| {
                    driver.destroy_compute_instance(&slice.gpu_uuid, gi, ci)
                })
                .and_then(|()| driver.destroy_gpu_instance(&slice.gpu_uuid, gi));
            Trouble::Other(error.and(undone.err().map(Error::from)))
        };
        self.record(lease, |l| l.slice.gpu_instance = Some(gi))
            .map_err(|e| unrecorded(e, None))?;
        let ci = driver
            .create_compute_instance(&slice.gpu_uuid, gi)
            .map_err(other)?;
        let uuid = driver.mig_uuid(&slice.gpu_uuid, gi, ci).map_err(other)?;
        let lease = self
            .record(lease, |l| {
                l.slice.compute_instance = Some(ci);
                l.slice.mig_uuid = Some(uuid);
            })
            .map_err(|e| unrecorded(e, Some(ci)))?;
        tracing::info!(
            lease = lease.id,
            "made: {}",
            lease.slice.mig_uuid.as_deref().unwrap_or_default()
        );
        Ok(lease)
    }

    fn record(&self, lease: &Lease, change: impl FnOnce(&mut Lease)) -> Result<Lease> {
        self.store
            .lock("create")?
            .update(&lease.id, change)?
            .ok_or_else(|| {
                Error::new(format!(
                    "the lease of container {} was taken away",
                    lease.holder.key.id
                ))
            })
    }
}

struct Failed {
    error: Error,
    /// A place that the driver would not give: another may do.
    place: Option<Reserved>,
}

enum Trouble {
    Refused(Error),
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Self {
        Trouble::Other(e)
    }
}

/// Wakes when a lease goes.
struct Watch {
    /// None for who does not wait, and where there is none to be had: a node has 128 for all of root's
    /// programs.
    inotify: Option<Inotify>,
}

impl Watch {
    fn on(leases: &Leases<'_>, end: Instant) -> Watch {
        let dir = leases.store.dir().join("leases");
        let watch = || {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            inotify.add_watch(&dir, AddWatchFlags::IN_DELETE)?;
            nix::Result::Ok(inotify)
        };
        let waits = Instant::now() < end;
        Watch {
            inotify: waits.then(watch).and_then(std::result::Result::ok),
        }
    }

    fn wait(&self, end: Instant) -> Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        let Some(inotify) = &self.inotify else {
            std::thread::sleep(left.min(LOOK_AGAIN_UNWATCHED));
            return Ok(());
        };
        let left = left.min(LOOK_AGAIN);
        let timeout = PollTimeout::try_from(left.as_millis().max(1)).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e).context(|| "wait for room"),
        }
    }
}

fn random_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let uuid = std::fs::read_to_string(FILE).context(|| format!("read {FILE}"))?;
    Ok(uuid.trim().replace('-', ""))
}
