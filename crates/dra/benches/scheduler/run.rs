//! One run: Poisson arrivals, exponential life times, from a seed.

use super::node::Node;
use super::order::{Cluster, Order, Policy, Score};
use crate::packing::workloads::Fleet;
use crate::packing::world::{Kind, Random, packer};
use runmig_dra::resource_slices::DeviceName;
use runmig_lease::request::Slice;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The counts of a run, after it has warmed up.
#[derive(Clone, Copy, Default, Debug)]
pub struct Count {
    pub asked: u64,
    pub accepted: u64,
    pub memory_asked: u64,
    pub memory_accepted: u64,
    /// Requests for which `placement` would have chosen another place on the node.
    pub differs: u64,
}

pub struct Run<'a> {
    /// The GPUs of each node.
    pub fleet: &'a Fleet,
    pub kinds: &'a [Kind],
    pub cluster: Cluster,
    pub load: f64,
    pub seed: u64,
    /// On each node.
    pub arrivals: usize,
}

/// A pod that is to end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    /// Soonest first; times are positive, so their bits are in their order.
    end: Reverse<u64>,
    /// The number of its arrival.
    number: usize,
    kind: usize,
}

impl Run<'_> {
    /// The same requests for every policy of the same burst.
    pub fn count(&self, policy: Policy) -> Count {
        let models = self.fleet.models();
        let mut nodes: Vec<Node> = (0..self.cluster.nodes)
            .map(|_| Node::new(&models))
            .collect();
        let mean: f64 = self.kinds.iter().map(|k| k.memory as f64 * k.share).sum();
        let there_is: u64 = models.iter().map(|m| m.memory_mb).sum();
        let rate = self.load * (there_is * nodes.len() as u64) as f64 / mean;
        let profiles: Vec<String> = self.kinds.iter().map(profile).collect();
        let mut random = Random(self.seed);
        let mut ties = Random(!self.seed);
        let mut pods: BinaryHeap<Pod> = BinaryHeap::new();
        let mut devices: HashMap<usize, (usize, DeviceName)> = HashMap::new();
        let mut repack = (policy.order == Order::Repack).then(|| packer(self.fleet, self.kinds));
        let (mut now, mut count) = (0.0, Count::default());
        let arrivals = self.arrivals * nodes.len();
        for arrival in 0..arrivals {
            if arrival % policy.burst == 0 {
                now += random.exponential() * policy.burst as f64 / rate;
                nodes.iter_mut().for_each(Node::publish);
            }
            let which = self.pick(random.uniform());
            let kind = &self.kinds[which];
            let end = Reverse((now + random.exponential()).to_bits());
            while pods
                .peek()
                .is_some_and(|pod| f64::from_bits(pod.end.0) <= now)
            {
                let gone = pods.pop().expect("looked");
                if let Some((node, device)) = devices.remove(&gone.number) {
                    nodes[node].free(&device);
                }
            }
            let device = match &mut repack {
                Some(packer) => {
                    let all = pods.iter().map(|pod| pod.kind).chain([which]);
                    let names = all.map(|kind| crate::packing::world::NAMES[kind]);
                    packer
                        .holds(names)
                        .expect("within patience")
                        .then_some(None)
                }
                None => {
                    let placed = self.place(&mut nodes, policy, &profiles[which], &mut ties);
                    placed.map(|(node, device, differs)| {
                        count.differs += u64::from(differs);
                        Some((node, device))
                    })
                }
            };
            // The first tenth fills the machine.
            let counts = arrival >= arrivals / 10;
            if counts {
                count.asked += 1;
                count.memory_asked += kind.memory;
            }
            if let Some(device) = device {
                count.accepted += u64::from(counts);
                count.memory_accepted += u64::from(counts) * kind.memory;
                devices.extend(device.map(|device| (arrival, device)));
                pods.push(Pod {
                    end,
                    number: arrival,
                    kind: which,
                });
            }
        }
        count
    }

    fn pick(&self, mut at: f64) -> usize {
        let mut kinds = self.kinds.iter();
        let found = kinds.position(|kind| {
            at -= kind.share;
            at < 0.0
        });
        found.unwrap_or(self.kinds.len() - 1)
    }

    /// Takes the first device that fits on the node with the best score. Says also whether `placement` differs.
    fn place(
        &self,
        nodes: &mut [Node],
        policy: Policy,
        profile: &str,
        ties: &mut Random,
    ) -> Option<(usize, DeviceName, bool)> {
        let with_room = (0..nodes.len()).filter(|n| nodes[*n].has_room(profile));
        let scored = with_room.map(|n| {
            let score = match self.cluster.score {
                Score::LeastAllocated => nodes[n].pods(),
                Score::MostAllocated => usize::MAX - nodes[n].count(profile),
            };
            (score, ties.next(), n)
        });
        let (_, _, best) = scored.min()?;
        let node = &mut nodes[best];
        let device = node
            .first(profile, policy.order)
            .expect("the node has room");
        let differs = policy.order == Order::Ours && node.choice(profile).as_ref() != Some(&device);
        node.allocate(&device);
        Some((best, device, differs))
    }
}

fn profile(kind: &Kind) -> String {
    match &kind.slice {
        Slice::Profile(name) => name.to_string(),
        Slice::Memory(_) => panic!("a claim of this benchmark requests a profile"),
    }
}
