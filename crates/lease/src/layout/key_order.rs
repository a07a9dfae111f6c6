//! Go's YAML: the order of its keys, and the texts that it puts in quotes. The bytes of an export depend on both.

use std::cmp::Ordering;

/// Compares two keys: numbers in them by value, and signs before letters.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else {
        return a.len().cmp(&b.len());
    };
    let (ca, cb) = (a[at], b[at]);
    match (ca.is_alphabetic(), cb.is_alphabetic()) {
        (true, true) => return ca.cmp(&cb),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros behind other digits are a part of the same number.
    let before = { a[..at].iter().rev() }.take_while(|c| c.is_ascii_digit());
    let is_inside = (ca == '0' || cb == '0') && before.into_iter().any(|c| *c != '0');
    let number = |text: &[char]| {
        let digits = text[at..].iter().map_while(|c| c.to_digit(10));
        let first = (i64::from(is_inside), 0);
        digits.fold(first, |(n, length), digit| {
            (
                n.wrapping_mul(10).wrapping_add(i64::from(digit)),
                length + 1,
            )
        })
    };
    number(&a).cmp(&number(&b)).then(ca.cmp(&cb))
}

/// Returns whether a text of letters, digits, `.`, `-` and `_` stays a text without quotes.
pub(super) fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let small = text.to_ascii_lowercase();
    let capital = || {
        let (first, rest) = small.split_at(1);
        first.to_ascii_uppercase() + rest
    };
    if WORDS.contains(&small.as_str()) {
        let forms = [small.clone(), capital(), small.to_ascii_uppercase()];
        return !forms.iter().any(|form| form == text);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return true;
    }
    !is_date(text) && !is_number(&text.replace('_', ""))
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else {
        return false;
    };
    let number = |text: &str, longest| {
        let is_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        { text.parse::<u32>().ok() }.filter(|_| is_digits && text.len() <= longest)
    };
    let (Some(y), Some(m), Some(d)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let is_leap = y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let days = match m {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    year.len() == 4 && (1..=days).contains(&d)
}

fn is_number(text: &str) -> bool {
    let whole = |digits: &str, base| u64::from_str_radix(digits, base).is_ok();
    let small = text.to_ascii_lowercase();
    let in_base = |prefix, base| small.strip_prefix(prefix).is_some_and(|d| whole(d, base));
    let is_float = || {
        let (mantissa, exponent) = small.split_once('e').unwrap_or((&small, "0"));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        digits(before)
            && digits(after)
            && digits(exponent)
            && !exponent.is_empty()
            && small.parse::<f64>().is_ok_and(f64::is_finite)
    };
    // A leading zero makes a number octal, and where that fails a decimal fraction.
    in_base("0x", 16) || in_base("0o", 8) || in_base("0b", 2) || whole(&small, 10) || is_float()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_numbers_by_value() {
        let mut names = ["7g.80gb", "1g.10gb", "1g.10gb+me", "1c.3g.40gb", "1g.5gb"];
        names.sort_by(|a, b| compare(a, b));
        let expected = ["1c.3g.40gb", "1g.5gb", "1g.10gb", "1g.10gb+me", "7g.80gb"];
        assert_eq!(names, expected);
    }

    #[test]
    fn quotes_what_reads_as_no_text() {
        for text in [
            "no",
            "Off",
            "NULL",
            "12",
            "1_000",
            "0x1f",
            "1e3",
            "1.5",
            "2024-02-29",
            "007",
        ] {
            assert!(!is_plain(text), "{text}");
        }
        for text in [
            "current",
            "oFF",
            "all-1g.10gb",
            "1g.10gb",
            "2024-02-30",
            "1e999",
            "0xg",
            "nothing",
        ] {
            assert!(is_plain(text), "{text}");
        }
    }
}
