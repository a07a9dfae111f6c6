//! The invariants after any event.

use super::World;
use super::machine::Instance;
use crate::prelude::*;
pub use crate::process::names_in as names;
use runmig_lease::framed::sha256;
use runmig_lease::store::{Entry, Listing, Store};

impl World {
    /// No instance without a lease but an administrator's, none with two but a pod's, no lease that
    /// claims what is not there.
    pub fn nothing_lost_nothing_given_twice(&self) -> Result<(), String> {
        let (leases, instances) = (self.leases(), self.instances());
        let all = || format!("leases: {leases:#?}\ninstances: {instances:#?}");
        let complain = |what: String| Err(format!("{what}\n{}", all()));
        for instance in &instances {
            let owners: Vec<&Value> = leases.iter().filter(|l| claims(l, instance)).collect();
            // A claim and its containers have one slice.
            let shared = |l: &&Value| match l["claim"]["uid"].as_str() {
                Some(uid) => Some(format!("claim {uid} device")),
                None => l["sharedIn"].as_str().map(str::to_owned),
            };
            let pods: Vec<Option<String>> = owners.iter().map(shared).collect();
            let together = pods.iter().all(|p| p.is_some() && *p == pods[0])
                || owners.iter().all(|l| l["kind"] == "seat");
            let is_theirs = self.theirs().contains(&instance.generation);
            let fine = match owners.len() {
                0 => is_theirs || self.is_forgone(instance.generation),
                1 => true,
                _ => together,
            };
            // No container adopts an instance of a layout.
            let is_wrong = |l: &Value| l["layout"].is_null() && l["adopted"] != is_theirs;
            if !fine || owners.iter().any(|l| is_wrong(l)) {
                return complain(format!("{} leases claim {instance:?}", owners.len()));
            }
        }
        if let Some(lost) = self.lost_of_theirs() {
            return complain(format!("an administrator's instance is gone: {lost}"));
        }
        let whole: Vec<&Value> = leases.iter().filter(|l| l["kind"] == "gpu").collect();
        for (n, lease) in whole.iter().enumerate() {
            let is_shared = |other: &&&Value| {
                other["sharedIn"].is_string() && other["sharedIn"] == lease["sharedIn"]
            };
            let others = whole[..n].iter();
            let mut others = others.filter(|o| o["gpuUUID"] == lease["gpuUUID"]);
            if !others.all(|o| is_shared(&o)) {
                return complain(format!("{} is given twice", lease["gpuUUID"]));
            }
        }
        for gpu in &self.engine().gpus {
            let here = leases.iter().filter(|l| l["gpuUUID"] == gpu.uuid.as_str());
            let shares = here.clone().filter(|l| l["kind"] == "share");
            let booked = booked(shares.clone());
            let model = gpu.model();
            let is_whole = here.clone().any(|l| l["kind"] == "gpu") && shares.count() > 0;
            if is_whole || booked > (model.memory_mb - model.reserved_mb) << 20 {
                return complain(format!("{} gives out {booked} bytes", gpu.uuid));
            }
        }
        for instance in &instances {
            let seats = leases.iter().filter(|l| l["kind"] == "seat");
            let booked = booked(seats.filter(|l| claims(l, instance)));
            let gpu = &self.engine().gpus[instance.gpu as usize];
            let mut profiles = gpu.model().profiles.iter();
            let profile = profiles.find(|p| p.id == instance.profile_id);
            if profile.is_some_and(|p| booked > p.memory_mb << 20) {
                return complain(format!("{instance:?} gives out {booked} bytes"));
            }
        }
        for lease in &leases {
            let ready = lease["state"] == "ready" && !is_of_gpu(lease);
            if ready && !instances.iter().any(|i| claims(lease, i)) {
                return complain(format!("nothing there for {}", lease["container"]));
            }
            let id = lease["container"].as_str().unwrap_or_default();
            let given = self.uuids_in_bundle(id);
            let has = uuid_of(lease);
            if !given.is_empty() && !given.iter().any(|u| Some(u.as_str()) == has) {
                return complain(format!("{id} was given {given:?}"));
            }
        }
        Ok(())
    }

