//! The ResourceSlices of this node as the API has them: quantities, texts, and the times of taints.

use super::counters::Amounts;
use k8s_openapi::api::resource::v1::{Counter, DeviceTaint, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns an amount as a quantity of Kubernetes, in its canonical form.
pub fn quantity(amount: u64) -> Quantity {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let fits = |(bits, _): &&(u32, &str)| amount > 0 && amount.trailing_zeros() >= *bits;
    Quantity(match units.iter().find(fits) {
        Some((bits, unit)) => format!("{}{unit}", amount >> bits),
        None => amount.to_string(),
    })
}

/// Returns at most this many bytes of the beginning of a text.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let mut ends = (0..=max.min(text.len())).rev();
    let end = ends.find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

/// Returns the counters of a set, or of what a device consumes.
pub(super) fn quantities(amounts: &Amounts) -> BTreeMap<String, Counter> {
    let counter = |(name, amount): (&String, &u64)| {
        let value = quantity(*amount);
        (name.clone(), Counter { value })
    };
    amounts.iter().map(counter).collect()
}

/// The fingerprint of a ResourceSlice's content. The content itself takes a hundred times the memory.
pub(crate) type Print = [u8; 32];

/// A ResourceSlice for the API, as text: it takes a fifth of the object's memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) print: Print,
}

impl Wanted {
    /// Returns the text of a ResourceSlice.
    pub fn of(slice: &ResourceSlice) -> Wanted {
        let text = serde_json::to_string(slice).unwrap_or_default();
        Wanted {
            name: slice.metadata.name.clone().unwrap_or_default(),
            print: Sha256::digest(&text).into(),
            text: text.into(),
        }
    }
}

/// The taints of each device that has some, with their times.
pub(crate) type Times = BTreeMap<String, Vec<DeviceTaint>>;

/// Returns the taints of a ResourceSlice in the API.
pub(crate) fn times(present: &ResourceSlice) -> Times {
    let devices = present.spec.devices.iter().flatten();
    devices
        .filter_map(|device| Some((device.name.clone(), device.taints.clone()?)))
        .collect()
}

/// Keeps the times of the taints that are in the API already: a pod may tolerate one for a time.
pub(crate) fn keep_times(slice: &mut ResourceSlice, present: &Times) {
    for device in slice.spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            let is_same = |b: &&DeviceTaint| (&b.key, &b.effect) == (&taint.key, &taint.effect);
            let mut before = present.get(&device.name).into_iter().flatten();
            let same = before.find(is_same);
            taint.time_added = same.and_then(|b| b.time_added.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tainted(effect: &str, time: Option<&str>) -> ResourceSlice {
        let taint = json!({"key": "runmig.dev/unhealthy", "effect": effect, "timeAdded": time});
        let slice = json!({
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a", "taints": [taint]}, {"name": "b"}],
            },
        });
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn taint_keeps_its_time() {
        let time = Some("2026-01-01T00:00:00Z");
        let present = tainted("NoSchedule", time);
        let mut next = tainted("NoSchedule", None);
        keep_times(&mut next, &times(&present));
        assert_eq!(next, present);
        let mut harder = tainted("NoExecute", None);
        keep_times(&mut harder, &times(&present));
        assert_eq!(harder, tainted("NoExecute", None));
    }
}
