//! The request and its requester: the options of the verbs that take a request.

use runmig_lease::Inventory;
use runmig_lease::error::{Error, Result};
use runmig_lease::policy::Subject;
use runmig_lease::request::{self, COMPUTE, GPU, SHARE, SLICE, Seat, ShareSize, Slices, Wanted};

#[derive(clap::Args)]
pub struct By {
    /// The least number of compute slices, as in runmig.dev/compute
    #[arg(long, value_name = "N")]
    compute: Option<u32>,
    /// Asked for by a container of this Kubernetes namespace, for rules about such
    #[arg(long)]
    namespace: Option<String>,
    /// Asked for by this pod
    #[arg(long)]
    pod: Option<String>,
    /// Asked for by this user
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
}

impl By {
    /// Parses the request as a create does, and refuses it as a create does.
    pub fn request(&self, text: &str) -> Result<Slices> {
        match self.wanted(SLICE, text)? {
            Some(Wanted::Slices(slices)) => Ok(slices),
            _ => Err(nothing("name a profile or an amount of memory")),
        }
    }

    /// Parses the sizes of a share as a create does.
    pub fn share(&self, sizes: &str) -> Result<Vec<ShareSize>> {
        match self.wanted(SHARE, sizes)? {
            Some(Wanted::Share(sizes)) => Ok(sizes),
            _ => Err(nothing("name an amount of memory or a fraction")),
        }
    }

    /// Parses a share of a slice as a create does.
    pub fn seat(&self, slice: &str, sizes: &str) -> Result<Seat> {
        match self.all_wanted(&[(SLICE, slice), (SHARE, sizes)])? {
            Some(Wanted::Seat(seat)) => Ok(seat),
            _ => Err(nothing("name a slice and the size of the share")),
        }
    }

    fn wanted(&self, key: &str, value: &str) -> Result<Option<Wanted>> {
        self.all_wanted(&[(key, value)])
    }

    fn all_wanted(&self, pairs: &[(&str, &str)]) -> Result<Option<Wanted>> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut annotations: Vec<(String, String)> = pairs.collect();
        let compute = self.compute.map(|n| (COMPUTE.to_owned(), n.to_string()));
        annotations.extend(compute);
        Ok(request::parse(&annotations)?.map(|r| r.wanted))
    }

    /// Parses a number of whole GPUs as a create does.
    pub fn gpus(&self, count: &str) -> Result<u32> {
        match self.wanted(GPU, count)? {
            Some(Wanted::Gpus(count)) => Ok(count),
            _ => Err(nothing("name a number of GPUs")),
        }
    }

    pub fn subject(&self, world: &Inventory) -> Subject {
        let is_its =
            |h: &runmig_lease::store::Container| h.pod == self.pod && h.namespace == self.namespace;
        let its = world.leases.iter().map(|h| &h.lease);
        let its = its.filter(|l| l.container().is_some_and(is_its));
        // A limit counts for each pod. A pod that was made again under its name is another pod.
        let latest = self.pod.as_ref().and(its.max_by_key(|l| &l.created));
        Subject {
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            pod_uid: latest.and_then(|l| l.container()?.pod_uid.clone()),
            user: self.user,
        }
    }
}

fn nothing(hint: &str) -> Error {
    Error::new("the request none asks for nothing").hint(hint)
}
