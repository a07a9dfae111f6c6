//! The creates that wait for room, in order of arrival: the tickets of the ledger.
//!
//! A ticket names its operation. If that has ended, the waiter was killed. A create that has found its place removes its
//! ticket, and puts it back under the same number if it loses the place.

use super::file::{State, check_size};
use super::{Lock, Store};
use crate::error::{Context, Result};
use crate::model::{GpuUuid, OperationId, Timestamp};
use serde::{Deserialize, Serialize};

/// The limit of a ticket, in bytes. A waiter names the profiles that it could use on each GPU: 16 GPUs with
/// 20 profiles each are 20 KiB.
const MAX_TICKET: usize = 256 * 1024;
const WHY: &str = "a place in the queue";

/// A request in the queue, as its ticket tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Waiter {
    /// The id of the container.
    pub container: String,
    /// The name for people, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The request, as the user wrote it.
    pub request: String,
    /// The time of its arrival.
    pub since: Timestamp,
    /// The process that waits.
    pub pid: u32,
    /// The profiles that could ever satisfy the request, by UUID of the GPU. No profile stands for the whole
    /// GPU.
    pub could_use: Vec<(GpuUuid, Vec<u32>)>,
}

/// A ticket on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The position in the order of arrival.
    pub number: u64,
    /// The operation of the create. It ends with its process.
    pub operation: OperationId,
    /// The request.
    pub waiter: Waiter,
}

/// The tickets on record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Queue {
    /// The last number that was given. None is given twice.
    last: u64,
    /// In the order of their numbers.
    tickets: Vec<Waiting>,
}

impl Queue {
    /// Returns the tickets before this number.
    pub(crate) fn before(&self, number: u64) -> &[Waiting] {
        &self.tickets[..self.tickets.partition_point(|t| t.number < number)]
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.before(number.saturating_add(1)).len() > self.before(number).len()
    }

    pub(super) fn is_in_order(&self) -> bool {
        self.tickets.is_sorted_by(|a, b| a.number < b.number)
    }

    /// Returns whether another queue lacks a ticket of this one, or has it for another request.
    pub(super) fn loses(&self, after: &Queue) -> bool {
        self.tickets.iter().any(|t| !after.tickets.contains(t))
    }

    /// Removes the tickets of killed waiters, and returns them.
    pub(crate) fn sweep(&mut self, store: &Store) -> Vec<Waiting> {
        let is_killed = |t: &mut Waiting| !store.is_at_work(&t.operation);
        self.tickets.extract_if(.., is_killed).collect()
    }

    /// Adds or replaces the ticket of an operation. It keeps its number, unless another got
    /// that after a repair.
    fn put(&mut self, had: Option<u64>, operation: &OperationId, waiter: &Waiter) -> Result<u64> {
        self.remove(operation);
        let number = had.filter(|number| !self.has(*number));
        let ticket = Waiting {
            number: number.unwrap_or(self.last.saturating_add(1)),
            operation: operation.clone(),
            waiter: waiter.clone(),
        };
        check_size(&ticket, MAX_TICKET)?;
        let number = ticket.number;
        self.last = self.last.max(number);
        self.tickets.insert(self.before(number).len(), ticket);
        Ok(number)
    }

    fn remove(&mut self, operation: &OperationId) {
        self.tickets.retain(|t| t.operation != *operation);
    }
}

/// A place in the queue. It ends when this value is dropped or its operation ends.
pub(crate) struct Ticket<'a> {
    store: &'a Store,
    operation: OperationId,
    pub number: u64,
}

impl Store {
    /// Returns the queued requests in their order.
    ///
    /// # Errors
    /// The ledger cannot be read, or is damaged.
    pub fn waiting(&self) -> Result<Vec<Waiting>> {
        self.waiting_before(u64::MAX)
    }

    /// Returns the requests before this number.
    pub(crate) fn waiting_before(&self, number: u64) -> Result<Vec<Waiting>> {
        let state = self.state()?;
        let waits = |ticket: &&Waiting| self.is_at_work(&ticket.operation);
        let tickets = state.queue.before(number).iter();
        Ok(tickets.filter(waits).cloned().collect())
    }

