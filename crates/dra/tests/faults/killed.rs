//! Killed anywhere: the points are found by running the work, so one that is added later is tried without anyone listing
//! it. All of them take minutes, so CI tries a sample. `RUNMIG_DRA_POINTS=all` tries all.

use crate::cluster::Cluster;
use crate::phases::{PHASES, Phase, Run};
use crate::tracer::Traced;
use nvml_sim::fault::{self, Moment, Rule};
use testkit::prelude::*;
use testkit::process::Killed;

/// The points of each kind of work in a sample.
const SAMPLE: usize = 4;
/// Makes the sample the same each time.
const SEED: u64 = 13;

/// Stops before the driver begins, so that its first call is seen.
const STOPPED: &str = "kill -STOP $$; exec \"$0\" \"$@\"";

#[tokio::test]
async fn survives_kill_at_system_calls() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    let devices = cluster.devices().await;
    let places = [devices[2].as_str(), devices[5].as_str()];
    for phase in PHASES {
        let (seen, _) = traced(&mut cluster, phase, places, None).await;
        assert!(seen.len() > 10, "hardly a point was found: {seen:?}");
        let points = sample(seen.len(), phase as u64);
        let mut missed: usize = 0;
        for (number, point) in points.iter().enumerate() {
            let at = Some((*point, number));
            let (done, is_reached) = traced(&mut cluster, phase, places, at).await;
            missed += usize::from(!is_reached);
            let at = done.last().map_or("", String::as_str);
            say(&format!("{phase:?}: killed before call {point}: {at}"));
        }
        say(&format!(
            "{phase:?}: killed at {} of {} system calls, {missed} of them not reached",
            points.len(),
            seen.len()
        ));
        // Timing hides a few.
        assert!(missed * 3 <= points.len(), "{missed} points not reached");
    }
}

/// Does the work once, and kills the driver before a call. Returns the calls, and whether the point was reached.
async fn traced(
    cluster: &mut Cluster,
    phase: Phase,
    places: [&str; 2],
    point: Option<(usize, usize)>,
) -> (Vec<String>, bool) {
    let run = Run::begin(cluster, phase, places).await;
    if phase == Phase::Start {
        let mut shell = Command::new("sh");
        shell.args(["-c", STOPPED, env!("CARGO_BIN_EXE_runmig-dra")]);
        let driver = cluster.as_driver(shell, "driver.log").spawn();
        cluster.driver = Some(Killed(driver.unwrap()));
    }
    let process = cluster.driver.as_ref().unwrap().0.id();
    let below = cluster.at("");
    let traced = Traced::new(process, &below, point.map(|(point, _)| point));
    run.act(cluster, || traced.has_ended()).await;
    let seen = traced.end();
    let is_reached = point.is_some_and(|(point, _)| seen.len() == point);
    // The tracer has reaped it, and its number may be another's.
    std::mem::forget(cluster.driver.take());
    run.judge(cluster, point.is_none_or(|(_, number)| number % 2 == 0))
        .await;
    (seen, is_reached)
}

#[tokio::test]
async fn survives_kill_at_driver_calls() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    let devices = cluster.devices().await;
    let places = [devices[2].as_str(), devices[5].as_str()];
    for phase in PHASES {
        let mut tried = 0;
        for call in changes(phase) {
            for moment in [Moment::Before, Moment::During, Moment::After] {
                let (_, is_reached) = faulty(&mut cluster, phase, places, (call, 1, moment)).await;
                assert!(is_reached, "{phase:?} makes no {call}");
                tried += 1;
            }
        }
        // Twice: the first run reads what the later ones find in a cache. Looks at the room of the node come between.
        let never = ("*", u64::MAX, Moment::Before);
        faulty(&mut cluster, phase, places, never).await;
        let (count, _) = faulty(&mut cluster, phase, places, never).await;
        assert!(count > 4, "hardly a call was found: {count}");
        let points = sample(usize::try_from(count).unwrap(), 7 + phase as u64);
        let mut missed = 0;
        for point in &points {
            let at = ("*", *point as u64, Moment::Before);
            missed += usize::from(!faulty(&mut cluster, phase, places, at).await.1);
        }
        say(&format!(
            "{phase:?}: killed at {tried} changes, and at {} of {count} driver calls, {missed} of them not reached",
            points.len(),
        ));
    }
}

/// The calls that change the GPU.
fn changes(phase: Phase) -> &'static [&'static str] {
    match phase {
        Phase::Promise => &[],
        Phase::Prepare => &[
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "nvmlGpuInstanceCreateComputeInstance",
        ],
        Phase::Unprepare | Phase::Sweep | Phase::Start => {
            &["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"]
        }
    }
}

/// Does the work once, and kills the driver at a call to the GPU driver: name, number and moment. Returns the number of
/// such calls, and whether the point was reached.
async fn faulty(
    cluster: &mut Cluster,
    phase: Phase,
    places: [&str; 2],
    (call, at, moment): (&str, u64, Moment),
) -> (u64, bool) {
    let run = Run::begin(cluster, phase, places).await;
    let machine = cluster.at("machine");
    fault::add(&machine, Rule::nth(call, at, Outcome::Kill(moment))).unwrap();
    if phase == Phase::Start {
        cluster.start_driver();
    }
    let mut driver = cluster.driver.take().unwrap();
    let mut is_dead = || driver.0.try_wait().unwrap().is_some();
    run.act(cluster, &mut is_dead).await;
    let seen = fault::list(&machine).unwrap()[0].seen;
    drop(driver);
    fault::clear(&machine).unwrap();
    run.judge(cluster, at % 2 == 0).await;
    (seen, seen >= at)
}

/// Returns the points to try, of this many.
fn sample(count: usize, salt: u64) -> Vec<usize> {
    let all = std::env::var_os("RUNMIG_DRA_POINTS").is_some_and(|value| value == "all");
    if all || count <= SAMPLE {
        return (1..=count).collect();
    }
    // One of each part, so that a sample meets the whole work.
    let mut random = Random::new(SEED.wrapping_add(salt));
    let part = |at: usize| {
        let (from, to) = (at * count / SAMPLE, (at + 1) * count / SAMPLE);
        1 + from + random.below((to - from) as u64) as usize
    };
    (0..SAMPLE).map(part).collect()
}

/// Past the harness, which keeps what a passing test prints.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "kills of runmig-dra: {what}");
}
