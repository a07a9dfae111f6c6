//! The ledger's part of a claim: a lease for each allocated device, and the nodes of its slice.

use crate::cdi;
use crate::resource_slices::DeviceName;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::gpu::device_nodes::Nodes;
use runmig_lease::gpu::{Queries, uvm};
use runmig_lease::model::Snapshot;
use runmig_lease::store::{ByteLock, Claim, ClaimName as LeasedDevice, Held, Store};
use runmig_lease::{ClaimNews, ClaimPlace, Leases, NoBundles, Patience, process};
use std::time::Duration;

/// The time that a Prepare waits for slices that are being released.
const PATIENCE: Duration = Duration::from_secs(40);

/// Does work that blocks in a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let work = || {
        process::renew_patience();
        work()
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.because(|| "the driver failed at the claim")?
}

/// Makes the slices of a claim's devices. After an error the leases of its other devices stay, and the next call
/// continues. `hear` is told of moves and waits.
pub(crate) fn prepare(
    config: &Config,
    devices: &[Claim],
    hear: &dyn Fn(&Claim, ClaimNews),
) -> Result<Vec<cdi::Slice>> {
    let driver = &config.driver;
    let root = &driver.root;
    let nodes = uvm::nodes(driver.nvidia_modprobe.as_deref(), root, &driver.host_root)
        .context(|| format!("read the driver's device numbers below {}", root.display()))?;
    let snapshot = runmig_lease::driver(config).snapshot()?;
    let leases = open(config)?;
    let slice = |claim: &Claim| {
        let place = place(&snapshot, &claim.device)?;
        let hear = |news| hear(claim, news);
        let held = leases.prepare(claim.clone(), &place, PATIENCE, &hear)?;
        granted(&nodes, claim, &held)
    };
    let slices = devices.iter().map(slice).collect::<Result<Vec<_>>>()?;
    // Devices of an earlier allocation of the claim, whose Unprepare was lost.
    for held in leases.claims()? {
        let lost = { held.lease.claim() }
            .filter(|c| devices.iter().any(|d| d.uid == c.uid))
            .filter(|c| devices.iter().all(|d| d.device != c.device));
        if let Some(lost) = lost {
            leases.release_device(&device_of(lost), Patience::default())?;
        }
    }
    Ok(slices)
}

/// Puts the places of a claim's devices on record, before the kubelet asks for the slices. `hear` is told of moves.
pub(crate) fn promise(
    config: &Config,
    devices: &[Claim],
    hear: &dyn Fn(&Claim, ClaimNews),
) -> Result<()> {
    let snapshot = runmig_lease::driver(config).snapshot()?;
    let leases = open(config)?;
    for claim in devices {
        let place = place(&snapshot, &claim.device)?;
        leases.promise(claim.clone(), &place, &|news| hear(claim, news))?;
    }
    Ok(())
}

fn open(config: &Config) -> Result<Leases<'_>> {
    let leases = Leases::open(config, Box::new(NoBundles))?;
    Ok(leases.acting_as(Actor::Claim))
}

/// Does something with the leases on record. Without a ledger there is nothing to do.
pub(crate) fn on_record<T: Default>(
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
    let held = held(config)?.into_iter();
    let claims = held.filter_map(|held| held.lease.claim().cloned());
    Ok(claims.collect())
}

/// Ends what containers of claims left.
pub(crate) fn release_ended(config: &Config) -> Result<()> {
    on_record(config, |leases| leases.release_ended())
}

/// Returns the name of a claim's device in the ledger.
pub(crate) fn device_of(claim: &Claim) -> LeasedDevice {
    LeasedDevice {
        uid: claim.uid.clone(),
        device: claim.device.clone(),
    }
}

/// Waits for the turn of a claim among all processes.
pub(crate) fn turn(config: &Config, uid: &str) -> Result<ByteLock> {
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
fn granted(nodes: &Nodes, claim: &Claim, held: &Held) -> Result<cdi::Slice> {
    let slice = held.instance.slice();
    let its = slice.and_then(|s| {
        let uuid = s.mig_uuid.as_ref()?;
        Some((s.gpu_minor, s.gpu_instance?, s.compute_instance?, uuid))
    });
    let Some((minor, gi, ci, uuid)) = its else {
        return Err(
            Error::new(format!("the lease {} has no slice", held.lease.id.as_str()))
                .hint("run migctl inspect on the node to see its record"),
        );
    };
    let mut all = nodes.required_nodes().to_vec();
    all.push(nodes.gpu_node(minor));
    all.extend(nodes.capability_nodes(minor, gi, ci)?);
    all.extend(nodes.optional_nodes());
    Ok(cdi::Slice {
        claim: claim.clone(),
        mig_uuid: uuid.clone(),
        nodes: all,
    })
}
