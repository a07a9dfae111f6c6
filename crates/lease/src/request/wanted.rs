//! The wanted part of a request: slices, a share of a GPU or of a slice, or whole GPUs.

use super::share::ShareSize;
use super::slice::{self, Alternative};

/// The wanted part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// MIG slices.
    Slices(Slices),
    /// A share of one GPU's memory: the sizes in order of preference, at least one. The first that fits is
    /// chosen.
    Share(Vec<ShareSize>),
    /// A seat: a share of one slice.
    Seat(Seat),
    /// So many whole GPUs, at least 1.
    Gpus(u32),
}

/// The wanted slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices {
    /// The alternatives in order of preference, at least one. The first that fits is chosen.
    pub alternatives: Vec<Alternative>,
    /// The least number of compute slices of each slice, or 0.
    pub min_compute: u32,
}

/// The wanted seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The slice, of which each alternative counts one.
    pub slices: Slices,
    /// The sizes of the share in order of preference, at least one.
    pub sizes: Vec<ShareSize>,
}

impl Seat {
    /// Returns the request for people: `share of 1/4 of 3g.40gb`.
    pub fn written(&self) -> String {
        let slices = slice::written(&self.slices.alternatives);
        format!("share of {} of {slices}", sizes(&self.sizes))
    }
}

fn sizes(sizes: &[ShareSize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(ShareSize::to_string).collect();
    sizes.join(",")
}

impl Wanted {
    /// Returns the request for people: `1g.10gb,20Gi`, `share of 8Gi,1/4` or `2 GPUs`.
    pub fn written(&self) -> String {
        match self {
            Wanted::Slices(slices) => slice::written(&slices.alternatives),
            Wanted::Share(all) => format!("share of {}", sizes(all)),
            Wanted::Seat(seat) => seat.written(),
            Wanted::Gpus(1) => "1 GPU".to_owned(),
            Wanted::Gpus(n) => format!("{n} GPUs"),
        }
    }

    /// Returns the part that asks for more than one slice or GPU.
    pub(super) fn several(&self) -> Option<String> {
        match self {
            Wanted::Slices(slices) => {
                let mut all = slices.alternatives.iter();
                all.find(|a| a.count > 1).map(Alternative::to_string)
            }
            Wanted::Share(_) | Wanted::Seat(_) | Wanted::Gpus(1) => None,
            Wanted::Gpus(n) => Some(n.to_string()),
        }
    }

    pub(super) fn noun(&self) -> &'static str {
        match self {
            Wanted::Slices(_) => "slice",
            Wanted::Share(_) | Wanted::Seat(_) => "share",
            Wanted::Gpus(_) => "GPU",
        }
    }
}
