//! Near misses: the key or the value that its author meant.
//!
//! A key comes near if its domain is `runmig.dev` with one wrong, missing, extra or swapped letter, or `runmig` with
//! another ending, and the rest is a word of runmig, also with one wrong letter; or if it differs from a key of runmig
//! in one letter. So `runmg.dev/slice`, `runmig.io/gpu` and `slice-runmig.dev/web` come near, and `rundig.dev/owner` is
//! somebody else's.

use super::{DOMAIN, KEYS, KINDS, SHARE, SLICE, slice};
use crate::model::ProfileName;
use strsim::osa_distance;

/// No word of runmig is longer. A comparison takes the product of both lengths.
const LONGEST: usize = 64;

/// Says whether a key that is not below our domain is meant to be.
pub(super) fn is_near(key: &str) -> bool {
    let (host, name) = parts(key);
    let (label, domain) = labels(&host);
    let text = label.unwrap_or(&name);
    (is_domain(domain) && names().any(|word| is_one_off(text, word)))
        || one_letter_off(key).is_some()
}

/// Returns the key of runmig that differs in one letter, as for `slice-runmig.dev/web` and `runmig.devgpu`.
fn one_letter_off(key: &str) -> Option<String> {
    let whole = key.to_ascii_lowercase();
    if let Some(our) = KEYS.iter().find(|our| is_one_off(&whole, our)) {
        return Some((*our).to_owned());
    }
    let (host, container) = key.split_once('/')?;
    let host = format!("{}/", host.to_ascii_lowercase());
    let kind = { KINDS.iter() }.find(|kind| is_one_off(&host, kind.prefix()))?;
    Some(format!("{}{container}", kind.prefix()))
}

/// Returns the keys that the author of an unknown key may mean.
pub(super) fn meant(key: &str) -> Vec<String> {
    if let Some(right) = one_letter_off(key) {
        return vec![right];
    }
    let (host, name) = parts(key);
    let container = key.split_once('/').map_or("", |(_, name)| name);
    let kinds = KINDS.map(|kind| kind.key().trim_start_matches(DOMAIN));
    let label = labels(&host).0;
    let kind = label.and_then(|label| nearest(label, kinds));
    match (kind, nearest(&name, names())) {
        (Some(kind), _) if !container.is_empty() => vec![format!("{kind}.{DOMAIN}{container}")],
        (Some(word), _) | (None, Some(word)) => vec![format!("{DOMAIN}{word}")],
        (None, None) if label.is_some() && !container.is_empty() => KINDS
            .map(|kind| format!("{}{container}", kind.prefix()))
            .into(),
        (None, None) => Vec::new(),
    }
}

/// Returns the words behind our domain.
fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| key.strip_prefix(DOMAIN))
}

/// Returns the part of a key before its slash and the part behind it, in small letters. Without a slash the last
/// separator counts.
fn parts(key: &str) -> (String, String) {
    let key: String = key.trim().chars().take(4 * LONGEST).collect();
    let key = key.to_ascii_lowercase();
    let at_domain = || {
        key.ends_with(DOMAIN.trim_end_matches('/'))
            .then_some((&*key, ""))
    };
    let parts = key.split_once('/').or_else(at_domain);
    let (host, name) = parts
        .or_else(|| key.rsplit_once(['.', '-', '_', ':']))
        .unwrap_or((&*key, ""));
    (host.to_owned(), name.to_owned())
}

/// Returns the label of a host before its domain, as `slice` in `slice.runmig.dev`, and the domain.
fn labels(host: &str) -> (Option<&str>, &str) {
    let with_label = host.split_once('.').filter(|(_, rest)| is_domain(rest));
    with_label.map_or((None, host), |(label, domain)| (Some(label), domain))
}

fn is_domain(text: &str) -> bool {
    text.split('.').next() == Some("runmig") || is_one_off(text, DOMAIN.trim_end_matches('/'))
}

pub fn is_one_off(text: &str, word: &str) -> bool {
    text.len() <= LONGEST && osa_distance(text, word) <= 1
}

