//! The value of a request for a share: amounts of memory, or fractions of what a GPU gives out.

use super::{GPU, SEPARATORS, near, slice};
use crate::error::{Error, Result, printable};
use std::fmt;

/// The least share, in MiB. A CUDA context alone takes half of it on a large GPU.
pub(crate) const LEAST_MIB: u64 = 1024;
/// The most parts of a GPU.
const MAX_PARTS: u64 = 64;

/// The size of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareSize {
    /// So much memory, in MiB.
    Memory(u64),
    /// So many parts of the memory that the GPU gives out.
    Fraction {
        /// The number of parts, at least 1.
        parts: u64,
        /// The number of parts of the whole, more than `parts`.
        of: u64,
    },
}

impl ShareSize {
    /// Returns the memory of the share on a GPU that gives out so much, and the memory that it books, in MiB.
    /// `overhead_mib` is the need of its level: it comes on top of an amount, and a fraction contains it. A
    /// fraction is cut, so that all parts of a GPU fit on it.
    pub(crate) fn on(self, gives_out_mib: u64, overhead_mib: u64) -> (u64, u64) {
        match self {
            ShareSize::Memory(mib) => (mib, mib.saturating_add(overhead_mib)),
            ShareSize::Fraction { parts, of } => {
                let booked = gives_out_mib.saturating_mul(parts) / of.max(1);
                (booked.saturating_sub(overhead_mib), booked)
            }
        }
    }
}

/// Formats a size as a request has it: `8Gi`, `5000Mi`, `1/4`.
impl fmt::Display for ShareSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShareSize::Memory(mib) if mib % 1024 == 0 => write!(f, "{}Gi", mib / 1024),
            ShareSize::Memory(mib) => write!(f, "{mib}Mi"),
            ShareSize::Fraction { parts, of } => write!(f, "{parts}/{of}"),
        }
    }
}

/// Returns the sizes of a request in order of preference.
///
/// # Errors
/// An entry that is no size, and a size that stands there twice.
pub(super) fn sizes(value: &str) -> Result<Vec<ShareSize>> {
    let all: Result<Vec<_>> = value.split(SEPARATORS).map(size).collect();
    slice::each_once(all?, "share")
}

fn size(entry: &str) -> Result<ShareSize> {
    let text = entry.trim();
    let wrong = |why: &str, hint: &str| {
        let quoted = printable(entry);
        Err(Error::new(format!("\"{quoted}\" {why}")).hint(hint))
    };
    const FORMS: &str = "write an amount (8Gi, 5000Mi) or a fraction of a GPU (1/4)";
    if let Some((parts, of)) = text.split_once('/') {
        let (Some(parts), Some(of)) = (number(parts), number(of)) else {
            return wrong("is not a fraction of a GPU", FORMS);
        };
        return match (parts, of) {
            (_, of) if !(2..=MAX_PARTS).contains(&of) && parts != of => {
                wrong("divides a GPU into no 2 to 64 parts", "write it as 1/4")
            }
            (0, _) => wrong("is nothing of a GPU", FORMS),
            (parts, of) if parts == of => wrong(
                "is a whole GPU",
                &format!("ask for a GPU of its own ({GPU}: 1), or for a smaller fraction"),
            ),
            (parts, of) if parts > of => {
                wrong("is more than a GPU", "ask for less than 1, such as 3/4")
            }
            (parts, of) => Ok(ShareSize::Fraction { parts, of }),
        };
    }
    if text.ends_with('%') || text.parse::<f64>().is_ok() && text.contains('.') {
        let hint = fraction(text).unwrap_or_else(|| "1/4".to_owned());
        return wrong(
            "is not a share of a GPU",
            &format!("write a fraction as {hint}"),
        );
    }
    if number(text).is_some() {
        let hint = format!("write the unit: {text}Gi or {text}Mi");
        return wrong("is an amount without a unit", &hint);
    }
    match slice::amount(text) {
        Ok(bytes) if bytes >> 20 < LEAST_MIB => wrong(
            "is less than 1Gi, and a CUDA context alone takes up to half of that",
            "ask for 1Gi or more",
        ),
        Ok(bytes) if !bytes.is_multiple_of(1 << 20) => {
            let hint = format!("ask for {}Mi", bytes >> 20);
            wrong("is not a whole number of MiB", &hint)
        }
        Ok(bytes) => Ok(ShareSize::Memory(bytes >> 20)),
        Err(_) => {
            let write = |right: String| format!("write {right}");
            let meant = || {
                let right = near::value(text)?;
                Some(match size(&right) {
                    Ok(_) => write(right),
                    Err(e) => e.advice().unwrap_or(FORMS).to_owned(),
                })
            };
            let hint = near::other_key(text).map(write).or_else(meant);
            wrong("is not a share of a GPU", hint.as_deref().unwrap_or(FORMS))
        }
    }
}

