//! `migctl explain`: whether a request would find room, where it would go and why there; or why not.

use super::defrag::{self, Restart};
use super::output::{self, Format};
use super::world::World;
use crate::config::Config;
use crate::error::{Error, Result, printable};
use crate::model::Placement;
use crate::placement::{self, Found, NoRoom, OnGpu, Place, Verdict, Wanted};
use crate::policy::Who;
use crate::request::{self, Slice};
use serde::Serialize;

#[derive(clap::Args)]
pub struct Asked {
    /// As in runmig.dev/slice: 3g.40gb, 20Gi, or a list of such
    pub request: String,
    /// The least number of compute slices
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub compute: u32,
    /// Asked for by a container of this Kubernetes namespace, for rules about such
    #[arg(long)]
    pub namespace: Option<String>,
    /// Asked for by this pod
    #[arg(long)]
    pub pod: Option<String>,
    /// Asked for by this user
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// The same as -o json
    #[arg(long)]
    pub json: bool,
}

/// What the rules leave of a request.
pub struct Ruled {
    pub alternatives: Vec<Slice>,
    excluded: Vec<(String, String)>,
    barred: Vec<String>,
    idle: Vec<placement::Reserved>,
    stuck: Vec<placement::Reserved>,
    min_compute: u32,
}

impl Ruled {
    pub fn new(config: &Config, world: &World, asked: &Asked) -> Result<Ruled> {
        let all = request::alternatives(&asked.request)?.ok_or_else(|| {
            Error::new("none asks for nothing").hint("name a profile or an amount of memory")
        })?;
        let who = Who {
            namespace: asked.namespace.clone(),
            pod: asked.pod.clone(),
            pod_uid: None,
            user: asked.user,
        };
        let gpus = &world.snapshot.gpus;
        Ok(Ruled {
            alternatives: config
                .policy
                .allowed(&all)?
                .into_iter()
                .map(|a| a.slice)
                .collect(),
            excluded: config.policy.excluded(gpus, &who),
            barred: config.policy.barred(gpus),
            idle: world.idle(),
            stuck: world.stuck(),
            min_compute: asked.compute,
        })
    }

    pub fn wanted(&self) -> Wanted<'_> {
        Wanted {
            alternatives: &self.alternatives,
            min_compute: self.min_compute,
            excluded: &self.excluded,
            barred: &self.barred,
            idle: &self.idle,
            stuck: &self.stuck,
            ..Wanted::default()
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    request: String,
    fits: bool,
    /// One for each alternative that was asked for, up to the first that fits.
    alternatives: Vec<Alternative>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Alternative {
    request: String,
    /// `fits`, `full`, `fragmented`, or `never`: no wait helps.
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
    let world = World::look(config)?;
    let ruled = Ruled::new(config, &world, asked)?;
    let mut explanation = Explanation {
        request: asked.request.clone(),
        fits: false,
        alternatives: Vec::new(),
    };
    for slice in &ruled.alternatives {
        let alternative = look(&world, &ruled, slice);
        explanation.fits = alternative.verdict == "fits";
        explanation.alternatives.push(alternative);
        if explanation.fits {
            break;
        }
    }
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
    let all_read = world.tell_unread();
    Ok(i32::from(!explanation.fits || !all_read))
}

fn look(world: &World, ruled: &Ruled, slice: &Slice) -> Alternative {
    let (reserved, wanted) = (world.reserved(), ruled.wanted());
    let gpus = placement::explain(&world.snapshot, &reserved, slice, &wanted);
    let items = gpus.iter().map(|on| item(on, &wanted)).collect();
    if let Some((on, places)) = gpus.iter().find_map(|on| match &on.verdict {
        Verdict::Fits(places) => Some((on, places)),
        _ => None,
    }) {
        return Alternative {
            request: slice.to_string(),
            verdict: "fits",
            why: fits(on, &places[0]),
            hint: None,
            gpus: items,
            restarts: Vec::new(),
        };
    }
    let (found, movable, whose) = defrag::search(world, &wanted, slice);
    let nothing_moves = movable.is_empty();
    let snapshot = &world.snapshot;
    let no = placement::explained(snapshot, &reserved, slice, &wanted, &found, nothing_moves);
    let (verdict, why, hint) = match (no, &found) {
        (NoRoom::Never { why, hint }, _) => ("never", why, hint),
        (NoRoom::Now { why, hint }, Found::Impossible) => ("full", why, hint),
        (NoRoom::Now { why, hint }, _) => ("fragmented", why, hint),
    };
    Alternative {
        request: slice.to_string(),
        verdict,
        why,
        hint: Some(hint),
        gpus: items,
        restarts: match &found {
            Found::Plan(plan) => defrag::restarts(plan, &whose),
            _ => Vec::new(),
        },
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

fn item(on: &OnGpu<'_>, wanted: &Wanted<'_>) -> GpuItem {
    let profile = on.profile.map_or("the profile", |p| p.name.as_str());
    let free = format!(
        "{} of {} memory slices are free",
        on.free_slices, on.total_slices
    );
    let (state, why) = match &on.verdict {
        Verdict::Fits(places) => ("fits", after(&places[0])),
        Verdict::Full => ("full", free),
        Verdict::NoPlace => ("noPlace", format!("{free}, but no place of {profile} is")),
        Verdict::UsedUp(what) => ("usedUp", format!("{free}, but it has no more {what}")),
        Verdict::NoProfile => ("noProfile", "it has no such profile".to_owned()),
        Verdict::MigOff => ("migOff", "MIG is off".to_owned()),
        Verdict::MigPending => ("migPending", "MIG is on after a reset".to_owned()),
        Verdict::NoMig => ("noMig", "it has no MIG".to_owned()),
        Verdict::Excluded(rule) => ("excluded", rule.clone()),
    };
    let held = wanted.stuck.iter().filter(|r| r.gpu == on.gpu.uuid);
    GpuItem {
        index: on.gpu.index,
        uuid: on.gpu.uuid.clone(),
        profile: on.profile.map(|p| p.name.clone()),
        state,
        why,
        free_slices: on.free_slices,
        total_slices: on.total_slices,
        quarantined_slices: held.map(|r| r.placement.size).sum(),
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
    match alternative.verdict {
        "fits" => output::line(&format!("fits: {}", printable(&alternative.why))),
        verdict => output::line(&format!("{verdict}: {}", printable(&alternative.why))),
    }
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
