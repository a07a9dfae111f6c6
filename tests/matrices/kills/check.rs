//! The invariants after any event, and the way back to an empty machine.

use crate::operations::{self, Inits, Operation, uuid_of};
use crate::simulated::Instance;
use crate::world::{ID, IDS, OTHER, PEER, SLOTS, World};
use runmig_lease::counters::{Actor, Counter, LeaseKind};
use runmig_lease::events::{Event, EventType, History};
use runmig_lease::store::{Held, LeaseState, Listing, Store};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

type Judged = Result<(), String>;

fn listing(w: &World) -> Listing {
    let store = Store::existing(&w.path("state"), Duration::from_secs(5)).expect("a ledger");
    let now = runmig_lease::process::boot_id(&w.path("machine")).expect("a boot");
    store.map_or_else(Listing::default, |store| {
        store.at_boot(&now).list().expect("the ledger")
    })
}

fn leases_of(w: &World, id: &str) -> Vec<Held> {
    let listing = listing(w);
    listing
        .held()
        .filter(|h| h.lease.is_of(&w.key(id)))
        .cloned()
        .collect()
}

/// Judges what an event left: first what may never be otherwise, then that somebody puts everything right.
///
/// `number` chooses who comes first. `has_failed`: an effect failed, so a release may have left its bundle as it is.
pub fn judge(
    w: &World,
    operation: &Operation,
    inits: Inits,
    (number, has_failed): (usize, bool),
) -> Judged {
    if !has_failed {
        torn_records(w)?;
    }
    let has_begun = |id: &&str| w.living_init(id).is_some();
    let living: Vec<&str> = IDS.into_iter().filter(has_begun).collect();
    for id in &living {
        // The container runs, so it keeps its slice in every collection.
        collect(w, inits);
        has_its_slices(w, id)?;
        nothing_lost_nothing_given_twice(w)?;
    }
    if living.is_empty() {
        nothing_lost_nothing_given_twice(w)?;
    }
    if operation.name.contains("prom") || operation.name.contains("prepare") {
        kubelet_tries_again(w)?;
    }
    if operation.name.contains("cordon") {
        cordons_are_whole(w)?;
    }
    for id in IDS {
        match living.contains(&id) {
            true => operations::end(w, id).map_err(|e| format!("end of {id}: {}", e.line()))?,
            false if number.is_multiple_of(3) => {
                operations::delete(w, id).map_err(|e| format!("delete of {id}: {}", e.line()))?;
            }
            false => {}
        }
    }
    // Once the container that recovered has ended: an apply leaves alone what is in use.
    if operation.name == "apply" {
        next_apply_succeeds(w)?;
    }
    w.configure("");
    w.admin_tidies_up();
    // Now and then no collector runs, and the next creates have to do its work.
    if number == 1 {
        all_slots_can_be_filled(w, inits)?;
    }
    collect(w, inits);
    if has_failed && is_edited(w, ID) {
        // The release told it, and the next create of the bundle starts from the original.
        operations::create(w, ID, inits.others)
            .map_err(|e| format!("the next create: {}", e.line()))?;
        operations::end(w, ID).map_err(|e| format!("its end: {}", e.line()))?;
    }
    // A child that a killed process had started for a daemon ends in its own time, and is a sign of life until then.
    let end = Instant::now() + Duration::from_secs(if operation.is_fresh { 2 } else { 0 });
    loop {
        match as_if_nothing_had_been(w) {
            Err(_) if Instant::now() < end => collect(w, inits),
            judged => return judged.and_then(|()| each_end_is_told(w, has_failed)),
        }
    }
}