/// Returns a percentage or a decimal number below 1 as a fraction: `1/4` for `25%` and `0.25`.
fn fraction(text: &str) -> Option<String> {
    let number: f64 = text.trim_end_matches('%').trim().parse().ok()?;
    let part = if text.ends_with('%') {
        number / 100.0
    } else {
        number
    };
    let is_near = |of: &u64| ((part * *of as f64).fract() - 0.5).abs() > 0.4999;
    let of = (2..=MAX_PARTS).find(is_near)?;
    let parts = (part * of as f64).round() as u64;
    (1..of).contains(&parts).then(|| format!("{parts}/{of}"))
}

/// Returns the number that a text of digits alone is.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_amounts_and_fractions() {
        let read = |text: &str| sizes(text).unwrap();
        let quarter = ShareSize::Fraction { parts: 1, of: 4 };
        assert_eq!(read("8Gi"), [ShareSize::Memory(8192)]);
        assert_eq!(read(" 5000Mi "), [ShareSize::Memory(5000)]);
        for text in ["16Gi, 1/4", "16Gi|1/4", " 16Gi | 1/4 "] {
            assert_eq!(read(text), [ShareSize::Memory(16384), quarter], "{text}");
        }
        assert_eq!(
            slice::written(&read("1024Mi,5000Mi,63/64")),
            "1Gi,5000Mi,63/64"
        );
    }

    #[test]
    fn names_way_to_write_it() {
        for (text, line) in rows! {
            "1023Mi" =>
                "\"1023Mi\" is less than 1Gi, and a CUDA context alone takes up to half of that; hint: ask for 1Gi or \
                 more";
            "8" => "\"8\" is an amount without a unit; hint: write the unit: 8Gi or 8Mi";
            "1/1" =>
                "\"1/1\" is a whole GPU; hint: ask for a GPU of its own (runmig.dev/gpu: 1), or for a smaller fraction";
            "5/4" => "\"5/4\" is more than a GPU; hint: ask for less than 1, such as 3/4";
            "1/0" => "\"1/0\" divides a GPU into no 2 to 64 parts; hint: write it as 1/4";
            "1/65" => "\"1/65\" divides a GPU into no 2 to 64 parts; hint: write it as 1/4";
            "0/4" => "\"0/4\" is nothing of a GPU; hint: write an amount (8Gi, 5000Mi) or a fraction of a GPU (1/4)";
            "0.25" => "\"0.25\" is not a share of a GPU; hint: write a fraction as 1/4";
            "25%" => "\"25%\" is not a share of a GPU; hint: write a fraction as 1/4";
            "1g.10gb" => "\"1g.10gb\" is not a share of a GPU; hint: write runmig.dev/slice: 1g.10gb";
            "8G" => "\"8G\" is not a whole number of MiB; hint: ask for 7629Mi";
            "" => "\"\" is not a share of a GPU; hint: write an amount (8Gi, 5000Mi) or a fraction of a GPU (1/4)";
            "-8Gi" =>
                "\"-8Gi\" is not a share of a GPU; hint: write an amount (8Gi, 5000Mi) or a fraction of a GPU (1/4)";
            "1/+4" =>
                "\"1/+4\" is not a fraction of a GPU; hint: write an amount (8Gi, 5000Mi) or a fraction of a GPU (1/4)";
            "8Gi,8192Mi" =>
                "8Gi stands there twice, and a list names alternatives to one share; hint: ask for one larger share, \
                 or run a container for each";
        } {
            assert_eq!(sizes(text).unwrap_err().line(), line, "{text}");
        }
    }

    #[test]
    fn overhead_fits_beside_every_part() {
        assert_eq!(ShareSize::Memory(8192).on(22_574, 128), (8192, 8320));
        for gives_out in [14_910, 22_574, 81_079, 143_156] {
            for of in 2..=MAX_PARTS {
                let (memory, booked) = ShareSize::Fraction { parts: 1, of }.on(gives_out, 128);
                assert!(booked * of <= gives_out);
                assert_eq!(memory + 128, booked);
            }
        }
    }
}
