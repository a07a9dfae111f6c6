//! The options that choose among leases.

use super::completion;
use clap::builder::PossibleValuesParser;
use clap_complete::ArgValueCompleter;
use runmig_lease::counters::LeaseKind;
use runmig_lease::model::Gpu;
use runmig_lease::policy::GpuName;
use runmig_lease::store::{Entry, Lease};

/// A choice among leases. It reads the words that all kinds of resources and holders have.
#[derive(clap::Args, Clone, Default)]
pub struct Filter {
    /// Only leases on this GPU, by its index or its UUID
    #[arg(long)]
    gpu: Option<GpuName>,
    /// Only leases of this container or claim, by its id or its name
    #[arg(long, value_name = "NAME", value_parser = not_empty, add = ArgValueCompleter::new(completion::holders))]
    container: Option<String>,
    /// Only leases of this Kubernetes namespace
    #[arg(long, value_parser = not_empty, add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    /// Only leases in this state
    #[arg(long, value_parser = PossibleValuesParser::new(states()))]
    state: Option<String>,
    /// Only leases of this kind
    #[arg(long, value_parser = PossibleValuesParser::new(LeaseKind::WORDS))]
    kind: Option<String>,
}

/// Reads a name, since nothing has an empty one.
pub fn not_empty(text: &str) -> Result<String, String> {
    { (!text.is_empty()).then(|| text.to_owned()) }.ok_or_else(|| "it is empty".to_owned())
}

fn states() -> impl Iterator<Item = &'static str> {
    Entry::LEASE_STATES.into_iter().chain(["idle", "layout"])
}

impl Filter {
    /// Returns whether the choice has an entry.
    pub fn has(&self, entry: &Entry) -> bool {
        let resource = &entry.instance().resource;
        let (index, uuid) = (resource.gpu_index(), resource.gpu_uuid().as_str());
        let namespace = || entry.lease().and_then(namespace);
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        self.gpu.as_ref().is_none_or(|gpu| gpu.names(index, uuid))
            && { self.container.as_deref() }.is_none_or(|name| entry.is_called(name))
            && is(&self.kind, entry.shown().kind.word())
            && is(&self.state, entry.shown_state())
            && (self.namespace.is_none() || self.namespace.as_deref() == namespace())
    }

    /// Returns whether the choice has instances on a GPU that have no holder and are not on record.
    pub fn has_foreign_on(&self, gpu: &Gpu) -> bool {
        let of_leases = [&self.container, &self.namespace, &self.state, &self.kind];
        self.has_gpu(gpu) && of_leases.iter().all(|wanted| wanted.is_none())
    }

    /// Returns the choice in words: `GPU 0, kind share`. Empty for all leases.
    pub fn words(&self) -> String {
        let gpu = self.gpu.as_ref().map(|gpu| match gpu {
            GpuName::Index(index) => format!("GPU {index}"),
            GpuName::Uuid(uuid) => uuid.clone(),
        });
        let named =
            |name: &str, value: &Option<String>| value.as_ref().map(|v| format!("{name} {v}"));
        let words = [
            gpu,
            named("container", &self.container),
            named("namespace", &self.namespace),
            named("state", &self.state),
            named("kind", &self.kind),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the choice has leases on a GPU.
    pub fn has_gpu(&self, gpu: &Gpu) -> bool {
        let name = self.gpu.as_ref();
        name.is_none_or(|name| name.names(gpu.index, gpu.uuid.as_str()))
    }
}

/// Returns the namespace of a lease's holder.
pub fn namespace(lease: &Lease) -> Option<&str> {
    lease.holder.names().namespace
}
