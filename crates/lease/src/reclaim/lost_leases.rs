//! Recovers leases that the ledger lost, because the state directory was removed or unmounted under a
//! container. A create also stores its leases beside the original `config.json`. From there a hook that
//! knows its lease by name puts the lease on record again. From then on it is a lease like any other.
//! Beside a damaged ledger the hook ends the slice by the same copy, and a repair finds living containers by their accounts.

use super::finding::Patience;
use super::{daemon, destroy, liveness};
use crate::bundles::Author;
use crate::draft::footprint;
use crate::effect;
use crate::error::{self, Error, Result};
use crate::framed::{Record, decode, encode};
use crate::leases::Leases;
use crate::model::LeaseId;
use crate::process;
use crate::store::{Held, Instance, Lease, LeaseState, Resource};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A bundle's account of the leases that its hook names.
pub struct BundleAccount {
    /// The author that the sidecar names.
    pub author: Option<Author>,
    /// The MIG devices in the edit itself, for a bundle without records beside the original.
    pub uuids: Vec<String>,
}

impl BundleAccount {
    /// Returns a lease, and whether it is of an earlier boot, which no instance survives.
    fn told(&self, context: &Leases<'_>, id: &LeaseId, container: &str) -> Result<(Held, bool)> {
        let lacks = |what: &str| Error::new(format!("its bundle does not tell {what}"));
        let held = self.held(id, container);
        let held = held.ok_or_else(|| lacks("which slice it had"))?;
        let boot = self.author.as_ref().and_then(|a| a.boot.as_ref());
        let boot = boot.ok_or_else(|| lacks("of which boot it is"))?;
        Ok((held, *boot != context.boot_id))
    }

    fn held(&self, id: &LeaseId, container: &str) -> Option<Held> {
        let records = &self.author.as_ref()?.records;
        let is_its = |l: &Lease| l.container().is_some_and(|c| c.key.id == container);
        let lease = |l: &Lease| l.id == *id && is_its(l);
        let lease: Arc<Lease> = find(records, lease)?.into();
        let instance = find(records, |i: &Instance| i.id == lease.instance)?.into();
        Some(Held { lease, instance })
    }

    /// Returns an error that names the remaining instance, with the command that destroys it.
    pub fn stays(&self, id: &LeaseId, container: &str, why: Error) -> Error {
        let error = Error::new(format!("cannot release lease {id}")).caused_by(why);
        let held = self.held(id, container);
        if let Some(Resource::Gpu(gpu)) = held.as_ref().map(|h| &h.instance.resource) {
            return error.hint(format!(
                "runmig has nothing on record of GPU {}: compare migctl list with nvidia-smi",
                gpu.gpu_index
            ));
        }
        let slice = held.as_ref().and_then(|h| h.instance.slice());
        error.hint(
            match (slice.and_then(destroy::command), self.uuids.as_slice()) {
                (Some(command), _) => command,
                (None, []) => "compare nvidia-smi mig -lgi with migctl list".to_owned(),
                (None, uuids) => format!(
                    "find {} with nvidia-smi -L, and destroy it with nvidia-smi mig -dci and -dgi",
                    uuids.join(" and ")
                ),
            },
        )
    }
}

fn find<R: Record>(records: &[String], is_it: impl Fn(&R) -> bool) -> Option<R> {
    let mut all = records.iter().filter_map(|r| decode(r.as_bytes()).ok());
    all.find(is_it)
}

impl Leases<'_> {
    /// Returns the data that a create stores beside the original of its bundle.
    pub fn author(&self, leases: &[Held]) -> Result<Author> {
        let first = leases
            .first()
            .ok_or_else(|| Error::new("the create has no lease"))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut records = Vec::new();
        for held in leases {
            records.push(text(encode(&*held.lease)?));
            records.push(text(encode(&*held.instance)?));
        }
        Ok(Author {
            lease: first.lease.id.clone(),
            records,
            ledger: self.store.identity(),
            boot: Some(self.boot_id.clone()),
        })
    }

    /// Writes the accounts of a create's leases, for a repair.
    pub fn put_accounts(&self, leases: &[Held]) -> Result<()> {
        leases
            .iter()
            .try_for_each(|held| self.store.put_account(held))
    }

    /// Returns whether a process with this ledger has released a lease that is not on record.
    pub fn has_struck_off(&self, account: &BundleAccount) -> bool {
        let ledger = account.author.as_ref().and_then(|a| a.ledger.as_ref());
        ledger.is_none() || ledger == self.store.identity().as_ref()
    }
}

