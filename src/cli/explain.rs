//! `migctl explain`: whether a request would find room, where and why there, or why not.

use super::gpus::use_word;
use super::json::{Alternative, Explanation, GpuAnswer, Restart, WaitingItem};
use super::list::holder_name;
use super::output::{self, Format, dash};
use super::{completion, filter, mig_on, shares, world};
use clap_complete::ArgValueCompleter;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Nearness, Placement};
use runmig_lease::placement::{
    Candidate, DefragPlan, GpuObstacle, GpuReport, MAX_STEPS, Move, Rejection, Site, SlotCost,
    Verdict,
};
use runmig_lease::policy::Subject;
use runmig_lease::request::{self, COMPUTE, GPU, SHARE, SLICE, Wanted};
use runmig_lease::store::{Container, Held, Resource, WholeGpu};
use runmig_lease::what_if::{Answer, Denial, Fit, OnTrial, Step, WhatIf};
use runmig_lease::{Inventory, refusal};

#[derive(clap::Args)]
#[command(after_help = format!("\
Examples:
  migctl explain 3g.40gb                            says where a slice would go, or why it finds no room
  migctl explain --share 8Gi --namespace team-a     asks for a share, under the rules of a namespace

{}", shares::levels_help()))]
pub struct Asked {
    /// As in runmig.dev/slice: 3g.40gb, 20Gi, 1g.10gb*2, or a list of such
    #[arg(required_unless_present_any = ["gpu", "share"], add = ArgValueCompleter::new(completion::profiles))]
    request: Option<String>,
    /// As in runmig.dev/share: 8Gi, 1/4, or a list of such; beside a request a share of such a slice
    #[arg(long, value_name = "SIZE", conflicts_with = "gpu")]
    share: Option<String>,
    /// As in runmig.dev/gpu: a number of whole GPUs
    #[arg(long, value_name = "N", conflicts_with = "request")]
    gpu: Option<String>,
    /// The least number of compute slices, as in runmig.dev/compute
    #[arg(long, value_name = "N")]
    compute: Option<u32>,
    /// Asked for by a container of this Kubernetes namespace, for rules about such
    #[arg(long, value_parser = filter::not_empty)]
    namespace: Option<String>,
    /// Asked for by this pod
    #[arg(long, value_parser = filter::not_empty)]
    pod: Option<String>,
    /// Asked for by this user
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
}

impl Asked {
    /// Parses the request as a create does, and refuses it as a create does.
    fn wanted(&self) -> Result<Wanted> {
        let (slice, share, gpu) = (&self.request, &self.share, &self.gpu);
        let compute = self.compute.map(|n| n.to_string());
        let keys = [
            (SLICE, slice),
            (SHARE, share),
            (GPU, gpu),
            (COMPUTE, &compute),
        ];
        let given =
            { keys.into_iter() }.filter_map(|(key, it)| Some((key.to_owned(), it.clone()?)));
        let request = request::parse(&given.collect::<Vec<_>>())?;
        request.map(|r| r.wanted).ok_or_else(|| {
            Error::new("the request none asks for nothing").hint(match (slice, share, gpu) {
                (Some(_), None, None) => "name a profile or an amount of memory",
                (None, Some(_), None) => "name an amount of memory or a fraction",
                (None, None, Some(_)) => "name a number of GPUs",
                _ => "name a slice and the size of the share",
            })
        })
    }

    fn subject(&self, world: &Inventory) -> Subject {
        let is_its = |c: &Container| c.pod == self.pod && c.namespace == self.namespace;
        let its = world.leases.iter().map(|h| &h.lease);
        let its = its.filter(|l| l.container().is_some_and(is_its));
        // A limit counts for each pod. A pod that was made again under its name is another pod.
        let latest = self.pod.as_ref().and(its.max_by_key(|l| &l.created));
        Subject {
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            pod_uid: latest.and_then(|l| l.container()?.pod_uid.clone()),
            user: self.user,
        }
    }
}

