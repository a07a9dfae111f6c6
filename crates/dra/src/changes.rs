//! Tells when the ledger changes: a record comes, changes or goes.

use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store;
use std::time::Duration;
use tokio::sync::mpsc;

/// The time between two looks while the ledger does not change. An administrator's instance comes without a record.
const LOOK: Duration = Duration::from_secs(30);
/// The time after a change of the ledger in which more changes come: each write wakes every pod that waits.
const JOIN: Duration = Duration::from_millis(100);
/// The time between two looks without a watch on the ledger.
const BLIND: Duration = Duration::from_secs(5);

/// A watch on the ledger. A thread of its own reads the kernel's events.
pub(crate) struct Changes(mpsc::Receiver<()>);

impl Changes {
    /// Watches a ledger, also one that the first create makes.
    ///
    /// # Errors
    /// No inotify instance is left.
    pub(crate) fn of(config: &Config) -> Result<Changes> {
        let watch = store::Changes::of(&config.state_dir)?;
        let (told, changes) = mpsc::channel(1);
        let read = move || tell(watch, &told);
        let thread = std::thread::Builder::new().name("changes".to_owned());
        let what = || format!("watch the ledger in {}", config.state_dir.display());
        thread.spawn(read).context(what)?;
        Ok(Changes(changes))
    }

    /// Returns after the next change. Changes since the last call count.
    ///
    /// # Errors
    /// The watch is over.
    pub(crate) async fn next(&mut self) -> Result<()> {
        let next = self.0.recv().await;
        next.ok_or_else(|| Error::new("cannot watch the ledger: the kernel ended the watch"))
    }
}

/// Waits for a change of the ledger, and then for those that follow at once. Without a ledger to watch it only waits.
pub(crate) async fn changed(config: &Config, changes: &mut Option<Changes>) {
    if changes.is_none() {
        // An inotify instance may be free now.
        *changes = Changes::of(config).ok();
    }
    let Some(watch) = changes else {
        return tokio::time::sleep(BLIND).await;
    };
    match tokio::time::timeout(LOOK, watch.next()).await {
        Ok(Ok(())) => tokio::time::sleep(JOIN).await,
        Ok(Err(e)) => {
            tracing::warn!("{}", e.line());
            *changes = None;
            tokio::time::sleep(BLIND).await;
        }
        Err(_) => {}
    }
}

/// Tells each change until the watch fails, or nobody listens.
fn tell(mut watch: store::Changes, told: &mpsc::Sender<()>) {
    while watch.wait().is_ok() && told.blocking_send(()).is_ok() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn tells_changes_of_records() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().join("state"),
            ..Config::default()
        };
        let mut changes = Changes::of(&config).unwrap();
        // The first create makes the ledger.
        std::fs::create_dir_all(&config.state_dir).unwrap();
        changes.next().await.unwrap();
        let (new, ledger) = (
            config.state_dir.join(".ledger.json"),
            config.state_dir.join("ledger.json"),
        );
        while changes.next().now_or_never().is_some() {}
        std::fs::write(&new, "").unwrap();
        std::fs::rename(new, &ledger).unwrap();
        changes.next().await.unwrap();
        std::fs::remove_file(ledger).unwrap();
        changes.next().await.unwrap();
    }
}
