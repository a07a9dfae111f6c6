//! The value of a request: a profile, an amount of memory, several of these together, or a list of alternatives.

use super::{SEPARATORS, near, share};
use crate::error::{Error, Result, printable};
use crate::model::ProfileName;
use std::cmp::Reverse;
use std::fmt;

/// The requested kind of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slice {
    /// A profile by name, such as `1g.10gb`.
    Profile(ProfileName),
    /// The smallest profile with at least so many bytes of memory.
    Memory(u64),
}

impl Slice {
    /// A profile by name that has fewer compute slices than that.
    pub(crate) fn has_fewer_than(&self, least: u32) -> Option<&ProfileName> {
        match self {
            Slice::Profile(name) if name.gpu_slices < least => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slice::Profile(name) => name.fmt(f),
            Slice::Memory(bytes) => {
                let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
                match units.iter().find(|(bits, _)| bytes % (1 << bits) == 0) {
                    Some((bits, unit)) => write!(f, "{}{unit}", bytes >> bits),
                    None => write!(f, "{bytes}"),
                }
            }
        }
    }
}

/// The slices of one container, all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The largest slice.
    pub slice: Slice,
    /// The other slices, the larger ones first.
    pub others: Vec<Slice>,
}

impl Alternative {
    /// One slice.
    pub fn one(slice: Slice) -> Alternative {
        let others = Vec::new();
        Alternative { slice, others }
    }

    /// Returns each slice, the largest first.
    pub fn all(&self) -> impl Iterator<Item = &Slice> {
        std::iter::once(&self.slice).chain(&self.others)
    }

    /// Returns the number of slices, at least 1.
    pub fn count(&self) -> u32 {
        1 + self.others.len() as u32
    }

    /// Says whether not all slices are alike.
    pub fn is_mixed(&self) -> bool {
        self.others.iter().any(|other| *other != self.slice)
    }
}

/// More than the GPUs of one machine hold; a configuration allows fewer (`policy.slices_per_container`).
pub(crate) const MAX_COUNT: u32 = 64;

/// Separates the different slices of one container.
pub(super) const AND: char = '&';

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<&Slice> = self.all().collect();
        for (n, alike) in all.chunk_by(|a, b| a == b).enumerate() {
            let and = if n > 0 { "&" } else { "" };
            match alike.len() {
                1 => write!(f, "{and}{}", alike[0])?,
                count => write!(f, "{and}{}*{count}", alike[0])?,
            }
        }
        Ok(())
    }
}

/// Returns the alternatives that an annotation asks for, in the order of preference.
pub fn alternatives(value: &str) -> Result<Vec<Alternative>> {
    let all: Result<Vec<_>> = value.split(SEPARATORS).map(several).collect();
    each_once(all?, "slice")
}

/// Returns alternatives as an annotation has them.
pub fn written(alternatives: &[impl ToString]) -> String {
    let all: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
    all.join(",")
}

/// Refuses a list in which one alternative stands twice. Its author may mean two slices, or two shares.
pub(super) fn each_once<T: PartialEq + fmt::Display>(all: Vec<T>, noun: &str) -> Result<Vec<T>> {
    let Some(twice) = (1..all.len()).find(|n| all[..*n].contains(&all[*n])) else {
        return Ok(all);
    };
    let twice = &all[twice];
    let why = format!("{twice} stands there twice, and a list names alternatives to one {noun}");
    let hint = format!("ask for one larger {noun}, or run a container for each");
    Err(Error::new(why).hint(hint))
}

/// An amount of memory that is no request, for a configuration.
pub fn memory(value: &str) -> Result<u64> {
    match one(value)? {
        Slice::Memory(bytes) => Ok(bytes),
        Slice::Profile(name) => Err(Error::new(format!("{name} is not an amount of memory"))),
    }
}

