//! Creates a container with its slices, from the request to the running low-level runtime.

mod edit;

use super::args::Family;
use super::detect::Asking;
use super::spawn::{self, Inherited, Meanwhile};
use super::{Front, companion, container_name, mps, report};
use crate::bundles;
use crate::spec::bundle::Bundle;
use crate::spec::{self, CgroupManager, Document, HOOK_TIMEOUT_S};
use runmig_lease::cdi::Specification;
use runmig_lease::counters::Outcome;
use runmig_lease::error::{self, Context, Error, Result};
use runmig_lease::gpu::device_nodes::Nodes;
use runmig_lease::gpu::uvm;
use runmig_lease::model::{Cgroup, LeaseId};
use runmig_lease::request::{self, Request, Wanted};
use runmig_lease::store::{Container, Held, LeaseState};
use runmig_lease::{Acquired, Leases, POD_PATIENCE, Patience, Returned, process, programs, trust};
use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The time after which a hook that has not told its outcome did not run: its timeout, and some for the low-level
/// runtime.
const HOOK_TIME: Duration = Duration::from_secs(HOOK_TIMEOUT_S as u64 + 5);

pub fn create(front: &Front<'_>, asking: Asking<'_>) -> Result<i32> {
    if asking.request.is_none() && asking.claims.is_empty() {
        restore_original(front, &asking.bundle)?;
        drop(asking);
        return Err(front.runtime.exec(front.args));
    }
    // runmig lists the descriptors before it opens any library, since a library's descriptors are not for the
    // container. The bundle's descriptor is runmig's own.
    let inherited = Inherited::now(&[&asking.bundle])?;
    if !trust::is_host_root() {
        return Err(Error::new(
            "a slice can only be made by root on the host, not by a user or the root of a user \
             namespace",
        )
        .hint("run the engine as root"));
    }
    let (leases, _lock) = bundles::open_for(front.config, &asking.bundle, &asking.bundle_path)?;
    crate::log::start(front.config);
    let driver = &front.config.driver;
    let root = &driver.root;
    let nodes = uvm::nodes(driver.nvidia_modprobe.as_deref(), root, &driver.host_root)
        .context(|| format!("read the driver's device numbers below {}", root.display()))?;
    Slicing {
        front,
        asking: &asking,
        inherited,
        leases,
        nodes,
        runtime_begun: Cell::default(),
    }
    .run()
}

/// Puts the original back into a bundle whose container no longer asks for a slice.
fn restore_original(front: &Front<'_>, bundle: &Bundle) -> Result<()> {
    let numbers = Nodes::read(&front.config.driver.root)
        .map(|nodes| nodes.numbers().clone())
        .unwrap_or_default();
    // Only root can have a lease. Without root, no other create is at work on the bundle.
    let _lock = match trust::is_host_root() {
        true => bundles::lock_if_any(front.config, bundle)?,
        false => None,
    };
    bundle.restore_original(&numbers)
}

/// The parts of a create beside its slices.
struct Prepared {
    /// The bytes of `config.json` without an edit.
    original: Vec<u8>,
    document: Document,
    driver: Option<Specification>,
    hook: PathBuf,
    holder: Container,
    cgroup: Cgroup,
}

struct Slicing<'a> {
    front: &'a Front<'a>,
    asking: &'a Asking<'a>,
    inherited: Inherited,
    leases: Leases<'a>,
    nodes: Nodes,
    /// The begin of the low-level runtime.
    runtime_begun: Cell<Option<Instant>>,
}

