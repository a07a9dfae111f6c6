//! Each GPU instance with all leases on it. A GPU outside of MIG mode counts as one.

use super::Inventory;
use crate::model::{Gpu, GpuUuid, InstanceId, MigMode, Placement, Profile};
use crate::placement::Slot;
use crate::refusal::{HELD_FOREIGN, OF_LAYOUT};
use crate::store::{Entry, Held, HolderNames, Instance};

/// A GPU instance, or a GPU outside of MIG mode, with all that is on record there.
#[derive(Debug, Clone)]
pub struct SliceView<'a> {
    /// The UUID of the GPU.
    pub gpu_uuid: &'a GpuUuid,
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The id of the GPU instance. None for a GPU outside of MIG mode.
    pub gpu_instance: Option<u32>,
    /// The id of the compute instance, if it is on record.
    pub compute_instance: Option<u32>,
    /// The UUID of the MIG device, if it is on record.
    pub mig_uuid: Option<&'a str>,
    /// The name of the profile. None for a GPU outside of MIG mode.
    pub profile: Option<String>,
    /// The memory slices. None for a GPU outside of MIG mode.
    pub placement: Option<Placement>,
    /// The state, as `migctl gpus` names it. None for a GPU outside of MIG mode on which nothing is on record.
    pub state: Option<&'static str>,
    /// The profile, if the driver offers it.
    pub offered: Option<&'a Profile>,
    /// The leases on it, or the instance alone.
    pub entries: Vec<&'a Entry>,
}

impl<'a> SliceView<'a> {
    /// Returns what the entries of one place tell of it.
    fn of(gpu_uuid: &'a GpuUuid, gpu_index: u32, entries: Vec<&'a Entry>) -> SliceView<'a> {
        let slice = entries.iter().find_map(|entry| entry.instance().slice());
        SliceView {
            gpu_uuid,
            gpu_index,
            gpu_instance: slice.and_then(|s| s.gpu_instance),
            compute_instance: slice.and_then(|s| s.compute_instance),
            mig_uuid: slice.and_then(|s| s.mig_uuid.as_deref()),
            profile: slice.map(|s| s.profile.clone()),
            placement: slice.map(|s| s.placement),
            state: state_of(entries.first().copied()),
            offered: None,
            entries,
        }
    }

    /// Returns the kind of the portions. Empty without one, and where they differ.
    pub fn kind(&self) -> &'static str {
        alike({ self.entries.iter() }.map(|entry| entry.shown().kind.word()))
    }

    /// Returns the id of the lease. Empty without one, and with several.
    pub fn lease(&self) -> &str {
        let mut leases = self.entries.iter().filter_map(|entry| entry.lease());
        match (leases.next(), leases.next()) {
            (Some(lease), None) => lease.id.as_str(),
            _ => "",
        }
    }

    /// Returns a name of the holders. Empty without a holder, and where holders differ. A holder of a kind that has no
    /// such name does not count: a claim does not contradict its container.
    pub fn holder(&self, name: fn(HolderNames<'a>) -> Option<&'a str>) -> &'a str {
        let leases = self.entries.iter().filter_map(|entry| entry.lease());
        alike(leases.filter_map(|lease| name(lease.holder.names())))
    }
}

/// Returns the word that all of these are. Empty without one, and where they differ.
fn alike<'a>(mut words: impl Iterator<Item = &'a str>) -> &'a str {
    let first = words.next().unwrap_or_default();
    match words.all(|word| word == first) {
        true => first,
        false => "",
    }
}

impl Inventory {
    /// Returns the leases of this boot, then the instances without one.
    pub fn entries(&self) -> Vec<Entry> {
        let leased = self.leases.iter().cloned().map(Entry::Held);
        let unleased = self.unleased.iter().cloned().map(Entry::Unleased);
        leased.chain(unleased).collect()
    }

