//! Waits for leases and processes that are in the way of a layout. A ticket in the queue keeps the GPUs from new creates.

use super::HeldGpus;
use crate::error::Result;
use crate::leases::{Leases, now};
use crate::store::{Changes, Operation, Ticket, Waiter};
use std::time::{Duration, Instant};

/// The time between two looks. The kernel does not tell of a process that lets an instance go.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The wait of one apply.
pub(super) struct Wait<'a> {
    context: &'a Leases<'a>,
    end: Instant,
    changes: Changes,
    ticket: Option<Ticket<'a>>,
    /// Outlives the ticket.
    operation: Operation,
    waiter: Waiter,
}

impl<'a> Wait<'a> {
    /// Begins to watch the ledger. From here on no change is missed.
    pub(super) fn begin(context: &'a Leases<'a>, layout: &str, time: Duration) -> Result<Wait<'a>> {
        Ok(Wait {
            context,
            end: Instant::now() + time,
            changes: Changes::of(context.store.dir())?,
            ticket: None,
            operation: context.store.begin()?,
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
    pub(super) fn wait(&mut self, held: HeldGpus) -> Result<()> {
        self.waiter.could_use = held;
        match &mut self.ticket {
            Some(ticket) => ticket.renew(&self.waiter)?,
            None => {
                let store = &self.context.store;
                let plan = store.lock_plan(&self.waiter.request)?;
                self.ticket = Some(store.enqueue(&plan, self.operation.id(), &self.waiter)?);
                tracing::info!("waits for {}", self.waiter.request);
            }
        }
        let left = self.end.saturating_duration_since(Instant::now());
        self.changes.wait_for(left.min(LOOK_AGAIN)).map(drop)
    }
}