/// The leases of living containers, by their accounts.
pub(super) struct Living {
    pub leases: Vec<Held>,
    /// The accounts that tell nothing, with the reason.
    pub untold: Vec<(LeaseId, Error)>,
}

/// Returns the leases of living containers that are not among these. A doubt counts as life.
pub(super) fn living(context: &Leases<'_>, known: &[Arc<Lease>]) -> Living {
    let (mut leases, mut untold) = (Vec::new(), Vec::new());
    for (id, account) in context.store.accounts() {
        if known.iter().any(|lease| lease.id == id) {
            continue;
        }
        let mut held = match account {
            Ok(Some(held)) => held,
            Ok(None) => continue,
            Err(why) => {
                untold.push((id, why));
                continue;
            }
        };
        if context.sign_of_life(&held.lease).is_none() {
            continue;
        }
        // The account is as old as the create.
        let init = liveness::own_init(&held.lease).filter(process::is_alive);
        if let Some(init) = init {
            let lease = Arc::make_mut(&mut held.lease);
            (lease.state, lease.init) = (LeaseState::Ready, Some(init));
        }
        leases.push(held);
    }
    Living { leases, untold }
}

/// Removes the accounts of leases that are not on record and whose containers are gone.
pub(super) fn sweep_accounts(context: &Leases<'_>) -> Result<()> {
    let accounts = context.store.accounts();
    // The ledger is read last: a create puts its leases on record before it writes their accounts.
    let state = context.store.state()?;
    for (id, account) in accounts {
        let lives = |held: &Held| context.sign_of_life(&held.lease).is_some();
        if state.lease(&id).is_none() && !account.is_ok_and(|held| held.as_ref().is_some_and(lives))
        {
            context.store.remove_account(&id);
        }
    }
    Ok(())
}

impl Leases<'_> {
    /// Ends the instance of a container that has ended, while the ledger is damaged. What a repair brings back of its
    /// lease is collected. Returns false if the ledger is whole by now: then the lease is released as any other.
    pub fn end_unrecorded(
        &self,
        account: &BundleAccount,
        id: &LeaseId,
        container: &str,
        bundle: &Path,
    ) -> Result<bool> {
        let told = account.told(self, id, container);
        let ended = told.and_then(|(held, is_over)| end_instance(self, &held, is_over));
        if let Ok(false) = ended {
            return Ok(false);
        }
        let restored = self.restore(bundle, id);
        let ended = ended.map_err(|e| account.stays(id, container, e));
        error::all([ended.map(drop), restored]).map(|()| true)
    }
}

/// Ends the daemon of a lease. Its cgroup proves that it is this container's.
fn end_daemon(context: &Leases<'_>, lease: &Lease) -> Result<()> {
    match daemon::end(context, lease)? {
        None => Ok(()),
        Some(left) => Err(
            Error::new(format!("{left} of its MPS daemon does not end")).hint(format!(
                "end the processes of cgroup runmig-mps-{}",
                lease.id
            )),
        ),
    }
}

fn end_instance(context: &Leases<'_>, held: &Held, is_over: bool) -> Result<bool> {
    let Held { lease, instance } = held;
    end_daemon(context, lease)?;
    if is_over || instance.outlives_leases() {
        return Ok(true);
    }
    if lease.shared_in.is_some() || lease.share().is_some() && instance.slice().is_some() {
        return Err(Error::new("other containers may use the slice"));
    }
    let Resource::Mig(slice) = &instance.resource else {
        return Ok(true);
    };
    let end = Instant::now() + Patience::default().0;
    loop {
        let why = format!("release of {}", lease.holder.name());
        let gpu = context.store.lock_gpu(&slice.gpu_uuid, &why)?;
        // After a repair another container may have the place, and the driver gives the same ids again.
        if context.store.damage()?.is_none() {
            return Ok(false);
        }
        match destroy::destroy(&context.driver(), slice, || Ok(()))? {
            Ok(()) => return Ok(true),
            Err(e) if !e.is_in_use() || Instant::now() >= end => return Err(e.into()),
            Err(_) => {}
        }
        drop(gpu);
        effect::pause(Duration::from_millis(50));
    }
}

impl Leases<'_> {
    /// Puts a lost lease on record again, if its instance exists and is provably its own.
    pub fn recover(
        &self,
        account: &BundleAccount,
        id: &LeaseId,
        container: &str,
    ) -> Result<Option<Held>> {
        let told = account.told(self, id, container);
        let recovered = told.and_then(|(held, is_over)| put_again(self, held, is_over));
        recovered.map_err(|e| account.stays(id, container, e))
    }
}