    /// Returns the state of the memory slices at a place that is not free: `leased`, `idle`, `quarantined`, `layout`,
    /// `foreign`, or `unknown` without the ledger.
    pub fn state_at(&self, gpu: &Gpu, at: Placement) -> &'static str {
        let nobodys = match self.unread {
            Some(_) => "unknown",
            None => "foreign",
        };
        state_of(self.at(gpu, at).first()).unwrap_or(nobodys)
    }

    /// Names the instance at a place with its holder, for people: `container train (3g.40gb)`.
    pub(crate) fn named_at(&self, slot: &Slot) -> String {
        let Some(gpu) = self.snapshot.gpu(&slot.gpu) else {
            return format!("the slice at {}", slot.placement);
        };
        let (at, profile) = (slot.placement, gpu.profile(slot.profile_id));
        let profile = profile.map_or_else(|| slot.profile_id.to_string(), |p| p.name.clone());
        let here = self.at(gpu, at);
        let others = here.len().saturating_sub(1);
        // A claim comes before its containers, and the order of the ledger is random.
        let by_name = |entry: &&Entry| match entry {
            Entry::Held(held) => (held.lease.claim().is_none(), held.lease.holder.title()),
            Entry::Unleased(_) => (true, String::new()),
        };
        match here.iter().min_by_key(by_name) {
            Some(Entry::Held(held)) => {
                let and = match others {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                let end = match held.instance.outlives_leases() {
                    true => HELD_FOREIGN,
                    false => ")",
                };
                // Its GPU was outside of MIG mode.
                let what = match (held.instance.slice(), held.lease.share()) {
                    (Some(_), _) => profile,
                    (None, Some(_)) => "a share of the GPU".to_owned(),
                    (None, None) => "the whole GPU".to_owned(),
                };
                format!("{}{and} ({what}{end}", held.lease.holder.title())
            }
            Some(Entry::Unleased(instance)) => match &instance.layout {
                Some(layout) => format!("{profile} at {at}{OF_LAYOUT}{layout}"),
                None if instance.attempt().is_some() => {
                    format!("the quarantined {profile} at {at}")
                }
                None => format!("{profile} at {at}, which is being released"),
            },
            None => {
                let instance = gpu.instances.iter().find(|i| i.placement == at);
                let id = instance.map_or_else(String::new, |i| format!(" {}", i.id));
                format!("GPU instance{id} ({profile} at {at}), which runmig did not make")
            }
        }
    }

    /// Returns every GPU instance once, and every GPU outside of MIG mode. `entries` are those of the inventory.
    /// Without the driver's answer about a GPU the records tell. An instance without an id does not exist yet.
    pub fn slices<'a>(&'a self, entries: &'a [Entry]) -> Vec<SliceView<'a>> {
        let mut views = Vec::new();
        for gpu in &self.snapshot.gpus {
            match gpu.mig {
                MigMode::Enabled => views.extend(self.on_gpu(gpu, entries)),
                MigMode::Disabled | MigMode::Unsupported => views.push(whole(gpu, entries)),
            }
        }
        // The latest record of an id is the one whose instance the driver may still have.
        for entry in entries.iter().rev() {
            let resource = &entry.instance().resource;
            let slice = entry.instance().slice();
            let id = slice.and_then(|slice| slice.gpu_instance);
            if slice.is_some() && id.is_none() {
                continue;
            }
            let is_it = |view: &&mut SliceView<'_>| {
                view.gpu_uuid == resource.gpu_uuid() && view.gpu_instance == id
            };
            let Some(view) = views.iter_mut().find(is_it) else {
                let (uuid, index) = (resource.gpu_uuid(), resource.gpu_index());
                views.push(SliceView::of(uuid, index, vec![entry]));
                continue;
            };
            let is_listed = self.snapshot.gpu(view.gpu_uuid).is_some();
            if !is_listed && view.placement == slice.map(|s| s.placement) {
                view.entries.insert(0, entry);
            }
        }
        views
    }

    /// Returns the instances that the driver lists on a GPU.
    fn on_gpu<'a>(&'a self, gpu: &'a Gpu, entries: &'a [Entry]) -> Vec<SliceView<'a>> {
        let view = |listed: &crate::model::GpuInstance| {
            let is_it = |instance: &Instance| {
                instance.slice().is_some_and(|slice| {
                    slice.gpu_uuid == gpu.uuid
                        && slice.placement == listed.placement
                        && slice.gpu_instance.is_none_or(|id| id == listed.id)
                })
            };
            let here = entries.iter().filter(|entry| is_it(entry.instance()));
            let profile = gpu.profile(listed.profile_id);
            SliceView {
                gpu_instance: Some(listed.id),
                profile: Some(profile.map_or(listed.profile_id.to_string(), |p| p.name.clone())),
                placement: Some(listed.placement),
                state: Some(self.state_at(gpu, listed.placement)),
                offered: profile,
                ..SliceView::of(&gpu.uuid, gpu.index, here.collect())
            }
        };
        gpu.instances.iter().map(view).collect()
    }
}

fn whole<'a>(gpu: &'a Gpu, entries: &'a [Entry]) -> SliceView<'a> {
    let here = entries.iter().filter(|entry| {
        let instance = entry.instance();
        instance.slice().is_none() && *instance.resource.gpu_uuid() == gpu.uuid
    });
    SliceView::of(&gpu.uuid, gpu.index, here.collect())
}

