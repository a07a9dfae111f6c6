//! The room of the node: looks at driver and ledger, lays out the ResourceSlices, and tells the health of devices.

use crate::changes::Changes;
use crate::health::{self, DeviceHealth, Earlier, Sick};
use crate::memory;
use crate::obstacle::Obstacles;
use crate::resource_slices::objects::Wanted;
use crate::resource_slices::{LeftOut, Node, Published, lay_out, pool, uses};
use k8s_openapi::api::resource::v1::ResourceSlice;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Gpu, GpuUuid};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{oneshot, watch};

/// The looks at the room of a node.
pub(crate) struct Room {
    config: Arc<Config>,
    node: String,
    /// The last layout. None until the API server has told which ResourceSlices it has.
    published: Option<Published>,
    left_out: Vec<LeftOut>,
    healths: Vec<DeviceHealth>,
    /// The slices that were ready on record at the last look.
    earlier: Earlier,
    sick: Sick,
    /// Another driver that gives out the GPUs of the node, in words.
    rival: Option<watch::Receiver<Option<String>>>,
}

impl Room {
    /// `published`: the layout to continue from. Without one it lays out nothing. As long as `rival` tells of another driver
    /// that gives out the GPUs, nothing free is published.
    pub(crate) fn new(
        config: Arc<Config>,
        node: &str,
        published: Option<Published>,
        rival: Option<watch::Receiver<Option<String>>>,
    ) -> Room {
        Room {
            config,
            node: node.to_owned(),
            published,
            left_out: Vec::new(),
            healths: Vec::new(),
            earlier: Earlier::default(),
            sick: Sick::default(),
            rival,
        }
    }

    /// Returns when another driver comes or goes.
    async fn rival_changes(&mut self) {
        if let Some(rival) = &mut self.rival
            && rival.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// Returns the GPUs and profiles that the last look left out.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the GPUs that are not for claims, each with the rule in words.
    fn excluded(&self, gpus: &[Gpu]) -> Vec<(GpuUuid, String)> {
        let rival = self.rival.as_ref().and_then(|rival| rival.borrow().clone());
        match rival {
            Some(rival) => gpus
                .iter()
                .map(|gpu| (gpu.uuid.clone(), rival.clone()))
                .collect(),
            None => self.config.unpublished(gpus),
        }
    }

    /// Returns the ResourceSlices of the node as it is now. None until the API server has answered. Logs the reasons for
    /// which GPUs are left out, when they change.
    ///
    /// # Errors
    /// The driver or the ledger cannot be read. The last ResourceSlices then stay.
    pub(crate) fn look(&mut self) -> Result<Option<Vec<ResourceSlice>>> {
        let driver = runmig_lease::driver(&self.config);
        // A GPU that does not answer shows in the look at all of them.
        let instances_of = |gpu: &GpuUuid, profile: u32| driver.instances_of(gpu, profile);
        let inside = |gpu: &GpuUuid, profile| instances_of(gpu, profile).unwrap_or_default();
        self.earlier.look_inside(inside);
        let inventory = Inventory::look(&self.config, &driver)?;
        let uses = uses(&inventory, &self.node)?;
        self.look_at_health(&inventory);
        let Some(published) = &self.published else {
            return Ok(None);
        };
        let gpus = &inventory.snapshot.gpus;
        // A capability that the driver does not tell is left out.
        let capabilities = gpus.iter().filter_map(|gpu| {
            let capability = driver.compute_capability(&gpu.uuid).ok()?;
            Some((gpu.uuid.clone(), capability))
        });
        let policy = &self.config.policy;
        let evicted = match self.config.kubernetes.evict {
            true => { self.sick.lasting(Instant::now()).into_iter() }
                .chain(health::drained(&inventory, &pool(&self.node)))
                .collect(),
            false => BTreeSet::new(),
        };
        let layout = lay_out(
            &Node {
                name: &self.node,
                snapshot: &inventory.snapshot,
                compute_capabilities: &capabilities.collect(),
                excluded: &self.excluded(gpus),
                denied_profiles: &policy.denied_profiles(gpus),
                sick: &self.sick.devices(),
                evicted: &evicted,
                ledger: &uses,
            },
            published,
        );
        if layout.left_out != self.left_out {
            for left_out in &layout.left_out {
                tracing::warn!("{} is not published: {}", left_out.what, left_out.reason);
            }
            self.left_out = layout.left_out;
        }
        self.published = Some(layout.published);
        Ok(Some(layout.slices))
    }

    /// Notes the health of the devices with claims, and logs its changes.
    fn look_at_health(&mut self, inventory: &Inventory) {
        self.healths = health::healths(inventory, &pool(&self.node), &self.earlier);
        self.earlier = Earlier::of(inventory);
        for change in self.sick.update(&self.healths, Instant::now()) {
            tracing::warn!("{change}");
        }
    }
}

/// The ends of a look: ResourceSlices for the API, and healths for the kubelet.
pub(crate) struct Told {
    /// The ResourceSlices.
    pub(crate) slices: watch::Sender<Vec<Wanted>>,
    /// The health of the devices with claims. None before the first look.
    pub(crate) healths: watch::Sender<Option<Vec<DeviceHealth>>>,
}

/// Looks again and again, without an end. Tells the ResourceSlices that have changed, and the healths of every look: the
/// kubelet forgets those that are not repeated. `earlier`: the ResourceSlices of an earlier process, once the API server
/// has answered. The kubelet hears of healths before that.
pub(crate) async fn follow(mut room: Room, told: Told, mut earlier: oneshot::Receiver<Published>) {
    // Before the first look, so that no change is missed.
    let mut changes = Changes::of(room.config.clone());
    let mut obstacles = Obstacles::default();
    loop {
        let looking = tokio::task::spawn_blocking(move || {
            let seen = room.look();
            let seen = seen.map(|slices| Some(slices?.iter().map(Wanted::of).collect::<Vec<_>>()));
            memory::give_back();
            (room, seen)
        });
        let Ok((back, seen)) = looking.await else {
            return;
        };
        room = back;
        match seen {
            Ok(slices) => {
                obstacles.are_over();
                told.healths.send_replace(Some(room.healths.clone()));
                if let Some(slices) = slices {
                    told.slices.send_if_modified(|last| {
                        let is_new = *last != slices;
                        *last = slices;
                        is_new
                    });
                }
            }
            Err(e) => obstacles.warn(&e),
        }
        tokio::select! {
            () = changes.next() => {}
            () = room.rival_changes() => {}
            Ok(earlier) = &mut earlier, if room.published.is_none() => {
                room.published = Some(earlier);
            }
        }
    }
}