fn put_again(context: &Leases<'_>, held: Held, is_over: bool) -> Result<Option<Held>> {
    let Held { lease, instance } = &held;
    let container = lease.holder.name();
    end_daemon(context, lease)?;
    if is_over || !destroy::exists(&context.driver(), instance)? {
        return Ok(None);
    }
    if lease.shared_in.is_some() {
        // The leases of these containers are lost too.
        return Err(Error::new("other containers of its pod may use the slice"));
    }
    if lease.share().is_some() && instance.slice().is_some() {
        let why = "the slice of the seat is not on record, and containers may have seats in it";
        return Err(Error::new(why));
    }
    // A create adopts an administrator's instance under the plan's lock.
    let why = format!("recovery of {container}");
    let _plan = context.store.lock_plan(&why)?;
    let ledger = context.store.lock(&why)?;
    let state = context.store.state()?;
    let mut others = state.instances.iter().filter(|i| i.id != instance.id);
    if others.any(|other| excludes(other, instance)) {
        // A GPU outlives its records, and another container has it by now: nothing is left to release.
        if matches!(instance.resource, Resource::Gpu(_)) {
            return Ok(None);
        }
        return Err(Error::new("another lease has its place"));
    }
    ledger.change(|state| {
        // The ledger knows more of an instance that is on record.
        if state.instance(&instance.id).is_none() {
            state.put_instance(instance.clone())?;
        }
        state.put_lease(lease.clone())
    })?;
    tracing::warn!(
        lease = lease.id.as_str(),
        container,
        "was not in the ledger: put on record again by what its bundle tells"
    );
    Ok(Some(held))
}

/// Returns whether two instances lie at one place.
fn excludes(one: &Instance, other: &Instance) -> bool {
    let (place, its) = (footprint(one), footprint(other));
    place.gpu == its.gpu && place.placement.overlaps(its.placement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{config, of_killed, open, put};
    use crate::store::tests::instance;

    #[test]
    fn account_stays_with_its_record_or_its_container() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let on_record = put(&leases, "dead", |_| ());
        let lives = |mut held: Held| {
            Arc::make_mut(&mut held.lease).creator = process::current();
            held
        };
        let (lost, living) = (of_killed(&leases, "lost"), of_killed(&leases, "living"));
        let both_live = [
            lives(living.clone()),
            put(&leases, "known", |l| l.creator = process::current()),
        ];
        let all = [&[on_record.clone(), lost], &both_live[..]].concat();
        leases.put_accounts(&all).unwrap();
        let known: Vec<_> = leases.store.state().unwrap().leases.clone();
        let found = super::living(&leases, &known).leases;
        assert_eq!(found, [lives(living)]);

        sweep_accounts(&leases).unwrap();
        let mut left: Vec<LeaseId> = leases
            .store
            .accounts()
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        left.sort();
        let mut stay = [&on_record, &both_live[0], &both_live[1]].map(|held| held.lease.id.clone());
        stay.sort();
        assert_eq!(left, stay);
    }

    #[test]
    fn own_ledger_alone_tells_that_a_lease_was_released() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let held = put(&leases, "web", |_| ());
        let ours = leases.author(&[held]).unwrap();
        let ledger = |ledger| BundleAccount {
            author: Some(Author {
                ledger,
                ..ours.clone()
            }),
            uuids: Vec::new(),
        };
        assert!(leases.has_struck_off(&ledger(ours.ledger.clone())));
        assert!(leases.has_struck_off(&ledger(None)));
        assert!(!leases.has_struck_off(&ledger(Some("another".into()))));
    }

    #[test]
    fn places_exclude_each_other_on_one_gpu() {
        let at = |gpu: &str, start: u32| {
            let mut one = instance("one");
            one.change_slice(|slice| {
                slice.gpu_uuid = gpu.into();
                slice.placement.start = start;
            });
            one
        };
        for (gpu, start, is_excluded) in [
            ("GPU-1", 3, true),
            ("GPU-1", 4, false),
            ("GPU-2", 3, false),
            ("GPU-2", 4, false),
        ] {
            let other = at(gpu, start);
            assert_eq!(
                excludes(&at("GPU-1", 3), &other),
                is_excluded,
                "{gpu} {start}"
            );
        }
    }
}