    /// Returns the leases and instances on record; of a damaged ledger why it is.
    pub fn records(&self) -> Vec<String> {
        records(&self.state())
    }

    pub fn bundle_is_edited(&self, id: &str) -> bool {
        let read = |name: &str| fs::read(self.path("bundles").join(id).join(name));
        read("config.json").ok() != Some(read("original").unwrap())
    }

    /// The machine and the ledger are empty, and every bundle is what the engine wrote.
    pub fn as_if_nothing_had_been(&self) -> Result<(), String> {
        let mut instances = self.instances();
        instances.retain(|i| !self.theirs().contains(&i.generation));
        if !instances.is_empty() {
            return Err(format!("left behind: {instances:#?}"));
        }
        if let Some(lost) = self.lost_of_theirs() {
            return Err(format!("an administrator's instance is gone: {lost}"));
        }
        self.no_daemon_is_left()?;
        let records = self.records();
        if !records.is_empty() {
            return Err(format!("left in the ledger: {records:?}"));
        }
        let queue = self.queue();
        if !queue.is_empty() {
            return Err(format!("left in the queue: {queue:?}"));
        }
        let operations = names(&self.state().join("operations"));
        if !operations.is_empty() {
            return Err(format!("operations are left: {operations:?}"));
        }
        for id in names(&self.path("bundles")) {
            let dir = self.path("bundles").join(&id);
            if self.bundle_is_edited(&id) {
                return Err(format!("config.json of {id} is not the original"));
            }
            let mut files = names(&dir);
            // The next create of the bundle removes the rest of a killed writer.
            files.retain(|f| !f.starts_with(".config.json.runmig-"));
            if files != ["config.json", "original", "rootfs"] {
                return Err(format!("left in the bundle of {id}: {files:?}"));
            }
        }
        Ok(())
    }

    /// As many containers as there are slots, each with an instance of its own; then none again.
    #[track_caller]
    pub fn all_slots_can_be_filled(&self) {
        let before = self.instances().len();
        let ids = self.full();
        self.nothing_lost_nothing_given_twice().unwrap();
        let mut places: Vec<_> = self.instances();
        places.sort_by_key(|i| (i.gpu, i.start));
        places.dedup_by_key(|i| (i.gpu, i.start));
        assert_eq!(places.len(), self.slots as usize, "of {before} before");
        for id in &ids {
            self.delete(id);
        }
    }

    /// Checks that a living container has its slices: those on record and those in its bundle are
    /// the same, and are there.
    pub fn has_its_slices(&self, id: &str) -> Result<(), String> {
        let mut leases = self.leases();
        leases.retain(|l| l["container"] == id);
        let uuid = |l: &Value| uuid_of(l).unwrap_or_default().to_owned();
        let mut on_record: Vec<String> = leases.iter().map(uuid).collect();
        let mut given = self.uuids_in_bundle(id);
        on_record.sort();
        given.sort();
        let mut there: Vec<String> = self.instances().into_iter().flat_map(|i| i.uuids).collect();
        there.extend(self.engine().gpus.iter().map(|gpu| gpu.uuid.clone()));
        for lease in leases.iter().filter(|l| l["enforcement"] == "mps") {
            self.is_held(lease)?;
        }
        for lease in leases.iter().filter(|l| l["enforcement"] == "driver") {
            let (limit, share) = (self.memory_limit(id), lease["memoryBytes"].as_u64());
            if limit != share {
                let has = format!("{id} has the limit {limit:?}");
                return Err(format!("{has}, and a share of {share:?}"));
            }
        }
        if given.is_empty() || given != on_record || !given.iter().all(|u| there.contains(u)) {
            let lives = format!("{id} lives, was given {given:?}, and there is {there:?}");
            return Err(format!("{lives}: {leases:#?}"));
        }
        Ok(())
    }

