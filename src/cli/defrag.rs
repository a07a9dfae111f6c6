//! `migctl defrag --plan`: the fewest containers to restart for a request to fit. It changes nothing.

use super::explain::{self, Ruled};
use super::output::{self, Format};
use super::world::{World, whose};
use crate::config::Config;
use crate::error::{Result, printable};
use crate::model::Placement;
use crate::placement::{self, Found, Movable, PATIENCE, Plan, Wanted};
use crate::request::Slice;
use crate::store::Lease;
use serde::Serialize;

#[derive(clap::Args)]
pub struct Asked {
    /// For what there shall be room: 3g.40gb, 20Gi, or a list, of which the first
    #[arg(long, required = true, value_name = "REQUEST")]
    plan: String,
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
struct PlanItem {
    request: String,
    /// `fits` (nothing has to move), `moves`, `impossible`, or `unknown`: it takes too long to find
    /// out.
    verdict: &'static str,
    why: String,
    profile: Option<String>,
    #[serde(rename = "gpuUUID")]
    gpu_uuid: Option<String>,
    gpu_index: Option<u32>,
    mig_placement: Option<Placement>,
    /// To be stopped all of them, and started in this order after the request's container.
    restarts: Vec<Restart>,
}

pub fn run(config: &Config, format: Format, asked: &Asked) -> Result<i32> {
    let world = World::look(config)?;
    let request = explain::Asked {
        request: asked.plan.clone(),
        compute: 0,
        namespace: None,
        pod: None,
        user: None,
        json: asked.json,
    };
    let ruled = Ruled::new(config, &world, &request)?;
    let wanted = ruled.wanted();
    let slice = &ruled.alternatives[0];
    let (found, movable, whose) = search(&world, &wanted, slice);
    let words = || -> String {
        let (reserved, none) = (world.reserved(), movable.is_empty());
        let snapshot = &world.snapshot;
        let no = placement::explained(snapshot, &reserved, slice, &wanted, &found, none);
        let (placement::NoRoom::Never { why, .. } | placement::NoRoom::Now { why, .. }) = no;
        why
    };
    let (verdict, why) = match &found {
        Found::Plan(plan) if plan.moves.is_empty() => ("fits", "nothing has to move".to_owned()),
        Found::Plan(_) => ("moves", words()),
        Found::Impossible => ("impossible", words()),
        Found::Beyond(n) => ("unknown", format!("{}; tried up to {n} restarts", words())),
    };
    let plan = match &found {
        Found::Plan(plan) => Some(plan),
        _ => None,
    };
    let item = PlanItem {
        request: slice.to_string(),
        verdict,
        why,
        profile: plan.map(|p| p.profile.clone()),
        gpu_uuid: plan.map(|p| p.gpu_uuid.clone()),
        gpu_index: plan.map(|p| p.gpu_index),
        mig_placement: plan.map(|p| p.placement),
        restarts: plan.map_or_else(Vec::new, |p| restarts(p, &whose)),
    };
    if asked.json || matches!(format, Format::Json) {
        output::object("DefragmentationPlan", &item);
    } else {
        match plan {
            Some(plan) => {
                show(&item.restarts);
                let now = if plan.moves.is_empty() {
                    "fits now"
                } else {
                    "fits then"
                };
                output::line(&format!(
                    "{now}: {} at {} on GPU {}",
                    plan.profile, plan.placement, plan.gpu_index
                ));
            }
            None => output::line(&format!("{verdict}: {}", printable(&item.why))),
        }
    }
    let all_read = world.tell_unread();
    Ok(i32::from(plan.is_none() || !all_read))
}

/// With what may move, and whose that is.
pub fn search<'w>(
    world: &'w World,
    wanted: &Wanted<'_>,
    slice: &Slice,
) -> (Found, Vec<Movable>, Vec<Vec<&'w Lease>>) {
    let (movable, whose) = world.movable();
    let reserved = world.reserved();
    let snapshot = &world.snapshot;
    let found = placement::fewest_moves(snapshot, &reserved, &movable, slice, wanted, PATIENCE);
    (found, movable, whose)
}

pub fn restarts(plan: &Plan, holders: &[Vec<&Lease>]) -> Vec<Restart> {
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
