//! The room of the node: looks at driver and ledger, and lays out the ResourceSlices.

use crate::changes::{Changes, changed};
use crate::layout::{LeftOut, Node, Published, lay_out, uses};
use crate::slices::resource_slice;
use k8s_openapi::api::resource::v1::ResourceSlice;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::gpu::Queries;
use runmig_lease::policy::Subject;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The looks at the room of a node.
pub(crate) struct Room {
    config: Arc<Config>,
    node: String,
    published: Published,
    left_out: Vec<LeftOut>,
}

impl Room {
    /// Continues from the ResourceSlices of an earlier process.
    pub(crate) fn new(config: Arc<Config>, node: &str, earlier: Published) -> Room {
        Room {
            config,
            node: node.to_owned(),
            published: earlier,
            left_out: Vec::new(),
        }
    }

    /// Returns the ResourceSlices of the node as it is now. Logs the reasons for which GPUs are left out, when they
    /// change.
    ///
    /// # Errors
    /// The driver or the ledger cannot be read. The last ResourceSlices then stay.
    pub(crate) fn look(&mut self) -> Result<Vec<ResourceSlice>> {
        let driver = runmig_lease::driver(&self.config);
        let inventory = Inventory::look(&self.config, &driver)?;
        let uses = uses(&inventory, &self.node)?;
        let gpus = &inventory.snapshot.gpus;
        // A capability that the driver does not tell is left out.
        let capabilities = gpus.iter().filter_map(|gpu| {
            let capability = driver.compute_capability(&gpu.uuid).ok()?;
            Some((gpu.uuid.clone(), capability))
        });
        let policy = &self.config.policy;
        let layout = lay_out(
            &Node {
                name: &self.node,
                snapshot: &inventory.snapshot,
                compute_capabilities: &capabilities.collect(),
                excluded: &policy.excluded(gpus, &Subject::default()),
                denied_profiles: &policy.denied_profiles(gpus),
                unhealthy: &BTreeMap::new(),
                uses: &uses.uses,
                idle: &uses.idle,
                allocated: &uses.allocated,
            },
            &self.published,
        );
        if layout.left_out != self.left_out {
            for left_out in &layout.left_out {
                tracing::warn!("{} is not published: {}", left_out.what, left_out.reason);
            }
            self.left_out = layout.left_out;
        }
        self.published = layout.published;
        Ok(self.published.slices.iter().map(resource_slice).collect())
    }
}

/// Looks again and again, and tells the ResourceSlices that have changed, without an end.
pub(crate) async fn follow(mut room: Room, told: watch::Sender<Vec<ResourceSlice>>) {
    let config = room.config.clone();
    // Before the first look, so that no change is missed.
    let mut changes = Changes::of(&config).ok();
    loop {
        let looking = tokio::task::spawn_blocking(move || {
            let seen = room.look();
            (room, seen)
        });
        let Ok((back, seen)) = looking.await else {
            return;
        };
        room = back;
        match seen {
            Ok(slices) => {
                told.send_if_modified(|last| {
                    let is_new = *last != slices;
                    *last = slices;
                    is_new
                });
            }
            Err(e) => tracing::warn!("{}", e.line()),
        }
        changed(&config, &mut changes).await;
    }
}