/// Returns the ids of leases: of those that were told ready, and of those whose end was told.
fn told(w: &World) -> (BTreeSet<String>, Vec<String>) {
    let (mut ready, mut ended) = (BTreeSet::new(), Vec::new());
    let mut hear = |event: Event| {
        let id = event.lease.and_then(|lease| lease.id).unwrap_or_default();
        match event.event_type {
            EventType::Ready => drop(ready.insert(id)),
            EventType::Released | EventType::Collected | EventType::Evicted => ended.push(id),
            _ => {}
        }
    };
    let mut history = History::new(&w.path("state/events.jsonl"));
    history.read(true, &mut hear).expect("the events");
    (ready, ended)
}

/// A reader of the events sees one end of each lease. An event that could not be written is lost.
fn each_end_is_told(w: &World, has_failed: bool) -> Judged {
    let (ready, ended) = told(w);
    let times = |id: &String| ended.iter().filter(|its| *its == id).count();
    let is_wrong = |id: &&String| times(id) > 1 || times(id) == 0 && !has_failed;
    if let Some(id) = ready.iter().find(is_wrong) {
        return Err(format!("the end of lease {id} is told {} times", times(id)));
    }
    // A second end has the id of the first, so readers drop it. Its count stays.
    let counters = listing(w).counters;
    let by = |kind: &LeaseKind| -> u64 {
        let counts = Actor::ALL.iter().map(|by| Counter::Releases(*kind, *by));
        counts.map(|counter| counters.get(counter)).sum()
    };
    let counted: u64 = LeaseKind::ALL.iter().map(by).sum();
    match has_failed || counted <= ended.len() as u64 {
        true => Ok(()),
        false => Err(format!(
            "{counted} ends are counted, and {} told",
            ended.len()
        )),
    }
}

/// A cordon that was killed is there or not, and the next one succeeds.
fn cordons_are_whole(w: &World) -> Judged {
    let again = operations::cordon(w).and_then(|()| operations::uncordon(w));
    match again {
        Ok(true) => Ok(()),
        Ok(false) => Err("a cordon is not on file".to_owned()),
        Err(e) => Err(format!("the next cordon: {}", e.line())),
    }
}

fn collect(w: &World, inits: Inits) {
    if let Err(e) = operations::gc(w, inits) {
        let _ = fs::write(w.note("gc"), e.line());
    }
}

/// A kill leaves a whole ledger.
fn torn_records(w: &World) -> Judged {
    let store = Store::existing(&w.path("state"), Duration::from_secs(5)).expect("a ledger");
    match store.and_then(|store| store.damage().expect("the ledger")) {
        None => Ok(()),
        Some(why) => Err(format!("the ledger is damaged: {}", why.line())),
    }
}

fn is_edited(w: &World, id: &str) -> bool {
    let files = ["config.json", "original"].map(|file| fs::read(w.bundle(id).join(file)).ok());
    files[0] != files[1] || w.bundle(id).join("config.json.runmig").exists()
}

/// The next apply ends in the state that the first one wanted, and an empty layout ends that.
fn next_apply_succeeds(w: &World) -> Judged {
    for layout in [operations::WANTED, operations::EMPTY] {
        let applied = operations::apply_to(w, layout);
        applied.map_err(|e| format!("the next apply of {layout}: {}", e.line()))?;
        nothing_lost_nothing_given_twice(w)?;
        let again = operations::apply_to(w, layout);
        if !again.is_ok_and(|is_in_place| is_in_place) {
            return Err(format!("{layout} is not in place"));
        }
    }
    Ok(())
}

/// The kubelet's next tries succeed: the claim gets its slice, and gives it back.
fn kubelet_tries_again(w: &World) -> Judged {
    operations::prepare(w).map_err(|e| format!("the next prepare: {}", e.line()))?;
    nothing_lost_nothing_given_twice(w)?;
    let listing = listing(w);
    let its: Vec<&Held> = listing
        .held()
        .filter(|h| h.lease.claim().is_some())
        .collect();
    if its.len() != 1 || its[0].lease.state != LeaseState::Ready {
        return Err(format!("the claim has no slice: {its:#?}"));
    }
    operations::unprepare(w).map_err(|e| format!("the next unprepare: {}", e.line()))
}

