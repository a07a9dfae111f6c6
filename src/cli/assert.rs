//! `migctl assert`: whether a configuration of a file is the state of the machine.

use super::driver;
use super::json::{AssertedGpu, LayoutAssertion};
use super::layout_options::Source;
use super::output::{self, Format};
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};
use runmig_lease::layout;

pub fn run(config: &Config, format: Format, source: &Source) -> Result<i32> {
    let configuration = source.read(&config.layout)?;
    let gpus = driver::ask(config).detailed_gpus()?;
    let targets = layout::resolve(&configuration, &gpus)?;
    layout::validate(&targets, &gpus)?;
    let item = |(target, gpu): (&Option<_>, _)| {
        let difference = layout::difference(*target, gpu);
        AssertedGpu {
            gpu_index: gpu.gpu.index,
            gpu_uuid: gpu.gpu.uuid.to_string(),
            applied: difference.is_none(),
            difference,
        }
    };
    let gpus: Vec<AssertedGpu> = targets.iter().zip(&gpus).map(item).collect();
    let assertion = LayoutAssertion {
        applied: gpus.iter().all(|gpu| gpu.applied),
        configuration: configuration.name,
        gpus,
    };
    match format {
        Format::Json => output::json("LayoutAssertion", &assertion),
        Format::Table if assertion.applied => {
            let name = printable(&assertion.configuration);
            output::line(&format!("the machine has layout {name}"));
        }
        Format::Table => {
            for gpu in &assertion.gpus {
                if let Some(difference) = &gpu.difference {
                    output::eprint(&format!("GPU {}: {difference}", gpu.gpu_index));
                }
            }
        }
    }
    Ok(i32::from(!assertion.applied))
}