pub fn run(config: &Config, format: Format, asked: &Asked) -> Result<i32> {
    let is_json = matches!(format, Format::Json);
    let wanted = asked.wanted()?;
    let (driver, mut world) = world::look(config, !is_json)?;
    // Without the ledger nobody knows what a create would get.
    if let Some(e) = world.unread.take() {
        return Err(e);
    }
    let subject = asked.subject(&world);
    let then = world.without_idle_over();
    let what_if = WhatIf::new(config, &driver, &then, &wanted, subject.clone());
    let answers = what_if.answers(MAX_STEPS)?;
    let (_, holders) = then.movable();
    let each = answers.all.iter();
    let mut alternatives: Vec<Alternative> = each
        .map(|answer| look(&what_if, &wanted, &holders, answer))
        .collect();
    let fits = answers.fit();
    if let Wanted::Slices(slices) = &wanted
        && !fits
    {
        mig_on::foresee(config, &driver, &world, slices, &subject, &mut alternatives);
    }
    let explanation = Explanation {
        request: answers.request.clone(),
        fits,
        error: what_if.error(answers).map(|e| e.line()),
        ahead: world.waiting.iter().map(WaitingItem::from).collect(),
        alternatives,
    };
    if is_json {
        output::json("Explanation", &explanation);
    } else {
        for (i, alternative) in explanation.alternatives.iter().enumerate() {
            if i > 0 {
                output::line("");
            }
            show(alternative, &wanted);
        }
    }
    let all_read = world::tell_unread(&world);
    Ok(i32::from(!fits || !all_read))
}

fn look(
    what_if: &WhatIf<'_, impl Queries>,
    wanted: &Wanted,
    holders: &[Vec<&Held>],
    answer: &Answer<'_>,
) -> Alternative {
    let (mut restarts, mut slices) = (Vec::new(), Vec::new());
    let no = |verdict, denial| {
        let e = what_if.refusal(&answer.request, denial);
        (verdict, e.to_string(), e.advice().map(str::to_owned))
    };
    let (verdict, why, hint) = match &answer.outcome {
        Ok(fit) => {
            slices = sites(fit);
            ("fits", fits(fit), None)
        }
        Err(denial @ Denial::Limit(_)) => no("limited", denial),
        Err(denial @ Denial::Room(room)) => {
            if let Some(plan) = room.no_slice.as_ref().and_then(Rejection::plan) {
                slices = plan.sites.clone();
                restarts = self::restarts(plan, holders);
            }
            no(room.outcome().word(), denial)
        }
    };
    Alternative {
        request: answer.request.clone(),
        verdict,
        why,
        hint,
        slices,
        gpus: match &answer.on {
            OnTrial::Slices(gpus) => gpus.iter().map(item).collect(),
            OnTrial::Parts(parts) => parts.iter().map(|on| part_item(on, wanted)).collect(),
        },
        restarts,
        with_mig_on: None,
    }
}

/// Returns the places of slices that a create would get.
pub fn sites(fit: &Fit) -> Vec<Site> {
    match fit {
        Fit::Slices { steps, .. } => steps.iter().map(|step| step.slice().into()).collect(),
        Fit::Gpus { .. } | Fit::Share { .. } => Vec::new(),
    }
}

pub fn fits(fit: &Fit) -> String {
    match fit {
        Fit::Slices { steps, evicts } => {
            let steps: Vec<String> = steps.iter().map(step).collect();
            steps.join(" and ") + &destroys(*evicts)
        }
        Fit::Gpus { gpus, farthest } => {
            let names: Vec<String> = gpus.iter().map(gpu).collect();
            let near = match farthest {
                None => "",
                Some(Nearness::Linked) => ", connected by NVLink",
                Some(Nearness::SameNode) => ", on one NUMA node",
                Some(Nearness::Apart) => ", not all near each other",
            };
            names.join(" and ") + near
        }
        Fit::Share {
            of,
            share,
            is_new,
            evicts,
        } => {
            let of = match &**of {
                Resource::Gpu(on) => gpu(on),
                Resource::Mig(slice) => format!("{}{slice}", if *is_new { "a new " } else { "" }),
            };
            let (memory, level) = (share.memory_mib, share.enforcement.level());
            format!("{memory}Mi of {of}, level {level}") + &destroys(*evicts)
        }
    }
}

fn destroys(idle: usize) -> String {
    match idle {
        0 => String::new(),
        1 => "; that destroys an idle slice".to_owned(),
        n => format!("; that destroys {n} idle slices"),
    }
}

