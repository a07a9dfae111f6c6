//! Other drivers on the node: runmig publishes nothing over the GPUs that another one gives out.

use crate::api::probe::{self, Client};
use runmig_lease::error::Error;
use std::time::Duration;
use tokio::sync::watch;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(10);

/// The time before the API server is asked again for what it lacks.
const PAUSE: Duration = Duration::from_secs(5);

/// Waits until the API server has all that the driver publishes. Logs each obstacle once.
pub(crate) async fn admitted(client: &Client, node: &str) {
    let mut said = None;
    while let Err(e) = probe::require(client, node).await {
        say(&mut said, &e);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks for another driver again and again, without an end, and tells it. A look that fails changes nothing.
pub(crate) async fn follow(client: &Client, node: &str, told: &watch::Sender<Option<String>>) {
    let mut said = None;
    loop {
        look(client, node, told, &mut said).await;
        tokio::time::sleep(EVERY).await;
    }
}

/// Looks once.
pub(crate) async fn look(
    client: &Client,
    node: &str,
    told: &watch::Sender<Option<String>>,
    said: &mut Option<String>,
) {
    let rival = match probe::rival(client, node).await {
        Ok(rival) => rival,
        Err(e) => return say(said, &e),
    };
    told.send_if_modified(|last| {
        let is_new = *last != rival;
        match &rival {
            Some(rival) if is_new => {
                tracing::error!(
                    "{rival}, so runmig-dra publishes no free GPU; remove one of the two drivers"
                );
            }
            None if is_new => {
                tracing::info!("no other driver gives out the GPUs of this node any more")
            }
            _ => {}
        }
        *last = rival;
        is_new
    });
}

fn say(said: &mut Option<String>, e: &Error) {
    let line = e.line();
    if said.as_ref() != Some(&line) {
        tracing::error!("{line}");
        *said = Some(line);
    }
}
