//! Plans a request for a share of a GPU's memory.

use super::admit::Limits;
use super::denial::Denial;
use super::levels::{Levels, NoLevel};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::Inventory;
use crate::model::{ComputeMode, Gpu, GpuUuid, Level};
use crate::placement::{
    self, GpuObstacle, GpuUse, ShareCandidate, ShareLevel, ShareShortage, ShareTerms,
};
use crate::policy::{Kind, Policy, Subject};
use crate::queue;
use crate::refusal::NoRoom;
use crate::request::ShareSize;
use crate::store::{Enforcement, Share, WholeGpu};

/// The rules for a request: the possible levels, and how many shares one GPU takes.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub levels: &'a Levels,
    /// The memory that a level itself needs, in MiB.
    pub mps_overhead_mib: u64,
    pub most: u32,
}

impl<'a> Terms<'a> {
    /// Returns the terms of a new share.
    ///
    /// # Errors
    /// The policy forbids shares, or no permitted level is possible.
    pub(super) fn new(config: &Config, levels: &'a Levels) -> Result<Terms<'a>> {
        config.policy.check_kind(Kind::Share)?;
        levels.check()?;
        Ok(Terms {
            levels,
            mps_overhead_mib: config.sharing.mps_overhead,
            most: config.sharing.shares_per_gpu,
        })
    }

    /// Returns the level of a share on a GPU; else the reasons for which there is none.
    pub(super) fn of_gpu(
        &self,
        driver: &impl Queries,
        gpu: &Gpu,
    ) -> std::result::Result<ShareLevel, NoLevel> {
        let (rank, level) = self.levels.of_gpu(driver, gpu)?;
        Ok(ShareLevel {
            level,
            rank,
            overhead_mib: match level {
                Level::Mps => self.mps_overhead_mib,
                Level::Driver | Level::None => 0,
            },
        })
    }
}

/// Returns every GPU with its free memory and its obstacle for the requester.
pub(super) fn candidates<'a>(
    driver: &impl Queries,
    inventory: &'a Inventory,
    (policy, subject): (&Policy, &Subject),
    terms: Terms<'_>,
) -> Vec<ShareCandidate<'a>> {
    let snapshot = &inventory.snapshot;
    let excluded = policy.excluded(&snapshot.gpus, subject);
    let queued = queue::reserved_gpus(&inventory.waiting);
    let candidate = |gpu: &'a Gpu| {
        let mut on = ShareCandidate {
            gpu,
            memory_mib: None,
            free_mib: 0,
            foreign_mib: 0,
            holders: Vec::new(),
            level: None,
            obstacle: None,
            is_queued: queued.contains(&gpu.uuid),
        };
        if let Some((_, rule)) = excluded.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
            on.obstacle = Some(GpuObstacle::Excluded(rule.clone()));
            return on;
        }
        let state = inventory.use_of(driver, gpu);
        let taken = state.foreign_mib.map(|mib| mib + state.booked_mib());
        on.memory_mib = state.memory_mib;
        on.foreign_mib = state.foreign_mib.unwrap_or_default();
        on.free_mib =
            (state.memory_mib.zip(taken)).map_or(0, |(all, taken)| all.saturating_sub(taken));
        on.obstacle = placement::obstacle_of(&state.usage).or(match state.compute_mode {
            Some(ComputeMode::Prohibited) => Some(GpuObstacle::Used(GpuUse::Prohibited)),
            Some(ComputeMode::ExclusiveProcess) => Some(GpuObstacle::OneProcess),
            Some(ComputeMode::Default) if state.foreign_mib.is_some() => None,
            Some(ComputeMode::Default) => Some(GpuObstacle::Used(GpuUse::Unknown {
                why: "the driver does not tell the memory of a process without a lease".to_owned(),
            })),
            None => Some(GpuObstacle::Used(GpuUse::Unknown {
                why: "the driver does not tell its use".to_owned(),
            })),
        });
        if on.obstacle.is_none() {
            match terms.of_gpu(driver, gpu) {
                Ok(level) => on.level = Some(level),
                Err(NoLevel::Impossible(reasons)) => {
                    on.obstacle = Some(GpuObstacle::NoLevel(reasons));
                }
                Err(NoLevel::Unknown(why)) => {
                    on.obstacle = Some(GpuObstacle::Used(GpuUse::Unknown { why }));
                }
            }
        }
        if let GpuUse::Shared {
            holders,
            level: theirs,
            ..
        } = state.usage
        {
            on.holders = holders;
            if on.level.is_some_and(|ours| ours.level != theirs) {
                on.obstacle = on.obstacle.or(Some(GpuObstacle::OtherLevel(theirs)));
            }
        }
        on
    };
    snapshot.gpus.iter().map(candidate).collect()
}

