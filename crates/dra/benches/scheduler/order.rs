//! Orders of the devices of a profile, and the ways to choose among nodes.

/// The order in which the scheduler meets the devices of a profile on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// One GPU after the other, from the lowest start, as NVIDIA's driver publishes them.
    Enumeration,
    /// One GPU after the other, with the places first that block the fewest larger profiles.
    Fixed,
    /// The layout that `runmig-dra` publishes, laid out anew before each request, or before each burst.
    Ours,
    /// No list: `placement::choose` on the node, as for a container with an annotation.
    Choice,
    /// Everything may move at every arrival. No order; what none can do better than.
    Repack,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Enumeration => "NVIDIA's order",
            Order::Fixed => "one fixed order",
            Order::Ours => "runmig-dra's order",
            Order::Choice => "runmig without a scheduler",
            Order::Repack => "free repacking",
        }
    }
}

/// The scheduler's score of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Score {
    /// The fewest pods: the default, which spreads by CPU and memory, with pods that request the same of both.
    LeastAllocated,
    /// The most devices of the requested profile in use: a scheduler profile that names these resources.
    MostAllocated,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub order: Order,
    /// The requests that arrive at once and see the lists of one moment.
    pub burst: usize,
}

/// The nodes of one column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub nodes: usize,
    pub score: Score,
}

impl Cluster {
    pub fn name(self) -> &'static str {
        match (self.nodes, self.score) {
            (1, _) => "one node",
            (_, Score::LeastAllocated) => "four nodes, LeastAllocated",
            (_, Score::MostAllocated) => "four nodes, MostAllocated",
        }
    }
}

const fn row(order: Order, burst: usize) -> Policy {
    Policy { order, burst }
}

pub const POLICIES: [Policy; 9] = [
    row(Order::Enumeration, 1),
    row(Order::Fixed, 1),
    row(Order::Ours, 1),
    row(Order::Choice, 1),
    row(Order::Repack, 1),
    row(Order::Enumeration, 8),
    row(Order::Fixed, 8),
    row(Order::Ours, 8),
    row(Order::Choice, 8),
];

pub const CLUSTERS: [Cluster; 3] = [
    Cluster {
        nodes: 1,
        score: Score::LeastAllocated,
    },
    Cluster {
        nodes: 4,
        score: Score::LeastAllocated,
    },
    Cluster {
        nodes: 4,
        score: Score::MostAllocated,
    },
];

impl Policy {
    pub fn name(self) -> String {
        match self.burst {
            1 => self.order.name().to_owned(),
            many => format!("{}, bursts of {many}", self.order.name()),
        }
    }

    /// Says whether the policy is defined for a cluster: a repack of several nodes is none of Kubernetes'.
    pub fn runs_on(self, cluster: Cluster) -> bool {
        cluster.nodes == 1 || self.order != Order::Repack
    }
}