    /// The MIG device or GPU that a bundle's config.json names now.
    pub fn uuid_in_bundle(&self, id: &str) -> Option<String> {
        self.uuids_in_bundle(id).pop()
    }

    pub fn uuids_in_bundle(&self, id: &str) -> Vec<String> {
        let file = self.path("bundles").join(id).join("config.json");
        let config = fs::read(file).ok();
        let config: Option<Value> = config.and_then(|c| serde_json::from_slice(&c).ok());
        let env = config.as_ref().and_then(|c| c["process"]["env"].as_array());
        let mut variables = env.into_iter().flatten().filter_map(Value::as_str);
        let visible = variables.find_map(|v| v.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
        let all = visible.into_iter().flat_map(|all| all.split(','));
        let is_granted = |uuid: &&str| uuid.starts_with("MIG-") || uuid.starts_with("GPU-");
        all.filter(is_granted).map(str::to_owned).collect()
    }
}

fn booked<'a>(leases: impl Iterator<Item = &'a Value>) -> u64 {
    leases.filter_map(|l| l["bookedBytes"].as_u64()).sum()
}

/// Says whether a lease is of a GPU outside of MIG mode.
fn is_of_gpu(lease: &Value) -> bool {
    lease["kind"] == "gpu" || lease["kind"] == "share"
}

/// Returns the UUID that a lease gives its container: of the MIG device, or of the GPU.
fn uuid_of(lease: &Value) -> Option<&str> {
    let key = match is_of_gpu(lease) {
        true => "gpuUUID",
        false => "migUUID",
    };
    lease[key].as_str()
}

pub fn claims(lease: &Value, instance: &Instance) -> bool {
    lease["gpuUUID"] == instance.gpu_uuid.as_str()
        && lease["migPlacement"]["start"] == instance.start
        && lease["migPlacement"]["size"] == instance.size
        && (lease["gpuInstanceID"].is_null() || lease["gpuInstanceID"] == instance.gi)
}

/// Returns the leases and instances on record, as `lease ID` and `instance ID`; of a damaged ledger why it is.
pub fn records(state: &Path) -> Vec<String> {
    let Listing {
        entries, earlier, ..
    } = match listing(state) {
        Ok(listing) => listing,
        Err(why) => return vec![why],
    };
    let leases = entries.iter().filter_map(Entry::lease);
    let leases = leases.chain(earlier.iter().map(|held| &*held.lease));
    let mut records: Vec<String> = leases.map(|l| format!("lease {}", l.id)).collect();
    let instance = |e: &Entry| format!("instance {}", e.instance().id);
    records.extend(entries.iter().map(instance));
    records.sort();
    records.dedup();
    records
}

/// Writes a whole ledger with another header or other records.
pub fn rewrite(state: &Path, change: impl FnOnce(&mut Value, &mut Value)) {
    let file = state.join("ledger.json");
    let text = fs::read_to_string(&file).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let (mut header, mut body): (Value, Value) = (lines.next().unwrap(), lines.next().unwrap());
    change(&mut header, &mut body);
    header["sha256"] = "".into();
    header["sha256"] = sha256(format!("{header}\n{body}\n").as_bytes()).into();
    fs::write(&file, format!("{header}\n{body}\n")).unwrap();
}

/// Returns the containers whose tickets are on record, in order, also those of killed waiters.
pub fn tickets(state: &Path) -> Vec<String> {
    let text = fs::read_to_string(state.join("ledger.json")).unwrap_or_default();
    let body = text.lines().nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let tickets = body["queue"]["tickets"].as_array().cloned();
    let container = |ticket: Value| ticket["waiter"]["container"].as_str().map(str::to_owned);
    { tickets.into_iter().flatten() }
        .filter_map(container)
        .collect()
}

fn listing(state: &Path) -> Result<Listing, String> {
    let store = Store::existing(state, Duration::from_secs(10)).map_err(|e| e.line())?;
    let listing = store.map_or_else(|| Ok(Listing::default()), |store| store.list());
    listing.map_err(|e| e.line())
}
