//! Why a GPU gives nothing new: the driver's signs that it is sick, or an administrator's cordon. Values and their words.

use super::{Gpu, Timestamp};
use serde::{Deserialize, Serialize};

/// A kind of sign that a GPU is sick: it may answer the driver well, and fail every CUDA program. The gravest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignKind {
    /// The GPU fell off the bus, or answers nothing before a reset: the amount is NVML's code.
    Lost,
    /// A row of its memory could not be remapped.
    RowRemapFailed,
    /// The driver asks for an action: the amount is NVML's `nvmlDeviceGpuRecoveryAction_t`.
    RecoveryAction,
    /// Rows of its memory wait for a reset, which remaps them.
    RowRemapPending,
    /// Pages of its memory wait for a reset, which retires them. GPUs before Ampere have these in place of rows.
    PageRetirementPending,
    /// Uncorrectable memory errors since the driver was loaded; the amount is their number.
    UncorrectableErrors,
    /// The GPU has a fabric (NVSwitch), which is not up.
    FabricDown,
}

/// A sign that a GPU is sick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sign {
    /// The kind.
    pub kind: SignKind,
    /// The driver's number, never 0.
    pub amount: u64,
}

impl Sign {
    fn why(&self) -> String {
        let why = match (self.kind, self.amount) {
            (SignKind::Lost, 16) => "it needs a reset (NVML 16)",
            (SignKind::Lost, _) => "it fell off the bus (NVML 15)",
            (SignKind::RowRemapFailed, _) => "a row of its memory could not be remapped",
            (SignKind::RecoveryAction, 2) => "the driver asks for a reboot",
            (SignKind::RecoveryAction, _) => "the driver asks for its reset",
            (SignKind::RowRemapPending, _) => "rows of its memory wait for a reset to be remapped",
            (SignKind::PageRetirementPending, _) => "pages of its memory wait to be retired",
            (SignKind::UncorrectableErrors, n) => {
                return format!("uncorrectable memory errors: {n}");
            }
            (SignKind::FabricDown, _) => "its NVLink fabric is not up",
        };
        why.to_owned()
    }

    fn remedy(&self, gpu: u32) -> String {
        match (self.kind, self.amount) {
            (SignKind::RowRemapFailed, _) => format!("replace GPU {gpu}"),
            (SignKind::RecoveryAction, 2) => "reboot the machine".to_owned(),
            (SignKind::FabricDown, _) => "run systemctl status nvidia-fabricmanager".to_owned(),
            _ => format!(
                "run migctl drain {gpu} --wait; nvidia-smi -i {gpu} --gpu-reset; migctl uncordon {gpu}"
            ),
        }
    }
}

/// An administrator's cordon of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cordon {
    /// When the GPU was cordoned.
    pub since: Timestamp,
    /// The administrator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Says whether what is on the GPU is to end, too.
    #[serde(default)]
    pub drains: bool,
}

/// Why a GPU gives nothing new. What is on it stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The signs that it is sick.
    pub signs: Vec<Sign>,
    /// Its cordon.
    pub cordon: Option<Cordon>,
    /// Why nobody knows whether it is cordoned.
    pub unread: Option<String>,
    /// Why a create left it out: another process kept it locked.
    pub locked: Option<String>,
}

/// A closed GPU in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shut {
    /// All reasons.
    pub why: String,
    /// The administrator's next step.
    pub remedy: String,
}

impl Closed {
    /// Returns the administrator's next step.
    pub(crate) fn remedy(&self, gpu: u32) -> String {
        match (self.signs.first(), &self.unread, &self.cordon) {
            (Some(sign), ..) => sign.remedy(gpu),
            (None, Some(_), _) => {
                "make the file and its folder writable by root alone, or mend the file".to_owned()
            }
            (None, None, None) if self.locked.is_some() => {
                "let it end, or set a longer lock_timeout".to_owned()
            }
            (None, None, _) => format!("run migctl uncordon {gpu}"),
        }
    }

    /// Returns why the GPU is sick, if it is.
    pub fn sickness(&self) -> Option<String> {
        let words: Vec<String> = self.signs.iter().map(Sign::why).collect();
        (!words.is_empty()).then(|| format!("sick: {}", words.join(", ")))
    }

