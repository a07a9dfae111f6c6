//! Waits for leases and processes that are in the way of a layout. A ticket in the queue keeps the GPUs from new creates.

use super::HeldGpus;
use crate::context::{LeaseContext, now};
use crate::error::Result;
use crate::store::{Changes, RECORDS, Ticket, Waiter};
use std::time::{Duration, Instant};

/// The time between two looks. The kernel does not tell of a process that lets an instance go.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The wait of one apply.
pub(super) struct Wait {
    end: Instant,
    changes: Changes,
    ticket: Option<Ticket>,
    waiter: Waiter,
}

impl Wait {
    /// Begins to watch the ledger. From here on no change is missed.
    pub(super) fn begin(context: &LeaseContext<'_>, layout: &str, time: Duration) -> Result<Wait> {
        Ok(Wait {
            end: Instant::now() + time,
            changes: Changes::of(context.store.dir(), RECORDS)?,
            ticket: None,
            waiter: Waiter {
                container: "migctl apply".to_owned(),
                name: None,
                request: format!("layout {layout}"),
                since: now(),
                pid: std::process::id(),
                could_use: HeldGpus::new(),
            },
        })
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Waits until the ledger changes, with a place in the queue that reserves these GPUs.
    pub(super) fn wait(&mut self, context: &LeaseContext<'_>, held: HeldGpus) -> Result<()> {
        if self.waiter.could_use != held {
            self.waiter.could_use = held;
            match &mut self.ticket {
                Some(ticket) => ticket.write(&self.waiter)?,
                None => {
                    let plan = context.store.lock_plan(&self.waiter.request)?;
                    context.store.sweep_queue(&plan);
                    self.ticket = Some(context.store.enqueue(&plan, &self.waiter)?);
                    tracing::info!("waits for {}", self.waiter.request);
                }
            }
        }
        let left = self.end.saturating_duration_since(Instant::now());
        self.changes.wait_for(left.min(LOOK_AGAIN)).map(drop)
    }
}
