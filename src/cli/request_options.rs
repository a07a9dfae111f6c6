//! The request and its requester: the options of the verbs that take a request.

use runmig_lease::Inventory;
use runmig_lease::error::{Error, Result};
use runmig_lease::policy::Subject;
use runmig_lease::request::{self, COMPUTE, GPU, SHARE, SLICE, Wanted};

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
    /// Parses a request as a create does, and refuses it as a create does. `asked`: annotations with their values.
    pub fn wanted(&self, asked: &[(&str, &str)]) -> Result<Wanted> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut annotations: Vec<(String, String)> = asked.iter().map(own).collect();
        let compute = self.compute.map(|n| (COMPUTE.to_owned(), n.to_string()));
        annotations.extend(compute);
        let request = request::parse(&annotations)?;
        request.map(|r| r.wanted).ok_or_else(|| {
            Error::new("the request none asks for nothing").hint(match asked {
                [(SLICE, _)] => "name a profile or an amount of memory",
                [(SHARE, _)] => "name an amount of memory or a fraction",
                [(GPU, _)] => "name a number of GPUs",
                _ => "name a slice and the size of the share",
            })
        })
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
