//! The news that the observer tells its sinks.

use super::create::Create;
use crate::counters::{Actor, Outcome};
use crate::error::Error;
use crate::gpu::DriverError;
use crate::store::{Damaged, Entry, Held, Instance, Lease};
use std::time::Duration;

/// A place to which news go, as a file. It never fails or delays an operation.
pub(crate) trait Sink {
    /// Hears of something that happened.
    fn hear(&self, news: &News<'_>);
}

/// Something that happened to a create, a lease or an instance.
pub(crate) enum News<'a> {
    /// A create began to wait for room.
    WaitBegun(&'a Create),
    /// The wait of a create ended.
    WaitEnded(&'a Create, Times),
    /// A create ended with a container, or with the slice of a claim.
    Created {
        create: &'a Create,
        outcome: Outcome,
        /// Its leases.
        leases: &'a [Held],
        times: Times,
    },
    /// A create ended in another way.
    Failed {
        create: &'a Create,
        outcome: Outcome,
        /// None where another program told its error.
        error: Option<&'a Error>,
        times: Times,
    },
    /// A claim has a place, without hardware.
    Promised(&'a Held),
    /// A lease is on an instance that was there.
    Taken(&'a Held, Existing),
    /// runmig made an instance.
    Made(&'a Held),
    /// This process removed a lease.
    Released {
        lease: &'a Lease,
        instance: &'a Instance,
        by: Actor,
        time: Duration,
    },
    /// The boot of this lease or instance is over.
    Lapsed(&'a Entry),
    /// An instance without a lease made room.
    Evicted {
        instance: &'a Instance,
        time: Duration,
    },
    /// One more try to destroy an instance begins.
    Retried(&'a Instance),
    /// An instance could not be destroyed, for the first time.
    Quarantined {
        lease: Option<&'a Lease>,
        instance: &'a Instance,
        error: &'a Error,
    },
    /// A quarantined instance is destroyed.
    Recovered(&'a Instance),
    /// runmig ends a record that cannot be read.
    Damaged(&'a Damaged),
    /// A call of the driver failed.
    DriverFailed(&'a DriverError),
    /// A collection looked at every record.
    Collected,
    /// All changes of a layout are made.
    LayoutApplied(&'a str),
}

/// How a lease came to an instance that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It was idle.
    Reused,
    /// An administrator made it.
    Adopted,
    /// Others of its pod or claim have it too.
    Shared,
}

/// The duration of a create and of its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub total: Duration,
    pub wait: Duration,
    pub driver: Duration,
    /// None where no low-level runtime ran.
    pub runtime: Option<Duration>,
}
