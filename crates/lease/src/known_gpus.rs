//! The GPUs of this boot and of the last one, so that one that did not come back is noticed. `migctl gc` notes them, since a
//! timer runs it, in `gpus.json` of the data directory.

use crate::config::Config;
use crate::error::{Context, Result};
use crate::files::replace;
use crate::gpu::Queries;
use crate::model::{BootId, Gpu, GpuUuid};
use crate::{effect, process, trust};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FILE: &str = "gpus.json";
/// A GPU takes some 100 bytes, in each of the two boots.
const MAX_SIZE: u64 = 64 * 1024;

/// The names of GPUs by UUID.
type Gpus = BTreeMap<GpuUuid, String>;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    boot_id: BootId,
    gpus: Gpus,
    /// Those of the boot before.
    before: Gpus,
}

impl Known {
    fn read(config: &Config) -> Result<Option<Known>> {
        let file = config.data_dir.join(FILE);
        let what = || format!("read {}", file.display());
        if !file.exists() {
            return Ok(None);
        }
        let text = trust::read_to_string(&file, MAX_SIZE).context(what)?;
        serde_json::from_str(&text).map(Some).context(what)
    }
}

/// Notes the GPUs once in a boot, as soon as the driver answers.
///
/// # Errors
/// The file cannot be read or written, or users other than root can write to it.
pub fn note(config: &Config, driver: &impl Queries) -> Result<()> {
    let dir = &config.data_dir;
    let what = || format!("note the GPUs in {}", dir.display());
    let boot_id = process::boot_id(&config.driver.root)?;
    // A file that cannot be understood is replaced: no decision rests on it.
    let known = Known::read(config).unwrap_or_default();
    if known.as_ref().is_some_and(|known| known.boot_id == boot_id) {
        return Ok(());
    }
    let Ok(snapshot) = driver.snapshot() else {
        return Ok(());
    };
    let gpus = { snapshot.gpus.into_iter() }.map(|gpu| (gpu.uuid, gpu.name));
    let next = Known {
        boot_id,
        gpus: gpus.collect(),
        before: known.map(|known| known.gpus).unwrap_or_default(),
    };
    trust::room_for(dir).context(what)?;
    effect::make_dir_all(dir, 0o700).context(what)?;
    trust::folder(dir).context(what)?;
    let text = serde_json::to_vec(&next).context(what)?;
    replace(&dir.join(FILE), &text).context(what)
}

/// Returns the GPUs of this boot and of the last that are not there now, each as its model and UUID.
///
/// # Errors
/// The file cannot be read, or users other than root can write to it.
pub fn missing(config: &Config, there: &[Gpu]) -> Result<Vec<String>> {
    let Some(known) = Known::read(config)? else {
        return Ok(Vec::new());
    };
    let is_of_this_boot = known.boot_id == process::boot_id(&config.driver.root)?;
    let before = known.before.into_iter().filter(|_| is_of_this_boot);
    let all: Gpus = before.chain(known.gpus).collect();
    let is_gone = |(uuid, _): &(GpuUuid, String)| there.iter().all(|gpu| gpu.uuid != *uuid);
    let gone = all.into_iter().filter(is_gone);
    Ok(gone
        .map(|(uuid, name)| format!("{name} ({uuid})"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Driver;
    use crate::gpu::Session;
    use crate::gpu::nvml::tests::machine;

    #[test]
    fn misses_gpus_of_this_boot_and_the_last() {
        let (dir, machine, library) = machine();
        let driver = || Session::new(&library, None);
        let config = Config {
            data_dir: dir.path().join("data"),
            driver: Driver {
                root: dir.path().join("root"),
                ..Driver::default()
            },
            ..Config::default()
        };
        let boot = |id: &str| {
            let folder = config.driver.root.join("proc/sys/kernel/random");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("boot_id"), id).unwrap();
            note(&config, &driver()).unwrap();
        };
        let lose = |lost: bool| machine.change(|machine, _| machine.gpus[1].lost = lost);
        let missed = || missing(&config, &driver().snapshot().unwrap().gpus).unwrap();
        assert_eq!(missed(), [""; 0]);
        let all = driver().snapshot().unwrap().gpus;
        let other = [format!("{} ({})", all[1].name, all[1].uuid)];
        for (id, lost, gone) in [
            ("1", false, &[][..]),
            ("1", true, &other),
            ("2", true, &other),
            ("2", false, &[]),
            ("2", true, &other),
            ("3", true, &[]),
        ] {
            lose(lost);
            boot(id);
            assert_eq!(missed(), gone, "in boot {id}");
        }
    }
}
