//! Draws a GPU with its slices and shares, for people.

use super::list::holder_name;
use runmig_lease::error::printable;
use runmig_lease::model::{Gpu, MigMode, Shut};
use runmig_lease::placement::{self, GpuUse, Occupant};
use runmig_lease::refusal;
use runmig_lease::store::Entry;
use runmig_lease::{GpuState, Inventory};

/// Draws the line with name, MIG mode and use of a GPU.
fn head(gpu: &Gpu, state: &GpuState) -> String {
    let pending = match gpu.mig_pending {
        Some(mode) => format!(", {} after a reset", mode_word(mode)),
        None => String::new(),
    };
    format!(
        "GPU {}: {} ({}), MIG {}{pending}{}",
        gpu.index,
        printable(&gpu.name),
        printable(gpu.uuid.as_str()),
        mode_word(gpu.mig),
        match &state.usage {
            GpuUse::Mig { .. } => String::new(),
            usage => format!(", {}", refusal::gpu_use(usage)),
        }
    )
}

/// Draws a GPU whole: name, MIG mode and use, the memory of its shares, its slices.
pub fn whole(world: &Inventory, gpu: &Gpu, state: &GpuState) -> Vec<String> {
    let mut lines = vec![head(gpu, state)];
    lines.extend(gpu.shut().map(|Shut { why, remedy }| {
        printable(&format!("gives nothing new: {why}; hint: {remedy}"))
    }));
    lines.extend(memory(state));
    lines.extend(slices(world, gpu));
    lines
}

/// Draws a GPU in one line: the memory of its shares, or its slices, or its use.
pub fn line(world: &Inventory, gpu: &Gpu, state: &GpuState) -> String {
    let drawn = memory(state).or_else(|| slices(world, gpu).into_iter().nth(1));
    let drawn = drawn.unwrap_or_else(|| refusal::gpu_use(&state.usage));
    format!("GPU {}: {}", gpu.index, drawn.trim())
}

/// Returns the state and the owners of an occupant of a GPU.
fn lying(world: &Inventory, gpu: &Gpu, lying: &Occupant) -> (&'static str, String) {
    let state = world.state_at(gpu, lying.at);
    let entries = world.at(gpu, lying.at);
    let name = |e: &Entry| e.lease().map_or("-".to_owned(), holder_name);
    let names: Vec<String> = entries.iter().map(name).collect();
    let names = names.join(", ");
    let owner = match state {
        "quarantined" if entries.is_empty() => "its lease cannot be read".to_owned(),
        "quarantined" => format!("{names}, could not be released"),
        "idle" => "kept for the next".to_owned(),
        "foreign" => "made by others".to_owned(),
        "unknown" => "the ledger cannot be read".to_owned(),
        "layout" => { entries.first() }
            .and_then(|entry| entry.instance().layout.as_deref())
            .map_or(names, printable),
        _ => names,
    };
    (state, owner)
}

/// Draws a letter for each slice on the GPU, below the number of each memory slice that it takes: two lines. A line with
/// state and owner follows for each slice. Draws nothing on a GPU without MIG.
fn slices(world: &Inventory, gpu: &Gpu) -> Vec<String> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if gpu.profiles.is_empty() {
        return Vec::new();
    }
    let mut room = world.room(gpu);
    room.occupants.sort_by_key(|l| l.at);
    let letter = |n: usize| char::from(*LETTERS.get(n).unwrap_or(&b'?'));
    let slots = room.by_slice();
    let (mut numbers, mut marks) = (String::new(), String::new());
    for (n, slot) in slots.iter().enumerate() {
        numbers.push_str(&format!("{n:3}"));
        marks.push_str(&format!("  {}", slot.map_or('.', letter)));
    }
    let fragmented = placement::fragmentation(&room);
    let fragmented = fragmented.map_or_else(String::new, |f| format!(", {f} % fragmented"));
    let (free, total) = (room.free_slices(), room.total_slices());
    let mut lines = vec![
        format!("slice {numbers}"),
        format!("      {marks}   {free} of {total} free{fragmented}"),
    ];
    for (n, one) in room.occupants.iter().enumerate() {
        let (state, who) = lying(world, gpu, one);
        lines.push(format!(
            "  {}  {:<12} {:<5} {state}: {who}",
            letter(n),
            room.name(one.profile_id),
            one.at.to_string()
        ));
    }
    lines
}

/// Draws the memory of a GPU with shares: a mark for each twentieth, `#` booked, `x` of processes without a
/// lease, `.` free.
fn memory(state: &GpuState) -> Option<String> {
    const MARKS: u64 = 20;
    let (GpuUse::Shared { holders, .. }, Some(all)) = (&state.usage, state.memory_mib) else {
        return None;
    };
    let (booked, foreign) = (state.booked_mib(), state.foreign_mib.unwrap_or_default());
    let marks = |mib: u64| (mib * MARKS).div_ceil(all.max(1)) as usize;
    let bar = "#".repeat(marks(booked)) + &"x".repeat(marks(foreign));
    let bar = format!("{bar:.<most$.most$}", most = MARKS as usize);
    let shares = match holders.len() {
        1 => "1 share".to_owned(),
        n => format!("{n} shares"),
    };
    let free = match state.foreign_mib {
        Some(foreign) => format!("{}Mi free", all.saturating_sub(booked + foreign)),
        None => "free memory not known".to_owned(),
    };
    Some(format!(
        "memory [{bar}] {booked}Mi of {all}Mi in {shares}, {free}"
    ))
}

/// Returns a MIG mode as programs read it.
pub fn mode_word(mode: MigMode) -> &'static str {
    match mode {
        MigMode::Unsupported => "unsupported",
        MigMode::Disabled => "disabled",
        MigMode::Enabled => "enabled",
    }
}