/// No instance without a record but an administrator's, none with two but a pod's or a slice of seats, no record that claims
/// what is not there.
fn nothing_lost_nothing_given_twice(w: &World) -> Judged {
    let (listing, instances, theirs) = (listing(w), w.instances(), w.theirs());
    let complain = |what: String| Err(format!("{what}\n{listing:#?}\n{instances:#?}"));
    let held: Vec<&Held> = listing.held().collect();
    for instance in &instances {
        let owners: Vec<&&Held> = held.iter().filter(|h| claims(h, instance)).collect();
        let is_on_record = listing
            .entries
            .iter()
            .map(|e| e.instance())
            .any(|i| i.slice().is_some_and(|s| lies_at(s, instance)));
        let pods: Vec<_> = owners.iter().map(|h| h.lease.shared_in.clone()).collect();
        let is_fine = match owners.len() {
            0 => is_on_record || theirs.contains(&instance.generation),
            1 => true,
            _ => {
                owners.iter().all(|h| h.lease.share().is_some())
                    || pods.iter().all(|pod| pod.is_some() && *pod == pods[0])
            }
        };
        let is_theirs = theirs.contains(&instance.generation);
        let is_wrong = |h: &&&Held| h.instance.is_adopted() != is_theirs;
        if !is_fine || owners.iter().any(is_wrong) {
            return complain(format!("{} leases claim {instance:?}", owners.len()));
        }
    }
    lost_of_theirs(w)?;
    for gpu in &w.engine().gpus {
        let here: Vec<&&Held> = { held.iter() }
            .filter(|h| h.instance.resource.gpu_uuid().as_str() == gpu.uuid)
            .filter(|h| h.instance.slice().is_none())
            .collect();
        let whole = here.iter().filter(|h| h.lease.share().is_none()).count();
        let booked: u64 = here
            .iter()
            .filter_map(|h| Some(h.lease.share()?.booked_mib))
            .sum();
        let has = gpu.model().memory_mb - gpu.model().reserved_mb;
        if whole > 1 || (whole == 1 && here.len() > 1) || booked > has {
            return complain(format!("{} is given out twice", gpu.uuid));
        }
    }
    for h in &held {
        let is_there = match h.instance.slice() {
            Some(_) => instances.iter().any(|i| claims(h, i)),
            None => true,
        };
        if h.lease.state == LeaseState::Ready && !is_there {
            return complain(format!("nothing is there for {}", h.lease.holder.name()));
        }
        if let (Some(container), Some(uuid)) = (h.lease.container(), uuid_of(h)) {
            let given = uuids_in_bundle(w, &container.key.id);
            if !given.is_empty() && !given.contains(&uuid) {
                return complain(format!("{} was given {given:?}", container.key.id));
            }
        }
    }
    Ok(())
}

fn claims(held: &Held, instance: &Instance) -> bool {
    let slice = held.instance.slice();
    slice.is_some_and(|slice| lies_at(slice, instance))
}

fn lies_at(slice: &runmig_lease::store::Slice, instance: &Instance) -> bool {
    slice.gpu_uuid.as_str() == instance.gpu_uuid
        && (slice.placement.start, slice.placement.size) == (instance.start, instance.size)
        && slice.gpu_instance.is_none_or(|gi| gi == instance.gi)
}

fn lost_of_theirs(w: &World) -> Judged {
    let instances = w.instances();
    let is_there = |g: &u64| {
        instances
            .iter()
            .any(|i| i.generation == *g && i.uuids.len() == 1)
    };
    match w.theirs().iter().find(|g| !is_there(g)) {
        None => Ok(()),
        Some(lost) => Err(format!("an administrator's instance is gone: {lost}")),
    }
}

