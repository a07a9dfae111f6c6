//! Answers `features` with the low-level runtime's answer, and adds that runmig's annotations change a
//! container. Answers `--version` the same way, and adds a line with runmig's own version.

use super::Front;
use runmig_lease::error::{Context, Result};
use runmig_lease::process;
use runmig_lease::request::PREFIXES;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

pub fn tell(front: &Front<'_>) -> Result<i32> {
    add(front, with_ours)
}

/// Engines read the first line (`runc version 1.1.4`), or the last one that says `version`. So runmig's line is the last,
/// without that word.
pub fn version(front: &Front<'_>) -> Result<i32> {
    let ours = concat!("runmig: ", env!("CARGO_PKG_VERSION"), "\n");
    add(front, |said| Some([said, ours.as_bytes()].concat()))
}

/// Prints the low-level runtime's answer with an addition, if it has one.
fn add(front: &Front<'_>, addition: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Result<i32> {
    let path = &front.runtime.path;
    process::wait_for_children();
    // The low-level runtime writes no file here, but a program below it may.
    process::hand_on_file_limit();
    let said = Command::new(path)
        .args(front.args)
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .context(|| format!("run {}", path.display()))?;
    let text = match said.status.success() {
        true => addition(&said.stdout).unwrap_or(said.stdout),
        // the low-level runtime's refusal, in its own words
        false => said.stdout,
    };
    let mut out = std::io::stdout();
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context(|| "write the answer")?;
    Ok(said
        .status
        .code()
        .unwrap_or(128 + said.status.signal().unwrap_or(0)))
}

/// Returns the features with runmig's annotations. Returns `None` if the low-level runtime lists no
/// annotations; its answer then stays the same to the byte.
fn with_ours(said: &[u8]) -> Option<Vec<u8>> {
    let mut features: Value = serde_json::from_slice(said).ok()?;
    let list = features.get_mut("potentiallyUnsafeConfigAnnotations")?;
    list.as_array_mut()?
        .extend(PREFIXES.into_iter().map(Value::from));
    let mut out = Vec::new();
    // as runc writes it
    let form = PrettyFormatter::with_indent(b"    ");
    let mut serializer = Serializer::with_formatter(&mut out, form);
    serde::Serialize::serialize(&features, &mut serializer).ok()?;
    out.push(b'\n');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_everything_else() {
        let said = r#"{
    "b": 1.50,
    "potentiallyUnsafeConfigAnnotations": [
        "bundle"
    ],
    "a": 18446744073709551616
}
"#;
        let told = with_ours(said.as_bytes()).unwrap();
        let wanted = said.replace(
            "\"bundle\"",
            "\"bundle\",\n        \"runmig.\",\n        \"slice.runmig.\",\n        \"share.runmig.\",\n        \"gpu.runmig.\"",
        );
        assert_eq!(String::from_utf8(told).unwrap(), wanted);
    }

    #[test]
    fn leaves_features_without_annotations() {
        for said in [
            "",
            "no JSON",
            "{}",
            r#"{"potentiallyUnsafeConfigAnnotations": null}"#,
            "[]",
        ] {
            assert_eq!(with_ours(said.as_bytes()), None, "{said}");
        }
    }

    /// Every key of runmig's annotations is below one of the prefixes.
    #[test]
    fn prefixes_match_the_keys() {
        use runmig_lease::request::{GPU_OF, SLICE, SLICE_OF, WAIT};
        for key in [SLICE, WAIT, SLICE_OF, GPU_OF] {
            assert!(PREFIXES.iter().any(|prefix| key.starts_with(prefix)));
        }
        assert!(PREFIXES.iter().all(|prefix| prefix.ends_with('.')));
    }
}