/// Chooses the GPU of a share, and returns the GPU's record with the share.
pub(super) fn plan(
    candidates: &[ShareCandidate<'_>],
    inventory: &Inventory,
    limits: &Limits<'_>,
    (sizes, terms): (&[ShareSize], Terms<'_>),
) -> std::result::Result<(WholeGpu, Share), Denial<ShareShortage>> {
    let limits = limits.for_share()?;
    let limit = |mib| limits.over(mib);
    let asked = ShareTerms {
        sizes,
        most: terms.most,
        limit: &limit,
    };
    let unreadable = &inventory.snapshot.unreadable;
    let place = placement::choose_share(candidates, unreadable, &asked).map_err(|no| {
        let may_pass = no.may_pass();
        limits.denial(no, may_pass)
    })?;
    let whole = WholeGpu::of(place.gpu, place.gives_out_mib);
    let share = Share {
        memory_mib: place.memory_mib,
        booked_mib: place.booked_mib,
        enforcement: Enforcement::new(place.level),
    };
    Ok((whole, share))
}

/// The answer that a create for a share would get now.
pub struct ShareTrial {
    /// Every GPU that the driver can read.
    pub gpus: Vec<ShareOnTrial>,
    /// The outcome of the request.
    pub outcome: ShareOutcome,
}

/// A GPU in such an answer.
pub struct ShareOnTrial {
    /// The driver's index.
    pub index: u32,
    /// The UUID.
    pub uuid: GpuUuid,
    /// The memory that the GPU gives out, in MiB, if it is known.
    pub memory_mib: Option<u64>,
    /// The memory that is left of it, in MiB.
    pub free_mib: u64,
    /// The level of a share there. None if there is none.
    pub level: Option<Level>,
    /// The number of its shares.
    pub shares: usize,
    /// The obstacle for all of the requested sizes, if there is one.
    pub obstacle: Option<GpuObstacle>,
}

/// The outcome of a request for a share.
pub enum ShareOutcome {
    /// The request gets this share of this GPU.
    Fits(Box<WholeGpu>, Share),
    /// The request exceeds a limit.
    Limited(Error),
    /// No GPU has room.
    No(ShareShortage),
}

/// Answers a request for a share of one of these sizes, and writes nothing.
///
/// # Errors
/// The policy forbids the request, or no permitted level is possible.
pub fn try_share(
    (config, driver): (&Config, &impl Queries),
    inventory: &Inventory,
    (sizes, subject): (&[ShareSize], Subject),
) -> Result<ShareTrial> {
    let levels = Levels::new(config, None);
    let terms = Terms::new(config, &levels)?;
    let policy = &config.policy;
    let limits = Limits::new(policy, subject.clone(), inventory);
    let candidates = candidates(driver, inventory, (policy, &subject), terms);
    let outcome = match plan(&candidates, inventory, &limits, (sizes, terms)) {
        Ok((whole, share)) => ShareOutcome::Fits(Box::new(whole), share),
        Err(Denial::Limit(over)) => ShareOutcome::Limited(over),
        Err(Denial::Room(no)) => ShareOutcome::No(no),
    };
    let no_limit = |_| None;
    let asked = ShareTerms {
        sizes,
        most: terms.most,
        limit: &no_limit,
    };
    let on_trial = |on: &ShareCandidate<'_>| ShareOnTrial {
        index: on.gpu.index,
        uuid: on.gpu.uuid.clone(),
        memory_mib: on.memory_mib,
        free_mib: on.free_mib,
        level: on.level.map(|on| on.level),
        shares: on.holders.len(),
        obstacle: asked.obstacle(on),
    };
    Ok(ShareTrial {
        gpus: candidates.iter().map(on_trial).collect(),
        outcome,
    })
}

/// Returns the error of a create with this shortage.
pub fn no_share_error(shortage: ShareShortage, inventory: &Inventory) -> Error {
    NoRoom::Share(shortage).error(&inventory.waiting, None)
}
