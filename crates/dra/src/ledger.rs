//! The ledger's part of a claim: a lease for each allocated device, and the nodes of its slice.

use crate::cdi;
use crate::claim::{Allocated, Allocation, ClaimName};
use crate::resource_slices::DeviceName;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::gpu::device_nodes::Nodes;
use runmig_lease::gpu::{Queries, uvm};
use runmig_lease::model::Snapshot;
use runmig_lease::store::{Claim, ClaimName as LeasedDevice, ClaimTurn, Held, Store};
use runmig_lease::{ClaimNews, ClaimPlace, Leases, NoBundles, Patience};
use std::time::Duration;

/// The time that a Prepare waits for slices that are being released.
const PATIENCE: Duration = Duration::from_secs(40);

/// Makes the slices of a claim. After an error the leases of its other devices stay, and the next call continues. `hear` is
/// told of moves and waits.
pub(crate) fn prepare(
    config: &Config,
    claim: &ClaimName,
    allocated: &Allocated,
    hear: &dyn Fn(&Claim, ClaimNews),
) -> Result<Vec<cdi::Slice>> {
    let driver = &config.driver;
    let root = &driver.root;
    let nodes = uvm::nodes(driver.nvidia_modprobe.as_deref(), root, &driver.host_root)
        .context(|| format!("read the driver's device numbers below {}", root.display()))?;
    let snapshot = runmig_lease::driver(config).snapshot()?;
    let leases = open(config)?;
    let slice = |allocation: &Allocation| {
        let place = place(&snapshot, &allocation.device)?;
        let holder = holder(claim, allocated, allocation);
        let hear = |news| hear(&holder, news);
        let held = leases.prepare(holder.clone(), &place, PATIENCE, &hear)?;
        granted(&nodes, allocation, &held)
    };
    let slices = allocated.devices.iter().map(slice);
    let slices = slices.collect::<Result<Vec<_>>>()?;
    // Devices of an earlier allocation of the claim, whose Unprepare was lost.
    for held in leases.claims()? {
        let lost = held.lease.claim().filter(|c| c.uid == claim.uid);
        let lost = lost.filter(|c| allocated.devices.iter().all(|d| d.device != c.device));
        if let Some(lost) = lost {
            leases.release_device(&device_of(lost), Patience::default())?;
        }
    }
    Ok(slices)
}

/// Puts the places of a claim's devices on record, before the kubelet asks for the slices. `hear` is told of moves.
pub(crate) fn promise(
    config: &Config,
    claim: &ClaimName,
    allocated: &Allocated,
    hear: &dyn Fn(&Claim, ClaimNews),
) -> Result<()> {
    let snapshot = runmig_lease::driver(config).snapshot()?;
    let leases = open(config)?;
    for allocation in &allocated.devices {
        let place = place(&snapshot, &allocation.device)?;
        let holder = holder(claim, allocated, allocation);
        let hear = |news| hear(&holder, news);
        leases.promise(holder.clone(), &place, &hear)?;
    }
    Ok(())
}

fn open(config: &Config) -> Result<Leases<'_>> {
    let leases = Leases::open(config, Box::new(NoBundles))?;
    Ok(leases.acting_as(Actor::Claim))
}

/// Does something with the leases on record. Without a ledger there is nothing to do.
fn on_record<T: Default>(
    config: &Config,
    work: impl FnOnce(&Leases<'_>) -> Result<T>,
) -> Result<T> {
    match Leases::existing(config, Box::new(NoBundles))? {
        Some(leases) => work(&leases.acting_as(Actor::Claim)),
        None => Ok(T::default()),
    }
}

/// Returns the leases of claims with their instances, one for each device.
pub(crate) fn held(config: &Config) -> Result<Vec<Held>> {
    on_record(config, |leases| leases.claims())
}

/// Returns the claims on record, one for each device.
pub(crate) fn claims(config: &Config) -> Result<Vec<Claim>> {
    let held = held(config)?;
    Ok({ held.iter() }
        .filter_map(|held| held.lease.claim().cloned())
        .collect())
}

/// Ends what containers of claims left.
pub(crate) fn release_ended(config: &Config) -> Result<()> {
    on_record(config, |leases| leases.release_ended())
}

/// Names the container or the process that uses a device of a claim.
pub(crate) fn user_of(config: &Config, claim: &Claim) -> Result<Option<String>> {
    on_record(config, |leases| leases.user_of_device(&device_of(claim)))
}

/// Returns whether a claim has a lease on no other device.
pub(crate) fn is_last_device(config: &Config, claim: &Claim) -> Result<bool> {
    let on_record = claims(config)?;
    Ok(!{ on_record.iter() }.any(|c| c.uid == claim.uid && c.device != claim.device))
}

/// Ends the lease of one device of a claim.
pub(crate) fn release_device(config: &Config, claim: &Claim) -> Result<()> {
    on_record(config, |leases| {
        leases.release_device(&device_of(claim), Patience::default())
    })
}

fn device_of(claim: &Claim) -> LeasedDevice {
    LeasedDevice {
        uid: claim.uid.clone(),
        device: claim.device.clone(),
    }
}

fn holder(claim: &ClaimName, allocated: &Allocated, allocation: &Allocation) -> Claim {
    Claim {
        uid: claim.uid.clone(),
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        request: allocation.request.clone(),
        pool: allocation.pool.clone(),
        device: allocation.device.clone(),
        pods: allocated.pods.clone(),
    }
}

/// Waits for the turn of a claim among all processes.
pub(crate) fn turn(config: &Config, uid: &str) -> Result<ClaimTurn> {
    Store::open(&config.state_dir, config.lock_timeout)?.claim_turn(uid)
}

/// Ends the leases of a claim. A claim without a lease has ended already.
pub(crate) fn unprepare(config: &Config, uid: &str) -> Result<()> {
    on_record(config, |leases| leases.unprepare(uid, Patience::default()))
}

/// Returns the place that a device names.
fn place(snapshot: &Snapshot, device: &str) -> Result<ClaimPlace> {
    let name: DeviceName = device.parse()?;
    let (gpu, profile) = name.find(snapshot)?;
    Ok(ClaimPlace {
        gpu: gpu.uuid.clone(),
        profile: profile.name.clone(),
        placement: name.placement(),
    })
}

/// Returns the nodes and the UUID of a slice.
fn granted(nodes: &Nodes, allocation: &Allocation, held: &Held) -> Result<cdi::Slice> {
    let slice = held.instance.slice();
    let ids = slice.and_then(|s| {
        Some((
            s,
            s.gpu_instance?,
            s.compute_instance?,
            s.mig_uuid.as_ref()?,
        ))
    });
    let Some((slice, gi, ci, uuid)) = ids else {
        return Err(
            Error::new(format!("the lease {} has no slice", held.lease.id.as_str()))
                .hint("run migctl inspect on the node to see its record"),
        );
    };
    let mut all = nodes.required_nodes().to_vec();
    all.push(nodes.gpu_node(slice.gpu_minor));
    all.extend(nodes.capability_nodes(slice.gpu_minor, gi, ci)?);
    all.extend(nodes.optional_nodes());
    Ok(cdi::Slice {
        request: allocation.request.clone(),
        device: allocation.device.clone(),
        mig_uuid: uuid.clone(),
        nodes: all,
    })
}
