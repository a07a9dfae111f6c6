//! The names of things as types of their own, so that none stands for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Creates one from its text.
            pub fn new(text: impl Into<String>) -> Self {
                $name(text.into())
            }

            /// Returns its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

id! {
    /// The UUID of a GPU, as NVML writes it: `GPU-` and a UUID.
    GpuUuid
}

id! {
    /// The kernel's random UUID of a boot. Neither instances nor leases survive a boot.
    BootId
}

id! {
    /// The random id of a lease: 32 hexadecimal digits.
    LeaseId
}

id! {
    /// The random id of an instance, by which leases name it: 32 hexadecimal digits.
    InstanceId
}

id! {
    /// The random id of an operation, by which leases name it: 32 hexadecimal digits.
    OperationId
}
