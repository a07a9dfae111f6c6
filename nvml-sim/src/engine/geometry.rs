//! The GPU models, with and without MIG, and their profiles, one data file a model.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::placement::Placement;

/// `NVML_GPU_INSTANCE_PROFILE_COUNT` of nvml.h 13: profile indices go from 0 to one below it.
pub const GI_PROFILE_COUNT: u32 = 18;

const FILES: &[&str] = &[
    include_str!("../../profiles/a30-24gb.json"),
    include_str!("../../profiles/a100-40gb.json"),
    include_str!("../../profiles/a100-80gb.json"),
    include_str!("../../profiles/h100-80gb.json"),
    include_str!("../../profiles/h100-nvl-94gb.json"),
    include_str!("../../profiles/gh200-96gb.json"),
    include_str!("../../profiles/h200-141gb.json"),
    include_str!("../../profiles/h20-96gb.json"),
    include_str!("../../profiles/b200-180gb.json"),
    include_str!("../../profiles/gb200-186gb.json"),
    include_str!("../../profiles/b300-269gb.json"),
    include_str!("../../profiles/gb300-278gb.json"),
    include_str!("../../profiles/rtx-pro-6000-96gb.json"),
    include_str!("../../profiles/rtx-pro-5000-48gb.json"),
    include_str!("../../profiles/t4-16gb.json"),
    include_str!("../../profiles/a10-24gb.json"),
    include_str!("../../profiles/l4-24gb.json"),
    include_str!("../../profiles/l40s-48gb.json"),
    include_str!("../../profiles/rtx-3060-12gb.json"),
];

static MODELS: LazyLock<Vec<Model>> = LazyLock::new(|| {
    let model = |text: &&str| serde_json::from_str(text);
    let models = FILES.iter().map(model).collect::<Result<_, _>>();
    models.expect("the profile files are checked by a test")
});

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
}

impl Architecture {
    /// `NVML_DEVICE_ARCH_*`.
    pub fn number(self) -> u32 {
        match self {
            Architecture::Turing => 6,
            Architecture::Ampere => 7,
            Architecture::Ada => 8,
            Architecture::Hopper => 9,
            Architecture::Blackwell => 10,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Brand {
    Geforce,
    Nvidia,
    NvidiaRtx,
}

/// A GPU model. The fields `sources`, `notes` and `sure` of the data files are for readers of
/// those files only.
#[derive(Debug, Deserialize)]
pub struct Model {
    /// The model's name in the machine's state.
    #[serde(rename = "model")]
    pub key: String,
    aliases: Vec<String>,
    /// The driver's name for it.
    pub product: String,
    pub architecture: Architecture,
    brand: Brand,
    pub compute_capability: [u32; 2],
    pci_device_id: String,
    pub memory_mb: u64,
    /// Memory that the driver keeps for itself.
    #[serde(default = "default_reserved_mb")]
    pub reserved_mb: u64,
    /// Memory that a CUDA context takes with all multiprocessors. Measured on an H100 (516);
    /// assumed to be the same on other Hopper GPUs, and a guess on all others.
    #[serde(default = "default_context_mb")]
    pub context_mb: u64,
    /// Part of its BAR1 window that an idle GPU has in use.
    #[serde(default = "default_bar1_used")]
    pub bar1_used_bytes: u64,
    #[serde(default)]
    pub memory_slices: u32,
    #[serde(default)]
    pub compute_slices: u32,
    #[serde(default)]
    gpu_instance_id_base: BTreeMap<u32, u32>,
    /// None on a GPU without MIG.
    #[serde(default)]
    pub profiles: Vec<GiProfile>,
}

fn default_reserved_mb() -> u64 {
    512
}

fn default_context_mb() -> u64 {
    250
}

fn default_bar1_used() -> u64 {
    1 << 20
}

/// A GPU instance profile.
#[derive(Debug, Deserialize)]
pub struct GiProfile {
    pub name: String,
    /// The number that asks for its information (`NVML_GPU_INSTANCE_PROFILE_*`).
    pub index: u32,
    /// The number every other call takes.
    pub id: u32,
    pub compute_slices: u32,
    pub memory_slices: u32,
    pub memory_mb: u64,
    pub sm: u32,
    #[serde(flatten)]
    pub engines: Engines,
    pub max_instances: u32,
    starts: Vec<u32>,
    /// The compute instance profile that fills it.
    pub full_ci: u32,
    #[serde(default)]
    pub gfx: bool,
}

/// Engines beside the multiprocessors: what a profile takes, or what a GPU has. They follow one another as in NVML's structs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[repr(C)]
pub struct Engines {
    pub copy_engines: u32,
    pub decoders: u32,
    pub encoders: u32,
    pub jpeg: u32,
    pub ofa: u32,
}

impl Engines {
    fn zip(self, other: Engines, f: impl Fn(u32, u32) -> u32) -> Engines {
        Engines {
            copy_engines: f(self.copy_engines, other.copy_engines),
            decoders: f(self.decoders, other.decoders),
            encoders: f(self.encoders, other.encoders),
            jpeg: f(self.jpeg, other.jpeg),
            ofa: f(self.ofa, other.ofa),
        }
    }

    pub fn max(self, other: Engines) -> Engines {
        self.zip(other, u32::max)
    }

    pub fn fits(self, room: Engines) -> bool {
        room.times(self) > 0
    }

    /// How many times `part` is in this.
    pub fn times(self, part: Engines) -> u32 {
        let times = |have: u32, want| have.checked_div(want).unwrap_or(u32::MAX);
        let pairs = self.zip(part, times);
        let [media, rest] = [
            pairs.decoders.min(pairs.encoders),
            pairs.jpeg.min(pairs.ofa),
        ];
        pairs.copy_engines.min(media).min(rest)
    }
}

impl Add for Engines {
    type Output = Engines;
    fn add(self, other: Engines) -> Engines {
        self.zip(other, |a, b| a + b)
    }
}

impl Sub for Engines {
    type Output = Engines;
    fn sub(self, other: Engines) -> Engines {
        self.zip(other, |a, b| a - b)
    }
}

/// Whether any GPU has a profile of this id.
pub fn is_profile_id(id: u32) -> bool {
    Model::all().iter().any(|m| m.profile(id).is_some())
}

impl GiProfile {
    pub fn placements(&self) -> impl Iterator<Item = Placement> + '_ {
        let size = self.memory_slices;
        self.starts
            .iter()
            .map(move |&start| Placement { start, size })
    }
}

impl Model {
    pub fn all() -> &'static [Model] {
        &MODELS
    }

    /// Returns the models with MIG, which stand before the others.
    pub fn with_mig() -> &'static [Model] {
        let all = Model::all();
        &all[..all.partition_point(Model::has_mig)]
    }

