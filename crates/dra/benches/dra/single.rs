//! One claim after the other: from the binding to the promise, Prepare and Unprepare.

use super::cluster::Cluster;
use super::figures::Figure;
use super::host::Host;
use std::time::{Duration, Instant};

/// The first claims fill caches.
const WARM: usize = 5;

pub async fn run(cluster: &Cluster, host: &Host, rounds: usize) -> Vec<Figure> {
    let (mut promised, mut prepared, mut unprepared) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..WARM + rounds {
        // Five and the number of places have no common divisor, so every place has its turn.
        let device = &host.devices[round * 5 % host.devices.len()];
        let wanted = cluster
            .pod(&format!("single-{round}"), &host.name, device)
            .await;
        let begun = Instant::now();
        cluster.bind(&wanted).await;
        while host.instances() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let promise = begun.elapsed();
        let prepare = less_driver(host, host.prepare(&wanted.claim)).await;
        let unprepare = less_driver(host, host.unprepare(&wanted.claim)).await;
        cluster.delete(&wanted).await;
        host.rest().await;
        if round >= WARM {
            promised.push(promise);
            prepared.push(prepare);
            unprepared.push(unprepare);
        }
    }
    let (prepare, unprepare) = (
        "Prepare less the GPU driver's time, one claim",
        "Unprepare less the GPU driver's time, one claim",
    );
    vec![
        Figure::of(prepare, &prepared, 50, 15.0),
        Figure::of(prepare, &prepared, 99, 50.0),
        Figure::of(unprepare, &unprepared, 50, 15.0),
        Figure::of(unprepare, &unprepared, 99, 50.0),
        Figure::of("binding to promise", &promised, 50, 100.0),
        Figure::of("binding to promise", &promised, 99, 100.0),
    ]
}

/// Returns the time of a call from which the CPU time of the GPU driver's functions is taken.
async fn less_driver(host: &Host, call: impl Future<Output = ()>) -> Duration {
    host.rest().await;
    host.forget_calls();
    let begun = Instant::now();
    call.await;
    let took = begun.elapsed();
    took.saturating_sub(host.driver_time())
}
