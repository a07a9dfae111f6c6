//! The ledger's part of a claim: a lease for each allocated device, and the nodes of its slice.

use crate::cdi;
use crate::claim::{Allocated, Allocation, ClaimName};
use crate::layout::DeviceName;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::gpu::Queries;
use runmig_lease::gpu::nodes::Nodes;
use runmig_lease::model::Snapshot;
use runmig_lease::store::{Claim, Held};
use runmig_lease::{ClaimPlace, LeaseManager, NoBundles, Patience};
use std::time::Duration;

/// The time that a Prepare waits for slices that are being released.
const PATIENCE: Duration = Duration::from_secs(40);

/// Makes the slices of a claim. After an error the leases of its other devices stay, and the next call continues.
pub(crate) fn prepare(
    config: &Config,
    claim: &ClaimName,
    allocated: &Allocated,
) -> Result<Vec<cdi::Slice>> {
    let root = &config.driver.root;
    let nodes = Nodes::read(root)
        .context(|| format!("read the driver's device numbers below {}", root.display()))?;
    let snapshot = runmig_lease::driver(config).snapshot()?;
    let leases = LeaseManager::open(config, Box::new(NoBundles))?;
    let slice = |allocation: &Allocation| {
        let place = place(&snapshot, &allocation.device)?;
        let held = leases.prepare(holder(claim, allocated, allocation), &place, PATIENCE)?;
        granted(&nodes, allocation, &held)
    };
    allocated.devices.iter().map(slice).collect()
}

/// Puts the places of a claim's devices on record, before the kubelet asks for the slices.
pub(crate) fn promise(config: &Config, claim: &ClaimName, allocated: &Allocated) -> Result<()> {
    let snapshot = runmig_lease::driver(config).snapshot()?;
    let leases = LeaseManager::open(config, Box::new(NoBundles))?;
    for allocation in &allocated.devices {
        let place = place(&snapshot, &allocation.device)?;
        leases.promise(holder(claim, allocated, allocation), &place)?;
    }
    Ok(())
}

/// Returns the claims on record, one for each device.
pub(crate) fn claims(config: &Config) -> Result<Vec<Claim>> {
    let Some(leases) = LeaseManager::existing(config, Box::new(NoBundles))? else {
        return Ok(Vec::new());
    };
    let held = leases.claims()?;
    Ok({ held.iter() }
        .filter_map(|held| held.lease.claim().cloned())
        .collect())
}

/// Ends what containers of claims left.
pub(crate) fn release_ended(config: &Config) -> Result<()> {
    match LeaseManager::existing(config, Box::new(NoBundles))? {
        Some(leases) => leases.release_ended(),
        None => Ok(()),
    }
}

/// Returns the container or the process that uses the slices of a claim, in words.
pub(crate) fn user_of(config: &Config, uid: &str) -> Result<Option<String>> {
    match LeaseManager::existing(config, Box::new(NoBundles))? {
        Some(leases) => leases.user_of_claim(uid),
        None => Ok(None),
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

/// Ends the leases of a claim. A claim without a lease has ended already.
pub(crate) fn unprepare(config: &Config, uid: &str) -> Result<()> {
    match LeaseManager::existing(config, Box::new(NoBundles))? {
        Some(leases) => leases.unprepare(uid, Patience::default()),
        None => Ok(()),
    }
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
