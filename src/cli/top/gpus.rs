//! The GPUs of the page, with as much detail as fits.

use super::facts::Facts;
use super::view::View;
use crate::cli::draw;
use runmig_lease::GpuState;
use runmig_lease::model::Gpu;
use runmig_lease::refusal;

/// A degree of detail, from the most to the least.
#[derive(Clone, Copy)]
pub enum Detail {
    /// As `migctl gpus` draws a GPU, with a line for each slice.
    Slices,
    /// The same without these lines.
    Bars,
    /// A line for each GPU.
    Line,
}

impl Detail {
    pub const ALL: [Detail; 3] = [Detail::Slices, Detail::Bars, Detail::Line];
}

/// Draws the chosen GPUs.
pub fn lines(facts: &Facts, view: &View, detail: Detail) -> Vec<String> {
    let gpus = facts.inventory.snapshot.gpus.iter().zip(&facts.gpus);
    let chosen = gpus.filter(|(gpu, _)| view.filter.has_gpu(gpu));
    let draw = |(gpu, state): (&Gpu, &GpuState)| match detail {
        Detail::Slices => whole(facts, gpu, state, usize::MAX),
        Detail::Bars => whole(facts, gpu, state, 2),
        Detail::Line => vec![line(facts, gpu, state)],
    };
    chosen.flat_map(draw).collect()
}

fn whole(facts: &Facts, gpu: &Gpu, state: &GpuState, of_slices: usize) -> Vec<String> {
    let slices = match gpu.profiles.is_empty() {
        true => Vec::new(),
        false => draw::slices(&facts.inventory, gpu),
    };
    { [draw::head(gpu, state)].into_iter() }
        .chain(draw::memory(state))
        .chain(slices.into_iter().take(of_slices))
        .collect()
}

fn line(facts: &Facts, gpu: &Gpu, state: &GpuState) -> String {
    let drawn = draw::memory(state);
    let drawn = drawn.or_else(|| match gpu.profiles.is_empty() {
        true => None,
        false => draw::slices(&facts.inventory, gpu).into_iter().nth(1),
    });
    let drawn = drawn.unwrap_or_else(|| refusal::gpu_use(&state.usage));
    format!("GPU {}: {}", gpu.index, drawn.trim())
}
