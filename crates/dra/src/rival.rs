//! Other drivers on the node: runmig publishes nothing over the GPUs that another one gives out. The log and an event on
//! the Node object name each.

use crate::api::Client;
use crate::api::probe::{self, OF_NO_NODE};
use crate::obstacle::Obstacles;
use crate::report;
use runmig_lease::error::{Error, Result};
use std::time::Duration;
use tokio::sync::watch;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(10);

/// The time before the API server is asked again for what it lacks.
const PAUSE: Duration = Duration::from_secs(5);

/// The most lines that wait for their event.
const MAX_UNTOLD: usize = 4;

/// Waits until the API server has all that the driver publishes. Logs each obstacle once.
pub(crate) async fn admitted(client: &Client, node: &str) {
    let mut obstacles = Obstacles::default();
    while let Err(e) = probe::require(client, node).await {
        say(&mut obstacles, &e);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The looks for other drivers on a node.
pub(crate) struct Rivals<'a> {
    client: &'a Client,
    node: &'a str,
    told: watch::Sender<Option<String>>,
    /// Another program that publishes under this driver's name.
    intruder: Option<String>,
    /// The lines that the Node object has no event for yet.
    untold: Vec<String>,
    obstacles: Obstacles,
}

impl<'a> Rivals<'a> {
    /// Returns the looks, and the end that tells the driver which gives out the GPUs of the node, in words.
    pub(crate) fn of(
        client: &'a Client,
        node: &'a str,
    ) -> (Rivals<'a>, watch::Receiver<Option<String>>) {
        let (told, rivals) = watch::channel(None);
        let looks = Rivals {
            client,
            node,
            told,
            intruder: None,
            untold: Vec::new(),
            obstacles: Obstacles::default(),
        };
        (looks, rivals)
    }

    /// Looks again and again, without an end.
    pub(crate) async fn follow(&mut self) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.look().await;
        }
    }

    /// Looks once. A look that fails changes nothing.
    pub(crate) async fn look(&mut self) {
        match self.try_look().await {
            Ok(()) => drop(self.obstacles.are_over()),
            Err(e) => say(&mut self.obstacles, &e),
        }
    }

    async fn try_look(&mut self) -> Result<()> {
        let rival = probe::rival(self.client, self.node).await?;
        if *self.told.borrow() != rival {
            match &rival {
                Some(rival) => self.warn(format!(
                    "{rival}, so runmig-dra publishes no free GPU; remove one of the two drivers"
                )),
                None => {
                    tracing::info!("no other driver gives out the GPUs of this node any more");
                }
            }
            self.told.send_replace(rival);
        }
        let intruder = probe::intruder(self.client, self.node, OF_NO_NODE).await?;
        if self.intruder != intruder {
            if let Some(intruder) = &intruder {
                self.warn(format!(
                    "{intruder}, and no driver prepares its devices; remove it"
                ));
            }
            self.intruder = intruder;
        }
        while let Some(line) = self.untold.last() {
            report::warn_of_node(self.client, self.node, line).await?;
            self.untold.pop();
        }
        Ok(())
    }

    /// Logs a line, and keeps it for an event.
    fn warn(&mut self, line: String) {
        tracing::error!("{line}");
        // Without the right to events they would pile up.
        self.untold.truncate(MAX_UNTOLD);
        self.untold.insert(0, line);
    }
}

fn say(obstacles: &mut Obstacles, e: &Error) {
    let line = e.line();
    if obstacles.is_new(&line) {
        tracing::error!("{line}");
    }
}