fn several(value: &str) -> Result<Alternative> {
    let mut all = Vec::new();
    for part in value.split(AND) {
        let (part, count) = part.split_once('*').unwrap_or((part, "1"));
        let slice = one(part)?;
        let left = MAX_COUNT as usize - all.len();
        let count = count.trim().parse().ok();
        let Some(count) = count.filter(|n| (1..=left).contains(n)) else {
            let value = printable(value);
            let why = format!("\"{value}\" asks for no number of slices from 1 to {MAX_COUNT}");
            return Err(Error::new(why).hint("write it behind the slice: 1g.10gb*2"));
        };
        all.extend(std::iter::repeat_n(slice, count));
    }
    let size = |slice: &Slice| match slice {
        Slice::Profile(name) => u64::from(name.gigabytes) << 30,
        Slice::Memory(bytes) => *bytes,
    };
    all.sort_by_cached_key(|slice| Reverse((size(slice), slice.to_string())));
    let slice = all.remove(0);
    Ok(Alternative { slice, others: all })
}

fn one(value: &str) -> Result<Slice> {
    let text = value.trim();
    let wrong = |why: &str| {
        const FORMS: &str =
            "ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none";
        let hint = match (near::value(text), near::other_key(text)) {
            (Some(right), _) => format!("write {right}"),
            (None, Some(key)) => format!("write {key}"),
            (None, None) => FORMS.to_owned(),
        };
        Error::new(format!("\"{}\" {why}", printable(value))).hint(hint)
    };
    if text == "none" {
        return Err(wrong("cannot be an alternative to a slice"));
    }
    if text.is_empty() {
        return Err(wrong("asks for nothing"));
    }
    if let Ok(name) = text.parse() {
        return Ok(Slice::Profile(name));
    }
    match amount(text).map_err(wrong)? {
        0 => Err(wrong("asks for no memory")),
        bytes => Ok(Slice::Memory(bytes)),
    }
}

/// Returns the bytes of an amount of memory, or why it is none.
pub(super) fn amount(text: &str) -> Result<u64, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let size: u64 = match unit {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "" if digits > 0 => return Err("has no unit"),
        _ => return Err("is neither a profile nor an amount of memory"),
    };
    if digits == 0 {
        return Err("is neither a profile nor an amount of memory");
    }
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(size));
    bytes.ok_or("is more memory than can be counted")
}

