//! `migctl explain`: whether a request would find room, where and why there, or why not.

use super::asked::By;
use super::completion;
use super::explain_gpus;
use super::json::{
    Alternative, Explanation, GpuAnswer, PlaceItem, Placement, Restart, SliceSite, WaitingItem,
};
use super::list::holder_name;
use super::mig_on;
use super::output::{self, Format};
use super::world;
use clap_complete::ArgValueCompleter;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};
use runmig_lease::gpu::Queries;
use runmig_lease::placement::{
    DefragPlan, GpuReport, MAX_STEPS, RejectionKind, Site, SlotCost, Verdict,
};
use runmig_lease::refusal;
use runmig_lease::request::{self, GPU, SHARE, SLICE, Wanted};
use runmig_lease::store::{Container, Held, Lease};
use runmig_lease::what_if::{Fit, Outcome, Source, WhatIf};

#[derive(clap::Args)]
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
    #[command(flatten)]
    by: By,
    /// The same as -o json
    #[arg(long)]
    json: bool,
}

impl Asked {
    fn wanted(&self) -> Result<Wanted> {
        let keys = [
            (SLICE, &self.request),
            (SHARE, &self.share),
            (GPU, &self.gpu),
        ];
        let pairs = keys.into_iter();
        let pairs = pairs.filter_map(|(key, value)| Some((key, value.as_deref()?)));
        self.by.wanted(&pairs.collect::<Vec<_>>())
    }
}

impl From<&Site> for SliceSite {
    fn from(site: &Site) -> Self {
        SliceSite {
            profile: site.profile.clone(),
            gpu_uuid: site.gpu_uuid.to_string(),
            gpu_index: site.gpu_index,
            mig_placement: site.placement.into(),
        }
    }
}

pub fn run(config: &Config, format: Format, asked: &Asked) -> Result<i32> {
    let is_json = asked.json || matches!(format, Format::Json);
    let request = match asked.wanted()? {
        Wanted::Slices(slices) => slices,
        wanted => return explain_gpus::run(config, &asked.by, &wanted, is_json),
    };
    let (driver, world) = world::look(config, !is_json)?;
    let subject = asked.by.subject(&world);
    let what_if = WhatIf::new(config, &driver, &world, &request, subject.clone())?;
    let (_, holders) = world.movable();
    let (mut outcomes, mut alternatives, mut fits) = (Vec::new(), Vec::new(), false);
    for one in what_if.alternatives() {
        let outcome = what_if.outcome(one, MAX_STEPS);
        alternatives.push(look(&what_if, &holders, one, &outcome));
        fits = matches!(outcome, Outcome::Fits(_));
        outcomes.push(outcome);
        if fits {
            break;
        }
    }
    if !fits {
        for (request, answer) in mig_on::foresee(config, &driver, &world, &request, subject) {
            let mut same = alternatives.iter_mut().filter(|a| a.request == request);
            if let Some(one) = same.find(|one| answer.fits || one.why != answer.why) {
                one.with_mig_on = Some(answer);
            }
        }
    }
    let explanation = Explanation {
        request: request::written(what_if.alternatives()),
        fits,
        error: what_if.error(outcomes).map(|e| e.line()),
        ahead: world.waiting.iter().map(WaitingItem::from).collect(),
        alternatives,
    };
    if is_json {
        output::json(&explanation);
    } else {
        for (i, alternative) in explanation.alternatives.iter().enumerate() {
            if i > 0 {
                output::line("");
            }
            show(alternative);
        }
    }
    let all_read = world::tell_unread(&world);
    Ok(i32::from(!fits || !all_read))
}

fn look(
    what_if: &WhatIf<'_, impl Queries>,
    holders: &[Vec<&Held>],
    asked: &request::Alternative,
    outcome: &Outcome,
) -> Alternative {
    let (mut restarts, mut slices) = (Vec::new(), Vec::new());
    let (verdict, why, hint) = match outcome {
        Outcome::Fits(fit) => {
            slices = fit.sites.iter().map(|(site, _)| site.into()).collect();
            ("fits", fits(fit), None)
        }
        Outcome::Limited(e) => ("limited", e.to_string(), e.advice().map(str::to_owned)),
        Outcome::No(diagnosis) => {
            if let Some(plan) = diagnosis.rejection.plan() {
                slices = plan.sites.iter().map(SliceSite::from).collect();
                restarts = self::restarts(plan, holders);
            }
            let e = what_if.refusal(diagnosis.rejection.clone());
            let hint = e.advice().map(str::to_owned);
            (word(diagnosis.rejection.kind()), e.to_string(), hint)
        }
    };
    let gpus = what_if.gpus(asked, outcome);
    Alternative {
        request: asked.to_string(),
        verdict,
        why,
        hint,
        slices,
        gpus: gpus.iter().map(|on| item(on, what_if)).collect(),
        restarts,
        with_mig_on: None,
    }
}