fn step(step: &Step) -> String {
    let how = match step {
        Step::Create(_) => "",
        Step::Reuse(..) => ": an idle slice is handed out",
        Step::Adopt(..) => ": an administrator made it",
    };
    format!("{}{how}", step.slice())
}

fn gpu(gpu: &WholeGpu) -> String {
    format!("GPU {} ({})", gpu.gpu_index, printable(&gpu.model))
}

fn item(on: &GpuReport<'_>) -> GpuAnswer {
    let state = match &on.verdict {
        Verdict::Fits(_) => "fits",
        Verdict::Full => "full",
        Verdict::Queued => "queued",
        Verdict::NoSlot => "noPlace",
        Verdict::Exhausted(_) => "usedUp",
        Verdict::NoProfile => "noProfile",
        Verdict::MigOff => "migOff",
        Verdict::MigPending => "migPending",
        Verdict::NoMig => "noMig",
        Verdict::Excluded(_) => "excluded",
    };
    let why = match &on.verdict {
        Verdict::Fits(slots) => after(&slots[0]),
        _ => refusal::on_gpu(on).unwrap_or_default(),
    };
    GpuAnswer {
        index: on.gpu.index,
        uuid: on.gpu.uuid.to_string(),
        profile: on.profile.map(|p| p.name.clone()),
        state,
        why,
        free_slices: on.free_slices,
        total_slices: on.total_slices,
        quarantined_slices: on.quarantined,
        places: match &on.verdict {
            Verdict::Fits(places) => places.clone(),
            _ => Vec::new(),
        },
        ..GpuAnswer::default()
    }
}

/// Returns the words for the best place of a GPU: the room that it takes from later requests.
fn after(place: &SlotCost) -> String {
    match place.closes.as_slice() {
        [] => "whatever else fits now still fits afterwards".to_owned(),
        some => format!("no more room afterwards for {}", some.join(", ")),
    }
}

fn show(alternative: &Alternative, wanted: &Wanted) {
    let (verdict, why) = (alternative.verdict, printable(&alternative.why));
    output::line(&format!("{verdict}: {why}"));
    let none = cells(&GpuAnswer::default(), wanted);
    let head: Vec<&str> = none.iter().map(|(name, _)| *name).collect();
    let row = |gpu| {
        { cells(gpu, wanted).into_iter() }
            .map(|(_, cell)| cell)
            .collect()
    };
    let rows: Vec<Vec<String>> = alternative.gpus.iter().map(row).collect();
    output::table(&head, &rows);
    show_restarts(alternative);
    if let Some(answer) = &alternative.with_mig_on {
        let how = answer.command.as_ref().map(|c| format!(" ({c})"));
        let (how, why) = (how.unwrap_or_default(), printable(&answer.why));
        let fits = if answer.fits { "fits: " } else { "" };
        output::line(&format!("with MIG on{how}: {fits}{why}"));
    }
    // The restarts say more than a hint at this verb.
    let hint = alternative.hint.as_ref();
    if let Some(hint) = hint.filter(|_| alternative.restarts.is_empty()) {
        output::line(&format!("hint: {}", printable(hint)));
    }
}

fn restarts(plan: &DefragPlan, holders: &[Vec<&Held>]) -> Vec<Restart> {
    let restart = |(m, held): (&Move, &Held)| {
        let container = held.lease.container().cloned().unwrap_or_default();
        Restart {
            lease: held.lease.id.to_string(),
            container: container.key.id,
            container_name: container.container_name,
            pod: container.pod,
            namespace: container.namespace,
            profile: m.profile.clone(),
            from_gpu: m.from_gpu,
            from_placement: m.from,
            to_gpu: m.to_gpu,
            to_placement: m.to,
            name: holder_name(&held.lease),
        }
    };
    let moves = plan.moves.iter();
    let each = moves.flat_map(|m| holders[m.which].iter().map(move |held| (m, *held)));
    each.map(restart).collect()
}