/// Returns the word that somebody most likely meant: at most a third of the letters differ.
pub(crate) fn nearest<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = (text.len() <= LONGEST).then(|| text.to_lowercase())?;
    let distance = |word: &'a str| (osa_distance(&text, word), word);
    let (distance, word) = words.into_iter().map(distance).min()?;
    (distance <= (word.len() / 3).max(1)).then_some(word)
}

/// Returns how to write a value that is nearly a profile or an amount of memory: `20Gi` for `20GiB`, `1g.10gb` for
/// `mig-1g.10gb`.
pub(super) fn value(text: &str) -> Option<String> {
    let plain = |c: &char| !c.is_whitespace() && !['"', '\''].contains(c);
    let text: String = text.chars().filter(plain).collect();
    let text = text.to_ascii_lowercase();
    // The resources of NVIDIA's device plugin: nvidia.com/mig-1g.10gb.
    let text = text.strip_prefix("nvidia.com/").unwrap_or(&text);
    let after_mig = text.strip_prefix("mig");
    let text = after_mig.map_or(text, |rest| rest.trim_start_matches(['-', ':', '_']));
    profile(text).or_else(|| amount(text))
}

/// Returns the right key beside its value, for a value that another key takes.
pub(super) fn other_key(text: &str) -> Option<String> {
    let is_number = |text: &str| super::share::number(text).is_some();
    let parts = text.split_once('/');
    let is_fraction = parts.is_some_and(|(parts, of)| is_number(parts) && is_number(of));
    match value(text) {
        _ if is_fraction => Some(format!("{SHARE}: {}", text.trim())),
        Some(profile) if profile.contains("g.") => Some(format!("{SLICE}: {profile}")),
        _ => None,
    }
}

fn profile(text: &str) -> Option<String> {
    let (compute, rest) = text.split_once('g')?;
    let rest = rest.trim_start_matches(['.', '-', '_']);
    let (gigabytes, rest) = rest.split_at(digits(rest));
    let mut units = ["gib", "gb", "gi", "g", ""].iter();
    let attributes = units.find_map(|unit| rest.strip_prefix(unit))?;
    // The device plugin writes +me as .me.
    let attributes = match attributes.strip_prefix('.') {
        Some(attribute) => format!("+{attribute}"),
        None => attributes.to_owned(),
    };
    let name = format!("{compute}g.{gigabytes}gb{attributes}");
    Some(name.parse::<ProfileName>().ok()?.to_string())
}