    /// Returns the words of the reasons for programs: the kinds of signs as JSON has them.
    pub fn reasons(&self) -> Vec<String> {
        let word = |sign: &Sign| Some(serde_json::to_value(sign.kind).ok()?.as_str()?.to_owned());
        let is_cordoned = self.cordon.is_some() || self.unread.is_some();
        let cordoned = is_cordoned.then(|| "cordoned".to_owned());
        let signs = self.signs.iter().filter_map(word);
        signs.chain(cordoned).collect()
    }
}

impl Gpu {
    /// Returns why the GPU gives nothing new, if it does not. Of several reasons a cordon is the last to go.
    pub fn shut(&self) -> Option<Shut> {
        let closed = self.closed.as_ref()?;
        let cordon = closed.cordon.as_ref().map(|cordon| {
            let what = if cordon.drains { "drained" } else { "cordoned" };
            let reason = cordon.reason.as_ref().map(|why| format!(" ({why})"));
            let reason = reason.unwrap_or_default();
            format!("{what} since {}{reason}", cordon.since)
        });
        let (unread, locked) = (closed.unread.clone(), closed.locked.clone());
        let why = [closed.sickness(), cordon, unread, locked];
        Some(Shut {
            why: why.into_iter().flatten().collect::<Vec<_>>().join("; "),
            remedy: closed.remedy(self.index),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gravest_reason_has_the_remedy() {
        let drain = "run migctl drain 3 --wait; nvidia-smi -i 3 --gpu-reset; migctl uncordon 3";
        for (kind, amount, why, remedy) in rows! {
            SignKind::Lost, 16, "it needs a reset (NVML 16)" => drain;
            SignKind::Lost, 15, "it fell off the bus (NVML 15)" => drain;
            SignKind::RowRemapFailed, 1, "a row of its memory could not be remapped" => "replace GPU 3";
            SignKind::RecoveryAction, 2, "the driver asks for a reboot" => "reboot the machine";
            SignKind::RecoveryAction, 1, "the driver asks for its reset" => drain;
            SignKind::RowRemapPending, 1, "rows of its memory wait for a reset to be remapped" => drain;
            SignKind::PageRetirementPending, 1, "pages of its memory wait to be retired" => drain;
            SignKind::UncorrectableErrors, 5, "uncorrectable memory errors: 5" => drain;
            SignKind::FabricDown, 1, "its NVLink fabric is not up" => "run systemctl status nvidia-fabricmanager";
        } {
            let gpu = closed(Closed {
                signs: vec![Sign { kind, amount }],
                ..all()
            });
            let shut = gpu.shut().unwrap();
            let words = format!("sick: {why}; drained since 2026 (a repair); unread; locked");
            assert_eq!((shut.why, shut.remedy.as_str()), (words, remedy));
        }
        let remedy = |closed| self::closed(closed).shut().unwrap().remedy;
        let unread = Closed {
            unread: all().unread,
            ..Closed::default()
        };
        assert!(
            remedy(unread.clone()).starts_with("make the file and its folder writable by root")
        );
        assert_eq!(unread.reasons(), ["cordoned"]);
        let locked = Closed {
            locked: all().locked,
            ..Closed::default()
        };
        assert_eq!(locked.reasons(), Vec::<String>::new());
        assert_eq!(remedy(locked), "let it end, or set a longer lock_timeout");
        let cordon = Closed {
            unread: None,
            ..all()
        };
        assert_eq!(remedy(cordon), "run migctl uncordon 3");
        assert_eq!(all().sickness(), None);
    }

    fn all() -> Closed {
        Closed {
            signs: Vec::new(),
            cordon: Some(Cordon {
                since: "2026".into(),
                reason: Some("a repair".to_owned()),
                drains: true,
            }),
            unread: Some("unread".to_owned()),
            locked: Some("locked".to_owned()),
        }
    }

    fn closed(closed: Closed) -> Gpu {
        Gpu {
            index: 3,
            closed: Some(closed),
            ..Gpu::default()
        }
    }
}
