//! Tells when the ledger changes: a record comes, changes or goes.

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use std::time::Duration;
use tokio::sync::mpsc;

/// The folders of records below the state directory.
const FOLDERS: [&str; 2] = ["leases", "instances"];

/// The time between two looks while the ledger does not change. An administrator's instance comes without a record.
const LOOK: Duration = Duration::from_secs(30);
/// The time after a change of the ledger in which more changes come: each write wakes every pod that waits.
const JOIN: Duration = Duration::from_millis(100);
/// The time between two looks without a watch on the ledger.
const BLIND: Duration = Duration::from_secs(5);

/// A watch on the ledger. A thread of its own reads the kernel's events.
pub(crate) struct Changes(mpsc::Receiver<()>);

impl Changes {
    /// Watches a ledger that exists.
    ///
    /// # Errors
    /// A folder that is missing, or no inotify instance left.
    pub(crate) fn of(config: &Config) -> Result<Changes> {
        let what = || format!("watch the ledger in {}", config.state_dir.display());
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).context(what)?;
        // A record is written under another name and renamed.
        let flags =
            AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_DELETE_SELF;
        for folder in FOLDERS {
            let folder = config.state_dir.join(folder);
            inotify.add_watch(&folder, flags).context(what)?;
        }
        let (told, changes) = mpsc::channel(1);
        let read = move || tell(&inotify, &told);
        let thread = std::thread::Builder::new().name("changes".to_owned());
        thread.spawn(read).context(what)?;
        Ok(Changes(changes))
    }

    /// Returns after the next change. Changes since the last call count.
    ///
    /// # Errors
    /// The watch is over: the folder of the records is gone.
    pub(crate) async fn next(&mut self) -> Result<()> {
        let next = self.0.recv().await;
        next.ok_or_else(|| Error::new("cannot watch the ledger: its folder is gone"))
    }
}

/// Waits for a change of the ledger, and then for those that follow at once. Without a ledger to watch it only waits.
pub(crate) async fn changed(config: &Config, changes: &mut Option<Changes>) {
    if changes.is_none() {
        // The first create makes the ledger.
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

/// Tells each change until a folder goes, or nobody listens.
fn tell(inotify: &Inotify, told: &mpsc::Sender<()>) {
    loop {
        let events = match inotify.read_events() {
            Err(Errno::EINTR) => continue,
            Err(_) => return,
            Ok(events) => events,
        };
        let gone = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_IGNORED;
        if events.iter().any(|event| event.mask.intersects(gone)) || told.blocking_send(()).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn tells_changes_of_records() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().to_owned(),
            ..Config::default()
        };
        assert!(Changes::of(&config).is_err());
        for folder in FOLDERS {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let mut changes = Changes::of(&config).unwrap();
        let (new, record) = (
            dir.path().join("leases/.new-a"),
            dir.path().join("leases/a"),
        );
        std::fs::write(&new, "").unwrap();
        assert!(changes.next().now_or_never().is_none());
        std::fs::rename(new, &record).unwrap();
        changes.next().await.unwrap();
        std::fs::remove_file(record).unwrap();
        changes.next().await.unwrap();
        std::fs::remove_dir(dir.path().join("instances")).unwrap();
        assert!(changes.next().await.is_err());
    }
}
