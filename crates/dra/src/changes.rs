//! Tells when the ledger changes: a record comes, changes or goes.

use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use runmig_lease::store;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The time between two looks while the ledger does not change. An administrator's instance comes without a record.
const LOOK: Duration = Duration::from_secs(30);
/// The time after a change of the ledger in which more changes come: each write wakes every pod that waits.
const JOIN: Duration = Duration::from_millis(100);
/// The time between two looks without a watch on the ledger.
const BLIND: Duration = Duration::from_secs(5);

/// The changes of a ledger, also of one that the first create makes.
pub(crate) struct Changes {
    config: Arc<Config>,
    /// None while no inotify instance is left.
    watch: Option<mpsc::Receiver<()>>,
}

impl Changes {
    /// Watches a ledger from now on.
    pub(crate) fn of(config: Arc<Config>) -> Changes {
        Changes {
            watch: watch(&config).ok(),
            config,
        }
    }

    /// Waits for a change since the last call, and then for those that follow at once. Without a watch it only waits.
    pub(crate) async fn next(&mut self) {
        if self.watch.is_none() {
            // An inotify instance may be free now.
            self.watch = watch(&self.config).ok();
        }
        let Some(watch) = &mut self.watch else {
            return tokio::time::sleep(BLIND).await;
        };
        match tokio::time::timeout(LOOK, watch.recv()).await {
            Ok(Some(())) => tokio::time::sleep(JOIN).await,
            Ok(None) => {
                tracing::warn!("cannot watch the ledger: the kernel ended the watch");
                self.watch = None;
                tokio::time::sleep(BLIND).await;
            }
            Err(_) => {}
        }
    }
}

/// Starts a thread that reads the kernel's events, and tells each change until the watch fails, or nobody listens.
fn watch(config: &Config) -> Result<mpsc::Receiver<()>> {
    let mut watch = store::Changes::of(&config.state_dir)?;
    let (told, changes) = mpsc::channel(1);
    let tell = move || while watch.wait().is_ok() && told.blocking_send(()).is_ok() {};
    let thread = std::thread::Builder::new().name("changes".to_owned());
    let what = || format!("watch the ledger in {}", config.state_dir.display());
    thread.spawn(tell).context(what)?;
    Ok(changes)
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
        let mut changes = watch(&config).unwrap();
        // The first create makes the ledger.
        std::fs::create_dir_all(&config.state_dir).unwrap();
        changes.recv().await.unwrap();
        let (new, ledger) = (
            config.state_dir.join(".ledger.json"),
            config.state_dir.join("ledger.json"),
        );
        while changes.recv().now_or_never().is_some() {}
        std::fs::write(&new, "").unwrap();
        std::fs::rename(new, &ledger).unwrap();
        changes.recv().await.unwrap();
        std::fs::remove_file(ledger).unwrap();
        changes.recv().await.unwrap();
    }
}