    /// A model by its key, an alias or the driver's name for it, in any case.
    pub fn find(name: &str) -> Option<&'static Model> {
        let plain = |s: &str| s.to_ascii_lowercase().replace([' ', '_'], "-");
        let wanted = plain(name);
        let wanted = wanted.strip_prefix("nvidia-").unwrap_or(&wanted);
        Model::all().iter().find(|m| {
            plain(&m.key) == wanted
                || m.aliases.iter().any(|a| a == wanted)
                || plain(&m.product).strip_prefix("nvidia-") == Some(wanted)
        })
    }

    pub fn has_mig(&self) -> bool {
        !self.profiles.is_empty()
    }

    pub fn profile(&self, id: u32) -> Option<&GiProfile> {
        self.profiles.iter().find(|p| p.id == id)
    }

    pub fn profile_by_index(&self, index: u32) -> Option<&GiProfile> {
        self.profiles.iter().find(|p| p.index == index)
    }

    /// Returns the engines of the whole GPU: those of its largest profiles.
    pub fn engines(&self) -> Engines {
        let all = self.profiles.iter();
        all.fold(Engines::default(), |sum, p| sum.max(p.engines))
    }

    /// Multiprocessors of a compute instance of so many slices that does not fill its GPU instance.
    pub fn sm_per_slice(&self) -> u32 {
        let single = self.profiles.iter().filter(|p| p.compute_slices == 1);
        single.map(|p| p.sm).min().unwrap_or(0)
    }

    /// The profile of one compute slice with the memory of two, where its compute instance has a
    /// profile of its own (`NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1`).
    pub fn rev1(&self) -> Option<&GiProfile> {
        let mut all = self.profiles.iter();
        all.find(|p| p.full_ci == super::compute_instances::ONE_SLICE_REV1)
    }

    /// The id of a GPU instance there. On a floor-swept GPU the halves change places.
    pub fn gpu_instance_id(&self, at: Placement, floor_swept: bool) -> u32 {
        let base = self.gpu_instance_id_base.get(&at.size);
        let start = match floor_swept && at.size < self.memory_slices {
            true => (at.start + self.memory_slices / 2) % self.memory_slices,
            false => at.start,
        };
        base.unwrap_or(&0) + start / at.size
    }

    pub fn is_geforce(&self) -> bool {
        self.brand == Brand::Geforce
    }

    /// `NVML_BRAND_*`.
    pub fn brand_number(&self) -> u32 {
        match self.brand {
            Brand::Geforce => 5,
            Brand::NvidiaRtx => 13,
            Brand::Nvidia => 14,
        }
    }

    /// Device id in the upper half, vendor in the lower, as `nvmlPciInfo_t` has it.
    pub fn pci_device_id(&self) -> u32 {
        let digits = self.pci_device_id.trim_start_matches("0x");
        u32::from_str_radix(digits, 16).unwrap_or(0)
    }
}