/// Returns the state of the place of an entry.
fn state_of(entry: Option<&Entry>) -> Option<&'static str> {
    Some(match entry?.shown_state() {
        "quarantined" => "quarantined",
        "idle" => "idle",
        "layout" => "layout",
        _ => "leased",
    })
}

impl Inventory {
    /// Returns the leases on an instance.
    pub(crate) fn leases_on(&self, id: &InstanceId) -> impl Iterator<Item = &Held> {
        let leases = self.leases.iter();
        leases.filter(move |held| held.instance.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Attempt, Claim, Container, Holder, InstanceState, Lease, LeaseState, Resource, Slice, tests,
    };

    fn held(resource: Resource, holder: Holder) -> Held {
        let lease = Lease {
            state: LeaseState::Ready,
            holder,
            ..tests::lease("a")
        };
        let instance = Instance {
            state: InstanceState::Ready,
            resource,
            ..tests::instance("a")
        };
        Held {
            lease: lease.into(),
            instance: instance.into(),
        }
    }

    fn slice(gpu_instance: Option<u32>) -> Resource {
        let slice = tests::instance("a").slice().cloned().unwrap();
        Resource::Mig(Slice {
            gpu_instance,
            ..slice
        })
    }

    fn container(pod: Option<&str>, name: &str) -> Holder {
        Holder::Container(Container {
            pod: pod.map(str::to_owned),
            container_name: Some(name.to_owned()),
            ..Container::default()
        })
    }

    #[test]
    fn names_that_differ_are_empty() {
        let pod = |inventory: &Inventory| {
            let entries = inventory.entries();
            let views = inventory.slices(&entries);
            assert_eq!(views.len(), 1, "{views:?}");
            let names = [
                views[0].holder(|names| names.pod),
                views[0].holder(|names| names.container),
                views[0].holder(|names| names.claim),
            ];
            names.map(str::to_owned)
        };
        let of = |holders: Vec<Holder>| Inventory {
            leases: { holders.into_iter() }
                .map(|holder| held(slice(Some(3)), holder))
                .collect(),
            ..Inventory::default()
        };
        let two = of(vec![
            container(Some("web"), "a"),
            container(Some("web"), "b"),
        ]);
        assert_eq!(pod(&two), ["web", "", ""]);
        // A container outside of Kubernetes is in no pod.
        let alone = of(vec![container(Some("web"), "a"), container(None, "a")]);
        assert_eq!(pod(&alone), ["", "a", ""]);
        // A claim does not contradict its container.
        let claim = Holder::Claim(Claim {
            name: "gpu".to_owned(),
            ..Claim::default()
        });
        let claimed = of(vec![claim, container(Some("web"), "a")]);
        assert_eq!(pod(&claimed), ["web", "a", "gpu"]);
    }

    #[test]
    fn omits_instance_without_id() {
        let inventory = Inventory {
            leases: vec![held(slice(None), container(None, "a"))],
            ..Inventory::default()
        };
        assert!(inventory.slices(&inventory.entries()).is_empty());
    }

    #[test]
    fn names_the_only_lease_alone() {
        let of = |holders: &[&str]| Inventory {
            leases: { holders.iter() }
                .map(|name| held(slice(Some(3)), container(None, name)))
                .collect(),
            ..Inventory::default()
        };
        for (holders, id) in rows! {
            &["a"][..] => "a";
            &["a", "b"] => "";
        } {
            let entries = of(holders).entries();
            let entries = entries.iter().collect();
            let gpu = "GPU-1".into();
            let view = SliceView::of(&gpu, 0, entries);
            assert_eq!(view.lease(), id, "{holders:?}");
        }
    }

    #[test]
    fn names_what_nobody_holds_by_its_state() {
        let attempt = Attempt {
            count: 1,
            error: String::new(),
            held_by: Vec::new(),
            next: tests::lease("a").created,
        };
        for (state, name) in rows! {
            InstanceState::Quarantined(attempt) => "the quarantined 19 at 3:1";
            InstanceState::Releasing => "19 at 3:1, which is being released";
        } {
            let instance = Instance {
                state,
                ..tests::instance("a")
            };
            let slot = crate::draft::footprint(&instance);
            let mut inventory = Inventory {
                unleased: vec![instance.into()],
                ..Inventory::default()
            };
            inventory.snapshot.gpus.push(Gpu {
                uuid: slot.gpu.clone(),
                ..Gpu::default()
            });
            assert_eq!(inventory.named_at(&slot), name);
        }
    }
}
