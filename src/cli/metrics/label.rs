//! The values of labels. Pods and containers choose their names, so a value may be any text of any length.

use runmig_lease::error::is_hidden;
use runmig_lease::framed::sha256;

/// The longest value, in bytes, before its hash. Names of Kubernetes have at most 253.
const LONGEST: usize = 256;

/// Returns a value that a terminal shows as it is, of bounded length. Different values stay different: a changed one
/// ends with the start of its hash. Quotes, backslashes and newlines are left to the formats.
pub fn safe(text: &str) -> String {
    let is_hidden = |c: char| c != '\n' && is_hidden(c);
    if text.len() <= LONGEST && !text.chars().any(is_hidden) {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let length = out.len();
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        if out.len() > LONGEST {
            out.truncate(length);
            break;
        }
    }
    out.push('~');
    out.extend(sha256(text.as_bytes()).chars().take(16));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_names_as_they_are() {
        for name in ["", "team-a", "a\"b\\c\nd", "größe", &"x".repeat(LONGEST)] {
            assert_eq!(safe(name), name);
        }
    }

    #[test]
    fn cut_values_stay_different() {
        let long = "ä".repeat(32 << 10);
        let (one, other) = (safe(&format!("{long}1")), safe(&format!("{long}2")));
        assert!(one.len() < LONGEST + 20 && other.len() < LONGEST + 20);
        assert_ne!(one, other);
        let (control, written) = (safe("a\u{1b}[2J"), safe("a\\u{1b}[2J"));
        assert_ne!(control, written);
        assert!(!control.chars().any(is_hidden), "{control:?}");
    }
}