pub fn word(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::Unsatisfiable => "unsatisfiable",
        RejectionKind::Queued => "queued",
        RejectionKind::Full => "full",
        RejectionKind::Fragmented => "fragmented",
    }
}

pub fn fits(fit: &Fit) -> String {
    let of = |(site, source): &(Site, Source)| {
        let (profile, at, gpu) = (&site.profile, site.placement, site.gpu_index);
        let how = match source {
            Source::Made => "",
            Source::Idle => ": an idle slice is handed out",
            Source::Adopted => ": an administrator made it",
        };
        format!("{profile} at {at} on GPU {gpu}{how}")
    };
    let sites: Vec<String> = fit.sites.iter().map(of).collect();
    let evicts = match fit.evicts {
        0 => String::new(),
        1 => ", for which an idle slice is destroyed".to_owned(),
        n => format!(", for which {n} idle slices are destroyed"),
    };
    sites.join(" and ") + &evicts
}

fn item(on: &GpuReport<'_>, what_if: &WhatIf<'_, impl Queries>) -> GpuAnswer {
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
        mig_placement: None,
        seats: None,
        state,
        memory_bytes: None,
        enforcement: None,
        free_bytes: None,
        why,
        free_slices: on.free_slices,
        total_slices: on.total_slices,
        quarantined_slices: what_if.quarantined_on(&on.gpu.uuid),
        places: match &on.verdict {
            Verdict::Fits(places) => places.iter().map(place_item).collect(),
            _ => Vec::new(),
        },
    }
}

/// Returns the words for the best place of a GPU: the room that it takes from later requests.
fn after(place: &SlotCost) -> String {
    match place.closes.as_slice() {
        [] => "whatever else fits now still fits afterwards".to_owned(),
        some => format!("no more room afterwards for {}", some.join(", ")),
    }
}

fn place_item(place: &SlotCost) -> PlaceItem {
    PlaceItem {
        mig_placement: place.placement.into(),
        cost: (place.cost * 100.0).round() / 100.0,
        closes: place.closes.clone(),
        reuses_idle: place.reuses,
        evicts_idle: place.evicts,
    }
}

fn show(alternative: &Alternative) {
    let (verdict, why) = (alternative.verdict, printable(&alternative.why));
    output::line(&format!("{verdict}: {why}"));
    let rows: Vec<Vec<String>> = alternative
        .gpus
        .iter()
        .map(|gpu| {
            let best = gpu.places.first();
            vec![
                gpu.index.to_string(),
                best.map_or_else(|| "-".to_owned(), |p| p.mig_placement.to_string()),
                best.map_or_else(|| "-".to_owned(), |p| format!("{:.2}", p.cost)),
                format!("{}/{}", gpu.free_slices, gpu.total_slices),
                gpu.why.clone(),
            ]
        })
        .collect();
    output::table(&["GPU", "PLACE", "COST", "FREE", "WHY"], &rows);
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

fn of(lease: &Lease, field: fn(&Container) -> &Option<String>) -> Option<String> {
    field(lease.container()?).clone()
}

fn restarts(plan: &DefragPlan, holders: &[Vec<&Held>]) -> Vec<Restart> {
    let each = plan.moves.iter().flat_map(|m| {
        holders[m.which]
            .iter()
            .map(move |Held { lease, .. }| Restart {
                lease: lease.id.to_string(),
                container: lease.holder.name().to_owned(),
                container_name: of(lease, |c| &c.container_name),
                pod: of(lease, |c| &c.pod),
                namespace: of(lease, |c| &c.namespace),
                profile: m.profile.clone(),
                from_gpu: m.from_gpu,
                from_placement: m.from.into(),
                to_gpu: m.to_gpu,
                to_placement: m.to.into(),
                name: holder_name(lease),
            })
    });
    each.collect()
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
    let of = |s: &SliceSite| {
        format!(
            "{} at {} on GPU {}",
            s.profile, s.mig_placement, s.gpu_index
        )
    };
    let sites: Vec<String> = alternative.slices.iter().map(of).collect();
    output::line(&format!("fits then: {}", sites.join(" and ")));
}
