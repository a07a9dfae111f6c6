//! The choices of the user: filter, order and the first visible lease.

use super::columns::Column;
use super::facts::Facts;
use super::keys::Key;
use super::page::Page;
use crate::cli::filter::{Filter, namespace};
use std::collections::{BTreeMap, BTreeSet};

/// The choices of the user.
pub struct View {
    pub filter: Filter,
    pub sort: Column,
    pub reverse: bool,
    /// The first visible lease. A page may have fewer.
    pub offset: usize,
}

impl View {
    pub fn new(filter: &Filter, sort: Column, reverse: bool) -> View {
        View {
            filter: filter.clone(),
            sort,
            reverse,
            offset: 0,
        }
    }

    /// Follows a key. Returns whether the user goes on.
    pub fn press(&mut self, key: Key, page: &Page, facts: &Facts) -> bool {
        let last = page.leases.saturating_sub(page.visible);
        // Several keys may come at once, before the next page.
        let offset = self.offset.min(last);
        let step = page.visible.max(1);
        match key {
            Key::Quit => return false,
            Key::Up => self.offset = offset.saturating_sub(1),
            Key::Down => self.offset = (offset + 1).min(last),
            Key::PageUp => self.offset = offset.saturating_sub(step),
            Key::PageDown => self.offset = (offset + step).min(last),
            Key::Home => self.offset = 0,
            Key::End => self.offset = last,
            Key::NextColumn => self.sort = self.sort.plus(1),
            Key::PreviousColumn => self.sort = self.sort.plus(Column::ALL.len() - 1),
            Key::Reverse => self.reverse = !self.reverse,
            Key::Gpu => self.filter.next_gpu(&gpus(facts)),
            Key::Namespace => self.filter.next_namespace(&namespaces(facts)),
            Key::Kind => self.filter.next_kind(),
        }
        true
    }
}

fn gpus(facts: &Facts) -> BTreeMap<u32, String> {
    let listed = facts.inventory.snapshot.gpus.iter();
    let listed = listed.map(|gpu| (gpu.index, gpu.uuid.as_str().to_owned()));
    let resources = facts.inventory.instances().map(|i| &i.resource);
    let recorded = resources.map(|r| (r.gpu_index(), r.gpu_uuid().as_str().to_owned()));
    recorded.chain(listed).collect()
}

fn namespaces(facts: &Facts) -> Vec<String> {
    let leases = facts.inventory.leases.iter().map(|held| &held.lease);
    let names: BTreeSet<&str> = leases
        .filter_map(namespace)
        .filter(|n| !n.is_empty())
        .collect();
    names.into_iter().map(str::to_owned).collect()
}