/// Prints the containers to restart, and the places that the request then gets.
fn show_restarts(alternative: &Alternative) {
    if alternative.restarts.is_empty() {
        return;
    }
    output::line("stop these, start the new one, then start these again in this order:");
    let place = |gpu: u32, at: Placement| format!("GPU {gpu} {at}");
    let row = |r: &Restart| {
        vec![
            r.name.clone(),
            r.profile.clone(),
            place(r.from_gpu, r.from_placement),
            place(r.to_gpu, r.to_placement),
        ]
    };
    let rows: Vec<Vec<String>> = alternative.restarts.iter().map(row).collect();
    output::table(&["CONTAINER", "PROFILE", "FROM", "TO"], &rows);
    let of = |s: &Site| format!("{} at {} on GPU {}", s.profile, s.placement, s.gpu_index);
    let sites: Vec<String> = alternative.slices.iter().map(of).collect();
    output::line(&format!("fits then: {}", sites.join(" and ")));
}

fn gib(bytes: Option<u64>) -> String {
    let gib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 30));
    dash(bytes.map(gib))
}

/// Returns the cells of a GPU or a slice, each behind the heading of its column.
fn cells(gpu: &GpuAnswer, wanted: &Wanted) -> Vec<(&'static str, String)> {
    let index = ("GPU", gpu.index.to_string());
    let free = ("FREE GiB", gib(gpu.free_bytes));
    let memory = ("MEMORY GiB", gib(gpu.memory_bytes));
    let level = ("LEVEL", gpu.enforcement.unwrap_or("-").to_owned());
    let why = ("WHY", gpu.why.clone());
    let shares = gpu.shares.to_string();
    match wanted {
        Wanted::Slices(_) => {
            let best = gpu.places.first();
            let place = best.map(|place| place.placement.to_string());
            let cost = best.map(|place| format!("{:.2}", place.cost));
            let free = format!("{}/{}", gpu.free_slices, gpu.total_slices);
            let (place, cost) = (("PLACE", dash(place)), ("COST", dash(cost)));
            vec![index, place, cost, ("FREE", free), why]
        }
        Wanted::Share(_) => vec![index, free, memory, ("SHARES", shares), level, why],
        Wanted::Seat(_) => {
            let profile = ("PROFILE", gpu.profile.clone().unwrap_or_default());
            let place = gpu.mig_placement.map(|at| at.to_string());
            let place = ("PLACE", place.unwrap_or_default());
            let seats = ("SEATS", shares);
            vec![index, profile, place, free, memory, seats, level, why]
        }
        Wanted::Gpus(_) => vec![index, memory, why],
    }
}

fn part_item(on: &Candidate<'_>, wanted: &Wanted) -> GpuAnswer {
    let bytes = |mib: u64| mib << 20;
    let free = on.memory_mib.map(|_| on.free_mib);
    GpuAnswer {
        index: on.gpu.index,
        uuid: on.gpu.uuid.to_string(),
        seats: on.slice.map(|_| on.holders.len()),
        shares: on.holders.len(),
        profile: on.slice.map(|of| of.profile.name.clone()),
        mig_placement: on.slice.map(|of| of.at),
        state: on.obstacle.as_ref().map_or("fits", state),
        memory_bytes: on.memory_mib.map(bytes),
        free_bytes: { free.map(bytes) }.filter(|_| !matches!(wanted, Wanted::Gpus(_))),
        enforcement: on.level.map(|on| on.level.name()),
        why: { on.obstacle.as_ref() }.map_or_else(|| "free".to_owned(), refusal::gpu_obstacle),
        ..GpuAnswer::default()
    }
}

fn state(obstacle: &GpuObstacle) -> &'static str {
    match obstacle {
        GpuObstacle::Queued => "queued",
        GpuObstacle::Excluded(_) | GpuObstacle::Unfit(_) | GpuObstacle::EndsMig => "excluded",
        GpuObstacle::Closed(_) => "closed",
        GpuObstacle::Used(usage) => use_word(usage),
        GpuObstacle::Full { .. } | GpuObstacle::Crowded { .. } => "full",
        GpuObstacle::TooLarge { .. } | GpuObstacle::TooSmall { .. } => "noPlace",
        GpuObstacle::NoFigure | GpuObstacle::OneProcess | GpuObstacle::NoLevel(_) => "unusable",
        GpuObstacle::OtherLevel(_) => "shared",
    }
}