fn amount(text: &str) -> Option<String> {
    const UNITS: [&str; 4] = ["k", "m", "g", "t"];
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    let (letter, binary) = match unit {
        "" => ("g", "i"),
        _ => (unit.get(..1)?, if unit.contains('i') { "i" } else { "" }),
    };
    if !["", "i", "b", "ib"].contains(&unit.get(1..).unwrap_or_default()) {
        return None;
    }
    let mut at = UNITS.iter().position(|known| *known == letter)?;
    let mut number: f64 = number.parse().ok()?;
    if number.fract() != 0.0 {
        number *= if binary.is_empty() { 1000.0 } else { 1024.0 };
        at = at.checked_sub(1)?;
    }
    let letter = match UNITS[at] {
        "k" if binary.is_empty() => "k".to_owned(),
        letter => letter.to_uppercase(),
    };
    let written = format!("{number}{letter}{binary}");
    matches!(slice::amount(&written), Ok(1..)).then_some(written)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_near_keys_from_foreign_ones() {
        const NEAR: &str = "runmg.dev/slice rnumig.dev/share runmigg.dev/gpu runmig.de/slice runmig.dev./slice \
            runmig.io/slice runmig/slice runmig/slcie runmig-slice runmig.slice runmig_gpu slice.runmig/web \
            slice.runmg.dev/web slices.runmg.dev/web slice.runmig.de/web Runmg.dev/Slice RUNMIG.DEV/SLICE \
            slice.RUNMIG.DEV/web slice-runmig.dev/web runmi.gdev/slice sharerunmig.dev/web runmig.devgpu \
            runmig.dev\\slice";
        for near in NEAR.split(' ') {
            assert!(is_near(near), "{near}");
            assert!(!meant(near).is_empty(), "{near}");
        }
        const FOREIGN: &str = " / slice gpu rundig.dev/owner runmig.io/owner example.com/runmig \
            runmig.example.com/owner com.example.runmig runc.dev/slice running.dev/slice ruming.dev/slice \
            nvidia.com/gpu io.kubernetes.cri.container-name www.runmg.dev/notes";
        let long = format!("{}/slice", "runmig.dev".repeat(1 << 20));
        for foreign in FOREIGN.split(' ').chain([&*long]) {
            assert!(!is_near(foreign), "{}", &foreign[..foreign.len().min(80)]);
        }
    }

    #[test]
    fn names_meant_keys() {
        for (key, right) in rows! {
            "runmig.dev/slices" => &["runmig.dev/slice"][..];
            "runmig.dev/slcie" => &["runmig.dev/slice"];
            "Runmig.dev/GPU" => &["runmig.dev/gpu"];
            "runmig/slice" => &["runmig.dev/slice"];
            "runmig-share" => &["runmig.dev/share"];
            "slices.runmig.dev/web" => &["slice.runmig.dev/web"];
            "shares.runmig.dev/Web-1" => &["share.runmig.dev/Web-1"];
            "gpu.runmg.dev/web" => &["gpu.runmig.dev/web"];
            "slice.runmig.dev" => &["runmig.dev/slice"];
            "www.runmig.dev/slice" => &["runmig.dev/slice"];
            "x.runmig.dev/web" => &["slice.runmig.dev/web", "share.runmig.dev/web", "gpu.runmig.dev/web"];
            "runmig.dev/memory" => &[];
            "runmig.dev/" => &[];
            "runmig.dev" => &[];
        } {
            assert_eq!(meant(key), right, "{key}");
        }
    }

    #[test]
    fn names_meant_values() {
        for (text, right) in [
            ("20GiB", "20Gi"),
            ("20 gib", "20Gi"),
            ("20gi", "20Gi"),
            ("20GB", "20G"),
            ("5000mib", "5000Mi"),
            ("500KB", "500k"),
            ("20", "20Gi"),
            ("1.5Gi", "1536Mi"),
            ("1.5GB", "1500M"),
            ("mig-1g.10gb", "1g.10gb"),
            ("MIG 1g.10gb", "1g.10gb"),
            ("1G.10GB", "1g.10gb"),
            ("1g10gb", "1g.10gb"),
            ("1g.10g", "1g.10gb"),
            ("2g.20GiB", "2g.20gb"),
            ("nvidia.com/mig-3g.40gb", "3g.40gb"),
            ("mig-1g.10gb.me", "1g.10gb+me"),
            ("\"1g.10gb\"", "1g.10gb"),
        ] {
            assert_eq!(value(text).as_deref(), Some(right), "{text}");
            assert!(crate::request::alternatives(right).is_ok(), "{right}");
        }
        for text in [
            "", "all", "Gi", "-1", "0Gi", "0.3Ki", "1/4", "g.10gb", "1e9Gi", "large", "..Gi",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(other_key("1/4").as_deref(), Some("runmig.dev/share: 1/4"));
        assert_eq!(
            other_key("MIG-1g.10gb").as_deref(),
            Some("runmig.dev/slice: 1g.10gb")
        );
        assert_eq!(other_key("20Gi"), None);
    }

    #[test]
    fn finds_nearest_word() {
        let keys = ["runtime", "state_dir", "wait", "adopt"];
        assert_eq!(nearest("runtim", keys), Some("runtime"));
        assert_eq!(nearest("statedir", keys), Some("state_dir"));
        assert_eq!(nearest("WAIT", keys), Some("wait"));
        assert_eq!(nearest("banana", keys), None);
        assert_eq!(nearest(&"wait".repeat(1 << 20), keys), None);
    }
}
