//! Names of GPU instance profiles, parsed once.

use std::fmt;
use std::str::FromStr;

/// Name of a GPU instance profile: `1g.10gb`, `1g.24gb+me.all`. Two names are equal if they say the
/// same, so `01g.10gb` is `1g.10gb`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProfileName {
    /// Compute slices of the GPU, the number before `g`.
    pub gpu_slices: u32,
    /// Memory as the name counts it. The slice has a little less.
    pub gigabytes: u32,
    /// Each with its sign, as in `+me`, `-me`, `+me.all`, `+gfx`; empty for a plain profile.
    attributes: String,
}

impl FromStr for ProfileName {
    type Err = ();

    /// Parses a name without NVML's prefix `MIG `. A compute instance's (`1c.2g.20gb`) is none.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (gpu_slices, gigabytes, attributes) = parts(text).ok_or(())?;
        Ok(ProfileName {
            gpu_slices,
            gigabytes,
            attributes: attributes.to_owned(),
        })
    }
}

/// Compares with a driver's name for a profile, which may have another form.
impl PartialEq<ProfileName> for str {
    fn eq(&self, name: &ProfileName) -> bool {
        parts(self) == Some((name.gpu_slices, name.gigabytes, &name.attributes))
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProfileName {
            gpu_slices,
            gigabytes,
            attributes,
        } = self;
        write!(f, "{gpu_slices}g.{gigabytes}gb{attributes}")
    }
}

/// `<n>g.<n>gb`, then attributes.
fn parts(text: &str) -> Option<(u32, u32, &str)> {
    let (gpu_slices, rest) = text.split_once("g.")?;
    let (gigabytes, attributes) = rest.split_once("gb")?;
    are_attributes(attributes).then_some((number(gpu_slices)?, number(gigabytes)?, attributes))
}

/// Digits alone: `parse` takes a sign as well.
fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Nothing, or words of small letters, each behind a sign. A point may stand in a word.
fn are_attributes(text: &str) -> bool {
    let Some(first) = text.strip_prefix(['+', '-']) else {
        return text.is_empty();
    };
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'.')
    };
    first.split(['+', '-']).all(is_word)
}

/// The names in NVIDIA's documents and in transcripts, of every GPU with MIG.
const NAMES: &str = include_str!("mig-profiles.txt");

/// Returns the profiles of every GPU with MIG.
pub fn known_profiles() -> Vec<ProfileName> {
    let lines = NAMES.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_known_name() {
        let mut seen = 0;
        for line in NAMES.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [text, gpu_slices, gigabytes, attributes] = fields[..] else {
                panic!("{line}");
            };
            let name: ProfileName = text.parse().unwrap();
            assert_eq!(name.gpu_slices.to_string(), gpu_slices, "{text}");
            assert_eq!(name.gigabytes.to_string(), gigabytes, "{text}");
            assert_eq!(name.attributes, attributes.trim_matches('.'), "{text}");
            assert_eq!(name.to_string(), text);
            assert!(*text == name);
            seen += 1;
        }
        assert!(seen > 50, "{seen}");
        assert_eq!(known_profiles().len(), seen);
    }

    #[test]
    fn refuses_other_texts() {
        const OTHERS: &str = " g.10gb 1g.10 1g.gb 1g.10gb+ 1g.10gb+me+ 1g.10gbme 1g.10gb+.me 1g.10gb.me 1c.2g.20gb \
            +1g.10gb 1g.+10gb 1g.10gb+ME 4294967296g.10gb all none 20Gi";
        for text in { OTHERS.split(' ') }.chain([" 1g.10gb", "MIG 1g.10gb", "1g.10gb "]) {
            assert!(text.parse::<ProfileName>().is_err(), "{text}");
        }
    }

    #[test]
    fn compares_with_driver_names() {
        let name: ProfileName = "01g.10gb+me".parse().unwrap();
        assert!(*"1g.10gb+me" == name);
        for other in ["1g.10gb", "1g.10gb-me", "2g.10gb+me", "1g.20gb+me", "19"] {
            assert!(*other != name, "{other}");
        }
    }
}
