//! The sink that writes the job files of dcgm-exporter.

use super::news::{News, Sink};
use crate::job_files::JobFiles;
use std::cell::Cell;
use std::slice;

/// The job files. The log has one line of each process that cannot write them.
pub(crate) struct Mapped {
    files: JobFiles,
    has_failed: Cell<bool>,
}

impl Mapped {
    pub(crate) fn new(files: JobFiles) -> Mapped {
        Mapped {
            files,
            has_failed: Cell::new(false),
        }
    }
}

impl Sink for Mapped {
    fn hear(&self, news: &News<'_>) {
        let written = match news {
            News::Given(leases) => self.files.follow(leases.iter().map(|held| &held.instance)),
            News::Released { instance, .. }
            | News::Evicted { instance, .. }
            | News::Recovered(instance) => self.files.follow(slice::from_ref(*instance)),
            News::Lapsed(entry) => self.files.follow(slice::from_ref(entry.instance())),
            News::Collected => self.files.repair(),
            News::WaitBegun(_)
            | News::WaitEnded(..)
            | News::LayoutApplied(_)
            | News::Created { .. }
            | News::Failed { .. }
            | News::Promised(_)
            | News::Taken(..)
            | News::Made(_)
            | News::Retried(_)
            | News::Quarantined { .. }
            | News::Damaged(_)
            | News::DriverFailed(_) => Ok(()),
        };
        if let Err(e) = written
            && !self.has_failed.replace(true)
        {
            tracing::warn!("the job files are not up to date: {}", e.line());
        }
    }
}
