//! An engine's user: starts containers with slices, and removes them.

use super::{PROFILES, Race};
use testkit::random::Random;

/// The containers of one user at a time.
const MAX: u64 = 3;

/// An engine on the node.
pub trait Engine: Sync {
    fn name(&self) -> &'static str;
    /// Starts a container that sleeps, with a slice of this profile. Returns the refusal.
    fn run(&self, container: &str, profile: &str) -> Result<(), String>;
    fn remove(&self, container: &str);
}

pub struct Local<'a> {
    race: &'a Race<'a>,
    engine: &'a dyn Engine,
    random: Random,
    made: u64,
    running: Vec<String>,
}

impl<'a> Local<'a> {
    pub fn new(race: &'a Race<'a>, engine: &'a dyn Engine, random: Random) -> Local<'a> {
        Local {
            race,
            engine,
            random,
            made: 0,
            running: Vec::new(),
        }
    }

    /// Starts a container or removes one.
    pub fn act(&mut self) {
        let count = self.running.len() as u64;
        if self.random.below(MAX + 1) < count {
            let container = self.running.swap_remove(self.random.below(count) as usize);
            return self.engine.remove(&container);
        }
        let (profile, ..) = self.random.of(&PROFILES);
        let name = self.engine.name();
        self.made += 1;
        let container = format!("{name}-{}", self.made);
        match self.engine.run(&container, profile) {
            Ok(()) => {
                self.race.count(format!("{name} started"));
                self.running.push(container);
            }
            Err(why) => {
                let no_room = format!("cannot allocate {profile}: ");
                assert!(why.contains(&no_room), "{container}: {why}");
                self.race.count(format!("{name} refused: no room"));
                self.engine.remove(&container);
            }
        }
    }

    /// Removes all.
    pub fn end(&mut self) {
        for container in std::mem::take(&mut self.running) {
            self.engine.remove(&container);
        }
    }
}