/// A living container has its slices: those on record and those in its bundle are the same, and are there.
fn has_its_slices(w: &World, id: &str) -> Judged {
    let leases = leases_of(w, id);
    let (_, ended) = told(w);
    if let Some(held) = { leases.iter() }.find(|h| ended.contains(&h.lease.id.to_string())) {
        return Err(format!("the end of lease {} is told", held.lease.id));
    }
    let mut on_record: Vec<String> = leases.iter().filter_map(uuid_of).collect();
    let mut given = uuids_in_bundle(w, id);
    on_record.sort();
    given.sort();
    let mut there: Vec<String> = w.instances().into_iter().flat_map(|i| i.uuids).collect();
    there.extend(w.engine().gpus.iter().map(|gpu| gpu.uuid.clone()));
    match !given.is_empty() && given == on_record && given.iter().all(|u| there.contains(u)) {
        true => Ok(()),
        false => Err(format!(
            "{id} lives, was given {given:?}, and there is {there:?}: {leases:#?}"
        )),
    }
}

fn uuids_in_bundle(w: &World, id: &str) -> Vec<String> {
    let text = fs::read_to_string(w.bundle(id).join("config.json")).unwrap_or_default();
    let named = text.split("NVIDIA_VISIBLE_DEVICES=").nth(1);
    let all = named
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_default();
    all.split(',')
        .filter(|u| !u.is_empty())
        .map(str::to_owned)
        .collect()
}

/// As many containers as there are slots, each with an instance of its own; then none again.
fn all_slots_can_be_filled(w: &World, inits: Inits) -> Judged {
    let ids: Vec<String> = (0..SLOTS).map(|n| format!("fill-{n}")).collect();
    for id in &ids {
        w.ask(id, &[("runmig.dev/slice", crate::world::PROFILE)]);
        let made = operations::create(w, id, inits.others);
        made.map_err(|e| format!("a later create: {}", e.line()))?;
    }
    nothing_lost_nothing_given_twice(w)?;
    let mut places: Vec<u32> = w.instances().iter().map(|i| i.start).collect();
    places.sort_unstable();
    places.dedup();
    if places.len() != SLOTS as usize {
        return Err(format!("only the places {places:?} could be filled"));
    }
    for id in &ids {
        operations::end(w, id).map_err(|e| format!("the end of {id}: {}", e.line()))?;
        fs::remove_dir_all(w.bundle(id)).unwrap();
    }
    Ok(())
}

/// The machine and the ledger are empty, and every bundle is what the engine wrote.
fn as_if_nothing_had_been(w: &World) -> Judged {
    let why = || fs::read_to_string(w.note("gc")).unwrap_or_default();
    let instances = w.instances();
    if !instances.is_empty() {
        return Err(format!("left behind: {instances:#?}\ngc: {}", why()));
    }
    let left = listing(w);
    if !left.entries.is_empty() || !left.earlier.is_empty() {
        return Err(format!("left in the ledger: {left:#?}\ngc: {}", why()));
    }
    let ledger = fs::read_to_string(w.path("state/ledger.json")).unwrap_or_default();
    if ledger.contains(r#""tickets":[{"#) {
        return Err(format!("left in the queue: {ledger}\ngc: {}", why()));
    }
    for folder in ["operations", "mps", "accounts"] {
        let mut left = names(&w.path("state").join(folder));
        // The next writer removes the rest of a killed one.
        left.retain(|name| !name.starts_with(".new"));
        if !left.is_empty() {
            return Err(format!("left in {folder}: {left:?}\ngc: {}", why()));
        }
    }
    for id in [ID, PEER, OTHER] {
        let dir = w.bundle(id);
        if !dir.exists() {
            continue;
        }
        if fs::read(dir.join("config.json")).ok() != fs::read(dir.join("original")).ok() {
            return Err(format!("config.json of {id} is not the original"));
        }
        let mut files = names(&dir);
        files.retain(|f| !f.starts_with(".config.json.runmig-"));
        if files != ["config.json", "original"] {
            return Err(format!("left in the bundle of {id}: {files:?}"));
        }
    }
    Ok(())
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
