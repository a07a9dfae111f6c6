//! Numbers from a seed.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// splitmix64
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// An index into a list of this length.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
}

/// Draws the points of a matrix that a run takes: one in four with the seed of `scripts/test --full`, else all.
pub struct Sample(Option<Random>);

impl Sample {
    /// For one operation, whose name makes its points other ones than those of the next.
    pub fn of(operation: &str) -> Sample {
        let is_sampled = std::env::var("RUNMIG_TIER").is_ok_and(|tier| tier != "exhaustive");
        let seed = std::env::var("RUNMIG_SEED").ok();
        let seed: u64 = seed.map_or(0, |seed| seed.parse().expect("RUNMIG_SEED, a number"));
        let name = operation.bytes().fold(seed, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Sample(is_sampled.then(|| Random::new(name)))
    }

    pub fn takes(&mut self) -> bool {
        self.0.as_mut().is_none_or(|random| random.one_in(4))
    }
}
