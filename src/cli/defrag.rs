//! `migctl defrag --plan`: the fewest containers to restart for a request to fit. It changes nothing.

use super::asked::By;
use super::explain::SliceItem;
use super::list::Waits;
use super::output::{self, Format};
use super::world::{self, whose};
use crate::config::Config;
use crate::error::{Result, printable};
use crate::gpu::Inventory;
use crate::lease::{Answer, Outlook};
use crate::model::Placement;
use crate::placement::{DefragPlan, Kind, MAX_STEPS, Site};
use crate::request::{self, Alternative};
use crate::store::Lease;
use serde::Serialize;

#[derive(clap::Args)]
pub struct Asked {
    /// For what there shall be room: 3g.40gb, 20Gi, 1g.10gb*2, or a list of such, of which the one with the fewest
    /// restarts
    #[arg(long, required = true, value_name = "REQUEST")]
    plan: String,
    #[command(flatten)]
    by: By,
    /// The same as -o json
    #[arg(long)]
    json: bool,
}

/// A container that has to be restarted, and where its slice would lie.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    lease: String,
    container: String,
    container_name: Option<String>,
    pod: Option<String>,
    namespace: Option<String>,
    profile: String,
    #[serde(rename = "fromGPUIndex")]
    from_gpu: u32,
    from_placement: Placement,
    #[serde(rename = "toGPUIndex")]
    to_gpu: u32,
    to_placement: Placement,
    /// As people know it.
    #[serde(skip)]
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanItem<'a> {
    /// Of a list the one that is planned for; all where none can be.
    request: String,
    /// `fits` (nothing has to move), `moves`, `impossible`, `limited`, `kept` for those who wait, or
    /// `unknown`: it takes too long to find out.
    verdict: &'static str,
    why: String,
    profile: Option<String>,
    #[serde(rename = "gpuUUID")]
    gpu_uuid: Option<String>,
    gpu_index: Option<u32>,
    mig_placement: Option<Placement>,
    /// All that are asked for, of which the above is the first.
    slices: Vec<SliceItem>,
    /// To be stopped all of them, and started in this order after the request's container.
    restarts: Vec<Restart>,
    /// Those who wait already, in their order.
    ahead: Vec<Waits<'a>>,
    /// One for each that was asked for.
    alternatives: &'a [Way],
}

/// What it takes to make room for one alternative.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Way {
    request: String,
    verdict: &'static str,
    why: String,
    /// How many containers have to be restarted; null where that would not help.
    restarts: Option<usize>,
    #[serde(skip)]
    plan: Option<DefragPlan>,
}

pub fn run(config: &Config, format: Format, asked: &Asked) -> Result<i32> {
    let request = asked.by.request(&asked.plan)?;
    let (driver, world) = world::look(config)?;
    let who = asked.by.who(&world);
    let outlook = Outlook::new((config, &driver), &world, &request, who, &world.waiting)?;
    let (_, holders) = world.movable();
    let alternatives = outlook.alternatives().iter();
    let ways: Vec<Way> = { alternatives }
        .map(|one| way(&outlook, one, &holders))
        .collect();
    let can = ways.iter().filter(|way| way.plan.is_some());
    // Of several the first.
    let best = can.min_by_key(|way| way.restarts);
    let (request, verdict, why) = match best {
        Some(way) => (way.request.clone(), way.verdict, way.why.clone()),
        None => none(&outlook, &ways),
    };
    let plan = best.and_then(|way| way.plan.as_ref());
    let first = plan.and_then(|plan| plan.sites.first());
    let item = PlanItem {
        request,
        verdict,
        why,
        profile: first.map(|site| site.profile.clone()),
        gpu_uuid: first.map(|site| site.gpu_uuid.clone()),
        gpu_index: first.map(|site| site.gpu_index),
        mig_placement: first.map(|site| site.placement),
        slices: plan.map_or_else(Vec::new, |p| p.sites.iter().map(SliceItem::from).collect()),
        restarts: plan.map_or_else(Vec::new, |p| restarts(p, &holders)),
        ahead: world.waiting.iter().map(Waits::from).collect(),
        alternatives: &ways,
    };
    if asked.json || matches!(format, Format::Json) {
        output::object("DefragmentationPlan", &item);
    } else {
        tell(&item, plan);
    }
    let all_read = world::tell_unread(&world);
    Ok(i32::from(plan.is_none() || !all_read))
}

