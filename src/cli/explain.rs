//! `migctl explain`: whether a request would find room, where it would go and why there; or why not.

use super::asked::By;
use super::defrag::{self, Restart};
use super::list::Waits;
use super::output::{self, Format};
use super::world;
use crate::config::Config;
use crate::error::{Result, printable};
use crate::lease::{Answer, Outlook};
use crate::model::Placement;
use crate::placement::{Kind, OnGpu, PATIENCE, Place, Verdict};
use crate::request::{self, Slice};
use crate::store::Lease;
use serde::Serialize;

#[derive(clap::Args)]
pub struct Asked {
    /// As in runmig.dev/slice: 3g.40gb, 20Gi, or a list of such
    request: String,
    #[command(flatten)]
    by: By,
    /// The same as -o json
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    request: String,
    fits: bool,
    /// What a create would say; null where it fits.
    error: Option<String>,
    /// Those who wait already, in their order.
    ahead: Vec<Waits<'a>>,
    /// One for each alternative that was asked for, up to the first that fits.
    alternatives: Vec<Alternative>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Alternative {
    request: String,
    /// `fits`, `full`, `fragmented`, `kept` for those who wait, `limited`, or `never`: no wait helps.
    verdict: &'static str,
    why: String,
    hint: Option<String>,
    gpus: Vec<GpuItem>,
    /// Where it is fragmented: what would have to be restarted.
    restarts: Vec<Restart>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GpuItem {
    index: u32,
    uuid: String,
    profile: Option<String>,
    state: &'static str,
    why: String,
    free_slices: u32,
    total_slices: u32,
    quarantined_slices: u32,
    /// The best first.
    places: Vec<PlaceItem>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlaceItem {
    mig_placement: Placement,
    cost: f64,
    closes: Vec<String>,
    reuses_idle: bool,
    evicts_idle: usize,
}

pub fn run(config: &Config, format: Format, asked: &Asked) -> Result<i32> {
    let request = asked.by.request(&asked.request)?;
    let (_, world) = world::look(config)?;
    let who = asked.by.who(&world);
    let outlook = Outlook::new(config, &world, &request, who, &world.waiting)?;
    let (_, whose) = world.movable();
    let (mut answers, mut alternatives, mut fits) = (Vec::new(), Vec::new(), false);
    for slice in outlook.alternatives() {
        let answer = outlook.answer(slice, PATIENCE);
        alternatives.push(look(&outlook, &whose, slice, &answer));
        fits = matches!(answer, Answer::Fits(_));
        answers.push(answer);
        if fits {
            break;
        }
    }
    let explanation = Explanation {
        request: request::written(outlook.alternatives()),
        fits,
        error: outlook.error(answers).map(|e| e.line()),
        ahead: world.waiting.iter().map(Waits::from).collect(),
        alternatives,
    };
    if asked.json || matches!(format, Format::Json) {
        output::object("Explanation", &explanation);
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
    outlook: &Outlook<'_>,
    whose: &[Vec<&Lease>],
    slice: &Slice,
    answer: &Answer,
) -> Alternative {
    let gpus = outlook.gpus(slice);
    let best = gpus.iter().find_map(|on| match &on.verdict {
        Verdict::Fits(places) => Some((on, &places[0])),
        _ => None,
    });
    let mut restarts = Vec::new();
    let (verdict, why, hint) = match answer {
        Answer::Fits(_) => (
            "fits",
            best.map_or(String::new(), |(on, at)| fits(on, at)),
            None,
        ),
        Answer::Limited(e) => ("limited", e.to_string(), e.advice().map(str::to_owned)),
        Answer::No(reason) => {
            let plan = reason.plan.as_ref();
            restarts = plan.map_or(restarts, |plan| defrag::restarts(plan, whose));
            let e = outlook.refusal(reason.no.clone());
            (
                word(reason.kind),
                e.to_string(),
                e.advice().map(str::to_owned),
            )
        }
    };
    Alternative {
        request: slice.to_string(),
        verdict,
        why,
        hint,
        gpus: gpus.iter().map(|on| item(on, outlook)).collect(),
        restarts,
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Never => "never",
        Kind::Kept => "kept",
        Kind::Full => "full",
        Kind::Fragmented => "fragmented",
    }
}

fn fits(on: &OnGpu<'_>, place: &Place) -> String {
    let profile = on.profile.map_or("", |p| p.name.as_str());
    let (gpu, at) = (on.gpu.index, place.placement);
    match (place.reuses, place.evicts) {
        (true, _) => format!("{profile} at {at} on GPU {gpu}: an idle slice is handed out"),
        (_, 0) => format!("{profile} at {at} on GPU {gpu}"),
        (_, 1) => format!("{profile} at {at} on GPU {gpu}, for which an idle slice is destroyed"),
        (_, n) => {
            format!("{profile} at {at} on GPU {gpu}, for which {n} idle slices are destroyed")
        }
    }
}

fn item(on: &OnGpu<'_>, outlook: &Outlook<'_>) -> GpuItem {
    let profile = on.profile.map_or("the profile", |p| p.name.as_str());
    let free = format!(
        "{} of {} memory slices are free",
        on.free_slices, on.total_slices
    );
    let (state, why) = match &on.verdict {
        Verdict::Fits(places) => ("fits", after(&places[0])),
        Verdict::Full => ("full", free),
        Verdict::Kept => ("kept", format!("{free}, and others wait for that")),
        Verdict::NoPlace => ("noPlace", format!("{free}, but no place of {profile} is")),
        Verdict::UsedUp(what) => ("usedUp", format!("{free}, but it has no more {what}")),
        Verdict::NoProfile => ("noProfile", "it has no such profile".to_owned()),
        Verdict::MigOff => ("migOff", "MIG is off".to_owned()),
        Verdict::MigPending => ("migPending", "MIG is on after a reset".to_owned()),
        Verdict::NoMig => ("noMig", "it has no MIG".to_owned()),
        Verdict::Excluded(rule) => ("excluded", rule.clone()),
    };
    GpuItem {
        index: on.gpu.index,
        uuid: on.gpu.uuid.clone(),
        profile: on.profile.map(|p| p.name.clone()),
        state,
        why,
        free_slices: on.free_slices,
        total_slices: on.total_slices,
        quarantined_slices: outlook.quarantined_on(&on.gpu.uuid),
        places: match &on.verdict {
            Verdict::Fits(places) => places.iter().map(place_item).collect(),
            _ => Vec::new(),
        },
    }
}

/// What the best place of a GPU would take from those who come later.
fn after(place: &Place) -> String {
    match place.closes.as_slice() {
        [] => "whatever else fits now still fits afterwards".to_owned(),
        some => format!("no more room afterwards for {}", some.join(", ")),
    }
}

fn place_item(place: &Place) -> PlaceItem {
    PlaceItem {
        mig_placement: place.placement,
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
    defrag::show(&alternative.restarts);
    if let Some(hint) = &alternative.hint {
        output::line(&format!("hint: {}", printable(hint)));
    }
}
