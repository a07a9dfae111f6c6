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
    /// The last layout, to continue from. None until the API server has answered; until then no look
    /// lays out anything.
    published: Option<Published>,
    left_out: Vec<LeftOut>,
    healths: Vec<DeviceHealth>,
    /// The slices that were ready on record at the last look.
    earlier: Earlier,
    sick: Sick,
    /// Another driver that gives out the GPUs of the node, in words.
    rival: watch::Receiver<Option<String>>,
}

impl Room {
    /// As long as `rival` tells of another driver that gives out the GPUs, nothing free is published.
    pub(crate) fn new(
        config: Arc<Config>,
        node: &str,
        rival: watch::Receiver<Option<String>>,
    ) -> Room {
        Room {
            config,
            node: node.to_owned(),
            published: None,
            left_out: Vec::new(),
            healths: Vec::new(),
            earlier: Earlier::default(),
            sick: Sick::default(),
            rival,
        }
    }

    /// Returns the ResourceSlices of the node and what they leave out, as of a node without another driver.
    ///
    /// # Errors
    /// As `look`.
    pub(crate) fn once(config: Config, node: &str) -> Result<(Vec<ResourceSlice>, Vec<LeftOut>)> {
        let (_, no_rival) = watch::channel(None);
        let mut room = Room::new(Arc::new(config), node, no_rival);
        room.published = Some(Published::default());
        let slices = room.look()?;
        Ok((slices.unwrap_or_default(), room.left_out))
    }

    /// Returns the GPUs that are not for claims, each with the rule in words.
    fn excluded(&self, gpus: &[Gpu]) -> Vec<(GpuUuid, String)> {
        match &*self.rival.borrow() {
            Some(rival) => { gpus.iter() }
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
        let inside = |gpu: &GpuUuid, profile| driver.instances_of(gpu, profile).unwrap_or_default();
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
                denied_profiles: &self.config.policy.denied_profiles(gpus),
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

/// Looks again and again, without an end. Tells the ResourceSlices that have changed, and the healths of every look: the
/// kubelet forgets those that are not repeated. `earlier`: the ResourceSlices of an earlier process, once the API server
/// has answered. The kubelet hears of healths before that.
pub(crate) async fn follow(
    mut room: Room,
    slices_told: watch::Sender<Vec<Wanted>>,
    healths_told: watch::Sender<Option<Vec<DeviceHealth>>>,
    mut earlier: oneshot::Receiver<Published>,
) {
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
                healths_told.send_replace(Some(room.healths.clone()));
                if let Some(slices) = slices {
                    slices_told.send_if_modified(|last| {
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
            Ok(()) = room.rival.changed() => {}
            Ok(earlier) = &mut earlier, if room.published.is_none() => {
                room.published = Some(earlier);
            }
        }
    }
}