    /// Adds a ticket behind all others: the order is that of the plan's lock.
    pub(crate) fn enqueue(
        &self,
        _plan: &Lock,
        operation: &OperationId,
        waiter: &Waiter,
    ) -> Result<Ticket<'_>> {
        let number = self.change_queue(|state| state.queue.put(None, operation, waiter))?;
        Ok(Ticket {
            store: self,
            operation: operation.clone(),
            number,
        })
    }

    /// Removes the tickets of killed waiters, and returns them.
    pub(crate) fn sweep_queue(&self) -> Result<Vec<Waiting>> {
        let waits = |t: &Waiting| self.is_at_work(&t.operation);
        if self.state()?.queue.tickets.iter().all(waits) {
            return Ok(Vec::new());
        }
        self.change_queue(|state| Ok(state.queue.sweep(self)))
    }

    fn change_queue<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let changed = self.lock(WHY).and_then(|ledger| ledger.change(change));
        changed.context(|| format!("change {WHY}"))
    }
}

impl Ticket<'_> {
    /// Writes the present request of the waiter.
    pub(crate) fn renew(&mut self, waiter: &Waiter) -> Result<()> {
        let (had, operation) = (Some(self.number), &self.operation);
        let put = |state: &mut State| state.queue.put(had, operation, waiter);
        self.number = self.store.change_queue(put)?;
        Ok(())
    }

    /// Lets later requests pass, because the waiter has its place and is about to make its slice. If that
    /// fails, the waiter still has its number.
    pub(crate) fn step_aside(&self) -> Result<()> {
        self.store.change_queue(|state| {
            state.queue.remove(&self.operation);
            Ok(())
        })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // If that fails, it counts as a killed waiter's once the operation ends.
        if let Err(e) = self.step_aside() {
            tracing::warn!("{}", e.line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Operation, file};
    use std::fs;
    use std::time::Duration;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state"), Duration::from_secs(10)).unwrap();
        (dir, store)
    }

    fn waiter(container: &str) -> Waiter {
        Waiter {
            container: container.to_owned(),
            ..Waiter::default()
        }
    }

    fn join<'a>(store: &'a Store, operation: &Operation, container: &str) -> Ticket<'a> {
        let plan = store.lock_plan("test").unwrap();
        { store.enqueue(&plan, operation.id(), &waiter(container)) }.unwrap()
    }

    fn order(store: &Store) -> Vec<(u64, String)> {
        let waiting = store.waiting().unwrap().into_iter();
        waiting.map(|w| (w.number, w.waiter.container)).collect()
    }

    fn all(waiting: &[(u64, &str)]) -> Vec<(u64, String)> {
        let waiting = waiting.iter();
        waiting.map(|(n, w)| (*n, (*w).to_owned())).collect()
    }

    #[test]
    fn tickets_out_of_order_are_damage() {
        let (_dir, store) = store();
        let operations = ["one", "two"].map(|id| (store.begin().unwrap(), id));
        let _tickets = { operations.iter() }
            .map(|(operation, id)| join(&store, operation, id))
            .collect::<Vec<_>>();
        let mut state = store.state().unwrap().state.clone();
        state.check().unwrap();
        state.queue.tickets.reverse();
        let why = state.check().unwrap_err().line();
        assert_eq!(why, "its tickets are not in order");
    }

    /// The last of the queue steps aside, others come, and its place comes to nothing.
    #[test]
    fn keeps_the_number_of_one_that_stepped_aside() {
        let (_dir, store) = store();
        let operations = [(); 4].map(|()| store.begin().unwrap());
        let first = join(&store, &operations[0], "first");
        let mut second = join(&store, &operations[1], "second");
        second.step_aside().unwrap();
        assert_eq!(order(&store), all(&[(1, "first")]));
        let third = join(&store, &operations[2], "third");
        assert_eq!(order(&store), all(&[(1, "first"), (3, "third")]));
        second.renew(&waiter("again")).unwrap();
        let queue = [(1, "first"), (2, "again"), (3, "third")];
        assert_eq!(order(&store), all(&queue));
        let before = store.waiting_before(3).unwrap();
        assert_eq!(before.len(), 2);
        drop((first, second, third));
        assert_eq!(order(&store), all(&[]));
        let _later = join(&store, &operations[3], "later");
        assert_eq!(order(&store), all(&[(4, "later")]));
    }

    /// Nobody counts it, and a collection removes it.
    #[test]
    fn ticket_of_ended_operation_is_none() {
        let (_dir, store) = store();
        let [one, other, third] = [(); 3].map(|()| store.begin().unwrap());
        let kept = [&one, &other].map(|operation| join(&store, operation, "killed"));
        drop((one, other));
        kept.into_iter().for_each(std::mem::forget);
        assert_eq!(order(&store), all(&[]));
        let _third = join(&store, &third, "third");
        assert_eq!(store.state().unwrap().queue.tickets.len(), 3);
        let swept = store.sweep_queue().unwrap().into_iter();
        assert_eq!(swept.map(|t| t.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(store.state().unwrap().queue.tickets.len(), 1);
        assert_eq!(store.sweep_queue().unwrap(), []);
    }

    /// A waiter reads these counts alone.
    #[test]
    fn counts_changes_by_which_a_ticket_leaves() {
        let (_dir, store) = store();
        let left = || store.header().map(|header| header.left);
        let operations = [(); 2].map(|()| store.begin().unwrap());
        let mut first = join(&store, &operations[0], "first");
        let second = join(&store, &operations[1], "second");
        let mut counts = vec![left()];
        first.renew(&waiter("first")).unwrap();
        counts.push(left());
        first.renew(&waiter("for less")).unwrap();
        counts.push(left());
        first.step_aside().unwrap();
        counts.push(left());
        drop(first);
        counts.push(left());
        drop(second);
        counts.push(left());
        assert_eq!(counts, [0, 0, 1, 2, 2, 3].map(Some));
        assert_eq!(store.header().unwrap().freed, 0);
    }

    /// The repair had the generation before, in which the last one was not yet.
    #[test]
    fn renews_a_ticket_that_a_repair_lost() {
        for others in [0, 1] {
            let (_dir, store) = store();
            let operations = [(); 3].map(|()| store.begin().unwrap());
            let _first = join(&store, &operations[0], "first");
            let mut lost = join(&store, &operations[1], "lost");
            let killed = join(&store, &store.begin().unwrap(), "killed");
            std::mem::forget(killed);
            let file = store.dir().join(file::FILE);
            fs::copy(file.with_extension("json.1"), &file).unwrap();
            fs::write(&file, "{").unwrap();
            let ledger = store.lock("test").unwrap();
            let repair = |state: &mut State, _| {
                state.queue.remove(&lost.operation);
                state.queue.sweep(&store);
                Ok(())
            };
            assert!(ledger.replace_damaged(repair).unwrap().is_some());
            drop(ledger);
            assert_eq!(order(&store), all(&[(1, "first")]));
            let came = operations[2..].iter().take(others);
            let _came: Vec<Ticket<'_>> = came.map(|o| join(&store, o, "came")).collect();
            lost.renew(&waiter("lost")).unwrap();
            let mut queue = vec![(1, "first"), (2, "lost"), (3, "came")];
            queue.truncate(2 + others);
            assert_eq!(order(&store), all(&queue));
        }
    }

    #[test]
    fn refuses_a_ticket_without_end() {
        let (_dir, store) = store();
        let operation = store.begin().unwrap();
        let plan = store.lock_plan("test").unwrap();
        let long = waiter(&"x".repeat(MAX_TICKET));
        let e = store.enqueue(&plan, operation.id(), &long).map(drop);
        let line = e.unwrap_err().line();
        assert!(
            line.starts_with("cannot change a place in the queue: it would be "),
            "{line}"
        );
    }
}