impl Slicing<'_> {
    /// Makes the container, and counts the create.
    fn run(self) -> Result<i32> {
        let prepared = self.prepare().inspect_err(|e| {
            let who = request::identity(&self.asking.annotations);
            let container = self.holder(who.unwrap_or_default()).ok();
            let request = self.asking.request.as_ref();
            self.leases.count_refused(request, container, e);
        })?;
        let ended = self
            .make(prepared)
            .inspect_err(|e| self.leases.count_failed(Outcome::Refused, Some(e)))?;
        // This process may end by the signal that ended the low-level runtime.
        drop(self);
        Ok(spawn::propagate(ended))
    }

    /// Returns what a create needs beside its slices.
    fn prepare(&self) -> Result<Prepared> {
        let (bundle, unmarked) = (&self.asking.bundle, self.asking.unmarked.as_deref());
        let original = bundle.original(self.nodes.numbers(), unmarked)?;
        let document = Document::parse(&original)?;
        let driver = edit::find(self.front, &document)?;
        let hook = companion::program(programs::HOOK)?;
        let mut holder = self.holder(request::identity(&self.asking.annotations)?)?;
        let name = || container_name::given(self.asking.name.clone(), &document, &holder.key.id);
        holder.container_name = holder.container_name.clone().or_else(name);
        let manager = CgroupManager {
            is_crun: self.front.runtime.family == Family::Crun,
            is_systemd: self.front.call.systemd_cgroup,
            own: process::own_cgroup(),
        };
        let cgroup = spec::cgroup(&document, &holder.key.id, &manager);
        Ok(Prepared {
            original,
            document,
            driver,
            hook,
            holder,
            cgroup,
        })
    }

    /// Tells the end of the create, with its container. `ready` makes the leases *ready*, and takes the count along.
    fn count_created(&self, leases: &[Held], ready: impl FnOnce()) {
        let runtime = self.runtime_begun.get().map(|begun| begun.elapsed());
        self.leases.count_created(runtime);
        ready();
        self.leases.created(leases, runtime);
    }

    /// Returns whether a foreground container ran, whose low-level runtime has the status of the container: its hook has
    /// released a lease, or runmig saw the container.
    fn has_run(&self, leases: &[Held]) -> bool {
        let ran = |held: &Held| match self.leases.store().get(&held.lease.id) {
            Ok(now) => now.is_none_or(|now| now.lease.state != LeaseState::Pending),
            Err(_) => false,
        };
        self.asking.is_foreground && leases.iter().any(ran)
    }

    fn make(&self, prepared: Prepared) -> Result<ExitStatus> {
        let is_foreground = self.asking.is_foreground;
        let Acquired { leases, operation } =
            self.acquire(prepared.holder, &prepared.document, prepared.cgroup)?;
        let made = self
            .check_door(&leases, &prepared.document)
            .and_then(|()| {
                let driver = edit::files(prepared.driver.as_ref(), &leases);
                self.edit(&leases, prepared.document, driver, prepared.hook)
            })
            .and_then(|edited| {
                let bundle = &self.asking.bundle;
                self.leases.put_accounts(&leases)?;
                bundle.install(self.leases.author(&leases)?, &prepared.original, &edited)?;
                self.hand_over(&leases)
            });
        let ended = match made {
            Ok(ended) if ended.success() && !is_foreground => {
                // The container exists, even if runmig cannot record that. Without the record, the lease
                // counts as alive by the container's init and cgroup.
                let ready = || {
                    for Held { lease, .. } in &leases {
                        if let Err(e) = self.leases.ready(lease) {
                            tracing::warn!(lease = lease.id.as_str(), "{}", e.line());
                        }
                    }
                };
                if let Some((held, why)) = self.unlimited(&leases) {
                    ready();
                    let e = why.and(self.leases.end_unlimited(&held.lease).err());
                    self.leases.count_failed(Outcome::Driver, Some(&e));
                    return Err(e.and(self.over(&leases).err()));
                }
                self.count_created(&leases, ready);
                ended
            }
            Ok(ended) => {
                // The low-level runtime failed and reported why, or a foreground run is over and its hook may
                // have run. crun discards the words of a hook.
                let has_run = ended.success() || self.has_run(&leases);
                let failed = |held: &Held| {
                    let missing = self.leases.missing_limit(held).ok()??;
                    (!missing.is_awaited).then_some(missing.why)
                };
                let limit = { leases.iter().filter(|_| !ended.success()) }.find_map(failed);
                match has_run {
                    true => self.count_created(&leases, || ()),
                    false => self.leases.count_failed(Outcome::Runtime, limit.as_ref()),
                }
                if let Some(e) = &limit {
                    self.report(e);
                }
                if let Err(e) = self.over(&leases) {
                    tracing::warn!("{}", e.line());
                    // This error stays out of the engine's log. The engine shows its user the log's last
                    // error, which must say why the low-level runtime failed.
                    if !is_foreground || !ended.success() {
                        report::error(&e, None);
                    }
                }
                ended
            }
            Err(e) => return Err(e.and(self.over(&leases).err())),
        };
        drop(operation);
        Ok(ended)
    }

    /// Checks again that the container can reach its MPS daemon. The create may have waited for long.
    fn check_door(&self, leases: &[Held], original: &Document) -> Result<()> {
        if !leases.iter().any(|held| self.leases.door(held).is_some()) {
            return Ok(());
        }
        match self.no_mps(original) {
            None => Ok(()),
            Some(why) => Err(Error::new(format!(
                "the container cannot reach its MPS daemon any more: {why}"
            ))),
        }
    }

    /// Returns the lease whose level promises a limit of the driver that its container does not have, with the error.
    /// A limit that cannot be confirmed counts as missing.
    fn unlimited<'l>(&self, leases: &'l [Held]) -> Option<(&'l Held, Error)> {
        let missing = |held: &'l Held| {
            let why = match self.leases.missing_limit(held) {
                Ok(missing) => missing?.why,
                Err(e) => e,
            };
            Some((held, why))
        };
        leases.iter().find_map(missing)
    }

    /// Reports an error to the engine beside that of the low-level runtime.
    fn report(&self, e: &Error) {
        report::error(e, self.front.call.log.as_ref());
    }

    /// Releases the leases of a container that is gone, and restores its bundle. A container may survive the
    /// kill of its low-level runtime, and then keeps its slice.
    fn over(&self, leases: &[Held]) -> Result<()> {
        let mut lives = false;
        let released = error::all(leases.iter().map(|held| {
            let patience = Patience::default();
            if let Returned::No(life) = self.leases.release_if_over(held, patience)? {
                lives = true;
                tracing::warn!(
                    lease = held.lease.id.as_str(),
                    "the container keeps its slice: {life}"
                );
            }
            Ok(())
        }));
        if lives {
            return released;
        }
        // The hook may have released the slices. It leaves the bundle to this create, which has the bundle's
        // lock.
        let restored = self.asking.bundle.restore(owner(leases)?);
        error::all([released, restored])
    }

    fn no_mps(&self, original: &Document) -> Option<String> {
        mps::obstacle(self.front.runtime, original, &self.asking.bundle_path)
    }

    fn acquire(&self, holder: Container, original: &Document, cgroup: Cgroup) -> Result<Acquired> {
        let Some(asked) = &self.asking.request else {
            let claims = &self.asking.claims;
            return self
                .leases
                .acquire_claimed(&holder, claims, &cgroup, POD_PATIENCE);
        };
        let asked = &Request {
            no_mps: match asked.wanted {
                Wanted::Share(_) | Wanted::Seat(_) => self.no_mps(original),
                Wanted::Slices(_) | Wanted::Gpus(_) => None,
            },
            ..asked.clone()
        };
        self.leases.acquire(holder, asked, cgroup)
    }

    fn hand_over(&self, leases: &[Held]) -> Result<ExitStatus> {
        // A foreground run outlives runmig, as a container of runc outlives runc. A create that the engine
        // kills at its deadline must end: otherwise it makes a container that no engine deletes.
        let deadline = request::deadline(&self.asking.annotations);
        let is_foreground = self.asking.is_foreground;
        let ends_with_us = !is_foreground && deadline.is_some_and(|d| d.kills);
        let (runtime, args) = (self.front.runtime, self.front.args);
        self.runtime_begun.set(Some(Instant::now()));
        let child = spawn::spawn(runtime, args, &self.inherited, ends_with_us)?;
        for Held { lease, .. } in leases {
            if self.leases.started(lease, child.process())?.is_none() {
                return Err(Error::new(
                    "another process has removed the lease while runmig made the container",
                ));
            }
        }
        let mut seen = None;
        child.run(|| match is_foreground {
            false => Meanwhile::Done,
            true => self.meanwhile(leases, &mut seen),
        })
    }

    /// Records that a foreground container runs. `seen` is the time since which its first process is known.
    fn meanwhile(&self, leases: &[Held], seen: &mut Option<Instant>) -> Meanwhile {
        for Held { lease, .. } in leases {
            match self.leases.ready_if_started(lease) {
                Ok(true) => {}
                Ok(false) => return Meanwhile::AskAgain,
                Err(e) => tracing::warn!(lease = lease.id.as_str(), "{}", e.line()),
            }
        }
        // A low-level runtime may record the first process before it runs the hook.
        let is_early = seen.get_or_insert_with(Instant::now).elapsed() < HOOK_TIME;
        let awaits = |held| {
            let missing = self.leases.missing_limit(held);
            matches!(missing, Ok(Some(limit)) if limit.is_awaited)
        };
        if is_early && leases.iter().any(awaits) {
            return Meanwhile::AskAgain;
        }
        match self.unlimited(leases) {
            None => self.count_created(leases, || ()),
            Some((held, why)) => {
                let e = why.and(self.leases.end_unlimited(&held.lease).err());
                self.report(&e);
                self.leases.count_failed(Outcome::Driver, Some(&e));
            }
        }
        self.leases.store().write_counts();
        Meanwhile::Done
    }

    fn holder(&self, who: request::Identity) -> Result<Container> {
        let key = container_name::key(self.front, self.asking.id)?;
        // Records are JSON, and so are the hook's arguments in `config.json`.
        let runtime = &self.front.runtime.path;
        for path in [runtime, &key.root, &self.asking.bundle_path] {
            spec::utf8(path)?;
        }
        container_name::check(&key)?;
        Ok(Container {
            key,
            runtime: runtime.to_owned(),
            bundle: self.asking.bundle_path.clone(),
            namespace: who.namespace,
            pod: who.pod,
            pod_uid: who.pod_uid,
            container_name: who.container_name,
            user: process::login(),
        })
    }
}

/// Returns the container's first lease, which names the edit of its bundle.
fn owner(leases: &[Held]) -> Result<&LeaseId> {
    let first = leases
        .first()
        .ok_or_else(|| Error::new("the container has no lease"))?;
    Ok(&first.lease.id)
}