fn way(outlook: &Outlook<'_, impl Inventory>, asked: &Alternative, holders: &[Vec<&Lease>]) -> Way {
    let (verdict, why, plan) = match outlook.answer(asked, MAX_STEPS) {
        Answer::Fits(fit) => {
            let plan = DefragPlan {
                sites: fit.sites.into_iter().map(|(site, _)| site).collect(),
                moves: Vec::new(),
            };
            ("fits", "nothing has to move".to_owned(), Some(plan))
        }
        Answer::Limited(e) => ("limited", e.to_string(), None),
        Answer::No(reason) => {
            let verdict = match (reason.kind, &reason.plan) {
                (_, Some(_)) => "moves",
                (Kind::Kept, _) => "kept",
                (Kind::Fragmented, _) => "unknown",
                (Kind::Never | Kind::Full, _) => "impossible",
            };
            (verdict, outlook.refusal(reason.no).to_string(), reason.plan)
        }
    };
    Way {
        request: asked.to_string(),
        verdict,
        why,
        restarts: plan.as_ref().map(|plan| restarts(plan, holders).len()),
        plan,
    }
}

/// Where no alternative can be had: what the best of them would be told.
fn none(outlook: &Outlook<'_, impl Inventory>, ways: &[Way]) -> (String, &'static str, String) {
    let mut whys: Vec<&str> = ways.iter().map(|way| way.why.as_str()).collect();
    whys.dedup();
    let worst = ways.iter().all(|way| way.verdict == "impossible");
    let open = ways.iter().find(|way| way.verdict != "impossible" || worst);
    (
        request::written(outlook.alternatives()),
        open.map_or("impossible", |way| way.verdict),
        whys.join("; and "),
    )
}

fn tell(item: &PlanItem<'_>, plan: Option<&DefragPlan>) {
    show(&item.restarts);
    let Some(plan) = plan else {
        output::line(&format!("{}: {}", item.verdict, printable(&item.why)));
        return;
    };
    let now = match item.verdict {
        "fits" => "fits now",
        _ => "fits then",
    };
    let of = |s: &Site| format!("{} at {} on GPU {}", s.profile, s.placement, s.gpu_index);
    let sites: Vec<String> = plan.sites.iter().map(of).collect();
    output::line(&format!("{now}: {}", sites.join(" and ")));
    if item.verdict != "fits" && !item.ahead.is_empty() {
        output::line("before it comes who waits already: migctl list shows them");
    }
    if item.alternatives.len() > 1 {
        let rows = item.alternatives.iter().map(|way| {
            let restarts = way.restarts.map_or("-".to_owned(), |n| n.to_string());
            vec![way.request.clone(), restarts, way.why.clone()]
        });
        output::line("");
        output::table(
            &["ALTERNATIVE", "RESTARTS", "WHY"],
            &rows.collect::<Vec<_>>(),
        );
    }
}

pub fn restarts(plan: &DefragPlan, holders: &[Vec<&Lease>]) -> Vec<Restart> {
    let each = plan.moves.iter().flat_map(|m| {
        holders[m.which].iter().map(move |lease| Restart {
            lease: lease.id.clone(),
            container: lease.holder.key.id.clone(),
            container_name: lease.holder.container_name.clone(),
            pod: lease.holder.pod.clone(),
            namespace: lease.holder.namespace.clone(),
            profile: m.profile.clone(),
            from_gpu: m.from_gpu,
            from_placement: m.from,
            to_gpu: m.to_gpu,
            to_placement: m.to,
            name: whose(lease),
        })
    });
    each.collect()
}

pub fn show(restarts: &[Restart]) {
    if restarts.is_empty() {
        return;
    }
    output::line("stop these, start the new one, then start these again in this order:");
    let place = |gpu: u32, at: Placement| format!("GPU {gpu} {at}");
    let rows: Vec<Vec<String>> = restarts
        .iter()
        .map(|r| {
            vec![
                r.name.clone(),
                r.profile.clone(),
                place(r.from_gpu, r.from_placement),
                place(r.to_gpu, r.to_placement),
            ]
        })
        .collect();
    output::table(&["CONTAINER", "PROFILE", "FROM", "TO"], &rows);
}
