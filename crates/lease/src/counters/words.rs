//! The labels of counters. A number here is a place in the file, so a newer version only adds to the end.

/// Declares a label with its values and their words.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $value,)*
        }

        impl $name {
            /// All values, in the order of the file.
            pub const ALL: &[$name] = &[$($name::$value,)*];

            /// Returns the value of the label.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                }
            }
        }
    };
}

label! {
    /// The kind of a lease's portion.
    LeaseKind {
        /// A MIG slice.
        Slice = "slice",
        /// A share of a GPU.
        Share = "share",
        /// A whole GPU.
        Gpu = "gpu",
        /// A share of a slice.
        Seat = "seat",
        /// A kind that this version does not know.
        Other = "other",
    }
}

label! {
    /// The kind of a lease's holder.
    HolderKind {
        /// A container.
        Container = "container",
        /// A claim of Kubernetes.
        Claim = "claim",
        /// A holder that this version does not know.
        Other = "other",
    }
}

label! {
    /// The end of a create.
    Outcome {
        /// The container has what runmig made for it.
        Created = "created",
        /// The container has an idle slice.
        Reused = "reused",
        /// The container has an administrator's slice.
        Adopted = "adopted",
        /// The container shares the slice of its pod or claim.
        Shared = "shared",
        /// There was no room, and no time to wait.
        Full = "full",
        /// The free memory slices did not lie side by side, and there was no time to wait.
        Fragmented = "fragmented",
        /// Earlier requests had reserved the room, and there was no time to wait.
        Queued = "queued",
        /// A limit of the policy was reached.
        Limited = "limited",
        /// No wait helps.
        Unsatisfiable = "unsatisfiable",
        /// runmig refused the container or could not record it.
        Refused = "refused",
        /// The driver failed.
        Driver = "driver",
        /// The low-level runtime failed.
        Runtime = "runtime",
        /// The time to wait for room was over.
        TimedOut = "timed_out",
    }
}

label! {
    /// A part of a create's time.
    Part {
        /// All of it.
        Total = "total",
        /// The wait for room.
        Wait = "wait",
        /// Calls of the driver.
        Driver = "driver",
        /// The low-level runtime.
        Runtime = "runtime",
    }
}

label! {
    /// The actor of a release.
    Actor {
        /// A hook of the container.
        Hook = "hook",
        /// The engine's delete.
        Delete = "delete",
        /// A create: its own roll back, or the end of a predecessor.
        Create = "create",
        /// A collection.
        Gc = "gc",
        /// `migctl release`.
        Operator = "operator",
        /// A create that needed the room of an idle slice.
        Eviction = "eviction",
        /// The Kubernetes driver.
        Claim = "claim",
    }
}

label! {
    /// The kind of an instance.
    ResourceKind {
        /// A MIG slice.
        Mig = "mig",
        /// A whole GPU.
        Gpu = "gpu",
        /// An MPS daemon.
        Mps = "mps",
        /// A kind that this version does not know.
        Other = "other",
    }
}

/// The reason of a failed call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFailure {
    /// NVML's return code.
    Code(u32),
    /// The library is missing, or lacks a function.
    Library,
    /// The library's answer is unusable.
    Answer,
}