/// Returns the number of GPUs that an annotation asks for.
pub(super) fn count(value: &str) -> Result<u32> {
    let number = share::number(value).and_then(|n| u32::try_from(n).ok());
    if let Some(number) = number.filter(|n| (1..=MAX_COUNT).contains(n)) {
        return Ok(number);
    }
    let why = format!(
        "\"{}\" is not a number of GPUs from 1 to {MAX_COUNT}",
        printable(value)
    );
    Err(Error::new(why).hint(match near::other_key(value.trim()) {
        Some(key) => format!("write {key}"),
        None => "ask for whole GPUs by their number (1), or for none".to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str) -> Slice {
        Slice::Profile(name.parse().unwrap())
    }

    fn counted(value: &str) -> Vec<(Slice, u32)> {
        let all = alternatives(value).unwrap();
        assert_eq!(alternatives(&written(&all)).unwrap(), all);
        assert!(all.iter().all(|a| !a.is_mixed()));
        { all.iter() }
            .map(|a| (a.slice.clone(), a.count()))
            .collect()
    }

    fn asked(value: &str) -> Vec<Slice> {
        let alone = |(slice, count)| (count == 1).then_some(slice);
        let all: Option<_> = counted(value).into_iter().map(alone).collect();
        all.unwrap()
    }

    fn line(value: &str) -> String {
        alternatives(value).unwrap_err().line()
    }

    #[test]
    fn profiles_and_amounts() {
        for name in "1g.10gb 1g.10gb+me 1g.24gb-me 1g.24gb+me.all 4g.96gb+gfx".split(' ') {
            assert_eq!(asked(name), [profile(name)]);
        }
        assert_eq!(asked("20Gi"), [Slice::Memory(20 << 30)]);
        let several = [
            profile("3g.40gb"),
            Slice::Memory(20 << 30),
            profile("1g.10gb"),
        ];
        for text in [
            "3g.40gb, 20Gi,1g.10gb",
            "3g.40gb|20Gi|1g.10gb",
            "3g.40gb,20Gi | 1g.10gb",
            " 3g.40gb | 20Gi,1g.10gb",
        ] {
            assert_eq!(asked(text), several, "{text}");
        }
        assert_eq!(asked(" 5000Mi "), [Slice::Memory(5000 << 20)]);
        assert_eq!(asked("1g.10gb\n"), asked("1g.10gb"));
    }

    #[test]
    fn refuses_bad_lists() {
        assert_eq!(
            line("1g.10gb,,2g.20gb"),
            "\"\" asks for nothing; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, \
             5000Mi) or none"
        );
        assert!(line("20Gi,1g.10gb,20480Mi").starts_with("20Gi stands there twice"));
        assert!(line("1g.10gb,none").contains("\"none\" cannot be an alternative to a slice"));
    }

    #[test]
    fn parses_several_of_one() {
        let small = || profile("1g.10gb");
        assert_eq!(counted("1g.10gb*2"), [(small(), 2)]);
        assert_eq!(
            counted(" 1g.10gb * 2 ,20Gi*3,1g.10gb"),
            [(small(), 2), (Slice::Memory(20 << 30), 3), (small(), 1)]
        );
        assert_eq!(counted("1g.10gb*1"), [(small(), 1)]);
        for bad in "*0 *65 * *x *-1 *2*2 *99999999999999999999".split(' ') {
            let line = line(&format!("1g.10gb{bad}"));
            assert!(
                line.contains("asks for no number of slices from 1 to 64"),
                "{line}"
            );
        }
        assert!(line("none*2").contains("\"none\" cannot be an alternative to a slice"));
        assert!(line("*2").contains("asks for nothing"));
        assert!(line("1g.10gb*2,1g.10gb*2").starts_with("1g.10gb*2 stands there twice"));
        assert!(line("1g.10gb*1,1g.10gb").starts_with("1g.10gb stands there twice"));
    }

    #[test]
    fn parses_different_slices_together() {
        for (value, same, count) in [
            ("1g.10gb&2g.20gb", "2g.20gb&1g.10gb", 2),
            (" 1g.10gb * 2 & 3g.40gb&1g.10gb ", "3g.40gb&1g.10gb*3", 4),
            ("1g.10gb&1g.10gb", "1g.10gb*2", 2),
            ("1g.10gb&1g.10gb+me&1g.10gb", "1g.10gb+me&1g.10gb*2", 3),
            ("10Gi&1g.20gb&5Gi,7g.80gb", "1g.20gb&10Gi&5Gi,7g.80gb", 3),
        ] {
            let all = alternatives(value).unwrap();
            assert_eq!(written(&all), same);
            assert_eq!(alternatives(same).unwrap(), all);
            assert_eq!(all[0].count(), count);
            assert_eq!(all[0].is_mixed(), same.contains('&'));
        }
        assert!(line("1g.10gb&").contains("\"\" asks for nothing"));
        assert!(line("1g.10gb&none").contains("\"none\" cannot be an alternative"));
        assert!(line("1g.10gb*40&2g.20gb*25").contains("no number of slices from 1 to 64"));
        assert!(line("1g.10gb&2g.20gb|2g.20gb&1g.10gb").contains("stands there twice"));
    }

    #[test]
    fn refuses_bad_amounts() {
        for bad in " 0Gi -1 20 1.5Gi g.10gb 1g.10 1g.10gb+ all Gi 1g.10gb, 18446744073709551615Gi"
            .split(' ')
        {
            assert!(alternatives(bad).is_err(), "{bad}");
        }
        assert_eq!(
            line("0Gi"),
            "\"0Gi\" asks for no memory; hint: ask for a profile (1g.10gb), an amount of memory \
             (20Gi, 5000Mi) or none"
        );
        assert!(line("all").starts_with("\"all\" is neither a profile nor an amount of memory; "));
        assert!(line("99999999999999999999Gi").contains(" is more memory than can be counted; "));
    }

    proptest::proptest! {
        #[test]
        fn prints_requests_as_parsed(bytes in 1u64..u64::MAX) {
            let printed = Slice::Memory(bytes).to_string();
            if printed.ends_with('i') {
                proptest::prop_assert_eq!(asked(&printed), [Slice::Memory(bytes)]);
            }
        }
    }
}
