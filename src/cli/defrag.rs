//! `migctl defrag --plan`: the fewest containers to restart for a request to fit. It changes nothing.

use super::asked::By;
use super::completion;
use super::json::{
    DefragAlternative, DefragmentationPlan, Placement, Restart, SliceSite, WaitingItem,
};
use super::list::holder_name;
use super::output::{self, Format};
use super::world;
use clap_complete::ArgValueCompleter;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};
use runmig_lease::gpu::Queries;
use runmig_lease::placement::{DefragPlan, MAX_STEPS, RejectionKind, Site};
use runmig_lease::request::{self, Alternative};
use runmig_lease::store::{Container, Held, Lease};
use runmig_lease::what_if::{Outcome, WhatIf};

#[derive(clap::Args)]
pub struct Asked {
    /// For what there shall be room: 3g.40gb, 20Gi, 1g.10gb*2, or a list of such, of which the one with the fewest
    /// restarts
    #[arg(long, required = true, value_name = "REQUEST", add = ArgValueCompleter::new(completion::profiles))]
    plan: String,
    #[command(flatten)]
    by: By,
    /// The same as -o json
    #[arg(long)]
    json: bool,
}

/// The outcome of an alternative, and the plan where there is one.
type Way = (DefragAlternative, Option<DefragPlan>);

pub fn run(config: &Config, format: Format, asked: &Asked) -> Result<i32> {
    let request = asked.by.request(&asked.plan)?;
    let (driver, world) = world::look(config)?;
    let subject = asked.by.subject(&world);
    let what_if = WhatIf::new((config, &driver), &world, &request, subject)?;
    let (_, holders) = world.movable();
    let alternatives = what_if.alternatives().iter();
    let ways = alternatives.map(|one| way(&what_if, one, &holders));
    let (ways, plans): (Vec<_>, Vec<_>) = ways.unzip();
    let planned = ways.iter().zip(&plans);
    let can = planned.filter_map(|(way, plan)| Some((way, plan.as_ref()?)));
    // The first of several equal alternatives wins.
    let best = can.min_by_key(|(way, _)| way.restarts);
    let (request, verdict, why) = match best {
        Some((way, _)) => (way.request.clone(), way.verdict, way.why.clone()),
        None => none(&what_if, &ways),
    };
    let plan = best.map(|(_, plan)| plan);
    let first = plan.and_then(|plan| plan.sites.first());
    let item = DefragmentationPlan {
        request,
        verdict,
        why,
        profile: first.map(|site| site.profile.clone()),
        gpu_uuid: first.map(|site| site.gpu_uuid.to_string()),
        gpu_index: first.map(|site| site.gpu_index),
        mig_placement: first.map(|site| site.placement.into()),
        slices: plan.map_or_else(Vec::new, |p| p.sites.iter().map(SliceSite::from).collect()),
        restarts: plan.map_or_else(Vec::new, |p| restarts(p, &holders)),
        ahead: world.waiting.iter().map(WaitingItem::from).collect(),
        alternatives: &ways,
    };
    if asked.json || matches!(format, Format::Json) {
        output::json(&item);
    } else {
        tell(&item, plan);
    }
    let all_read = world::tell_unread(&world);
    Ok(i32::from(plan.is_none() || !all_read))
}

fn way(what_if: &WhatIf<'_, impl Queries>, asked: &Alternative, holders: &[Vec<&Held>]) -> Way {
    let (verdict, why, plan) = match what_if.outcome(asked, MAX_STEPS) {
        Outcome::Fits(fit) => {
            let plan = DefragPlan {
                sites: fit.sites.into_iter().map(|(site, _)| site).collect(),
                moves: Vec::new(),
            };
            ("fits", "nothing has to move".to_owned(), Some(plan))
        }
        Outcome::Limited(e) => ("limited", e.to_string(), None),
        Outcome::No(diagnosis) => {
            let rejection = diagnosis.rejection;
            let plan = rejection.plan().cloned();
            let verdict = match (rejection.kind(), &plan) {
                (_, Some(_)) => "moves",
                (RejectionKind::Queued, _) => "kept",
                (RejectionKind::Fragmented, _) => "unknown",
                (RejectionKind::Unsatisfiable | RejectionKind::Full, _) => "impossible",
            };
            (verdict, what_if.refusal(rejection).to_string(), plan)
        }
    };
    let way = DefragAlternative {
        request: asked.to_string(),
        verdict,
        why,
        restarts: plan.as_ref().map(|plan| restarts(plan, holders).len()),
    };
    (way, plan)
}

/// Returns the request, the best verdict and all reasons, if none of the alternatives can fit.
fn none(
    what_if: &WhatIf<'_, impl Queries>,
    ways: &[DefragAlternative],
) -> (String, &'static str, String) {
    let mut whys: Vec<&str> = ways.iter().map(|way| way.why.as_str()).collect();
    whys.dedup();
    let worst = ways.iter().all(|way| way.verdict == "impossible");
    let open = ways.iter().find(|way| way.verdict != "impossible" || worst);
    (
        request::written(what_if.alternatives()),
        open.map_or("impossible", |way| way.verdict),
        whys.join("; and "),
    )
}

fn tell(item: &DefragmentationPlan<'_>, plan: Option<&DefragPlan>) {
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
        output::line("earlier requests come before it: run migctl list to see them");
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

fn of(lease: &Lease, field: fn(&Container) -> &Option<String>) -> Option<String> {
    field(lease.container()?).clone()
}

pub fn restarts(plan: &DefragPlan, holders: &[Vec<&Held>]) -> Vec<Restart> {
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
