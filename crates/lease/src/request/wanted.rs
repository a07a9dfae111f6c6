//! The wanted part of a request: slices, a share of a GPU or of a slice, or whole GPUs.

use super::share::ShareSize;
use super::slice::{self, Alternative};
use crate::model::ProfileName;

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
        format!("share of {} of {slices}", slice::written(&self.sizes))
    }
}

impl Wanted {
    /// Returns the request for people: `1g.10gb,20Gi`, `share of 8Gi,1/4` or `2 GPUs`.
    pub fn written(&self) -> String {
        match self {
            Wanted::Slices(slices) => slice::written(&slices.alternatives),
            Wanted::Share(sizes) => format!("share of {}", slice::written(sizes)),
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
                all.find(|a| a.count() > 1).map(Alternative::to_string)
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

/// Returns the kind of a request and its first profile from its words, which [`Wanted::written`] wrote into the queue.
/// The kinds are `slice`, `share`, `gpu` and `seat`. An amount of memory is no profile.
pub fn kind_of_written(request: &str) -> (&'static str, Option<String>) {
    let first = |alternatives: &str| {
        let first = alternatives.split([',', '*', slice::AND]).next()?;
        Some(first.parse::<ProfileName>().ok()?.to_string())
    };
    match request.strip_prefix("share of ") {
        Some(share) => match share.split_once(" of ") {
            Some((_, slices)) => ("seat", first(slices)),
            None => ("share", None),
        },
        None if request.ends_with(" GPU") || request.ends_with(" GPUs") => ("gpu", None),
        None => ("slice", first(request)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;

    #[test]
    fn reads_kind_of_written_request() {
        let wanted = |annotations: &[(&str, &str)]| {
            let own = |(key, value): &(&str, &str)| (format!("runmig.dev/{key}"), (*value).into());
            let annotations: Vec<(String, String)> = annotations.iter().map(own).collect();
            let request = request::parse(&annotations).unwrap().unwrap();
            kind_of_written(&request.wanted.written())
        };
        let profile = |name: &str| Some(name.to_owned());
        assert_eq!(
            wanted(&[("slice", "1g.10gb+me*2,20Gi")]),
            ("slice", profile("1g.10gb+me"))
        );
        assert_eq!(
            wanted(&[("slice", "1g.10gb&2g.20gb")]),
            ("slice", profile("2g.20gb"))
        );
        assert_eq!(wanted(&[("slice", "20Gi,1g.10gb")]), ("slice", None));
        assert_eq!(wanted(&[("share", "8Gi,1/4")]), ("share", None));
        let seat = [("slice", "3g.40gb,7g.80gb"), ("share", "1/4")];
        assert_eq!(wanted(&seat), ("seat", profile("3g.40gb")));
        assert_eq!(wanted(&[("gpu", "1")]), ("gpu", None));
        assert_eq!(wanted(&[("gpu", "2")]), ("gpu", None));
        assert_eq!(kind_of_written(""), ("slice", None));
    }
}
