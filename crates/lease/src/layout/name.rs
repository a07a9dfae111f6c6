//! The form of the names in `mig-devices`.

/// Returns whether a text has the form `[Nc.]Ng.Ngb`, with attributes as `+me`, `+me.all` or `-me` behind it.
pub(super) fn is_instance_name(text: &str) -> bool {
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (fields, attributes) = text.split_at(end);
    let fields: Vec<&str> = fields.split('.').collect();
    let numbers = match fields[..] {
        [c, g, gb] => number(c, "c") && number(g, "g") && number(gb, "gb"),
        [g, gb] => number(g, "g") && number(gb, "gb"),
        _ => false,
    };
    numbers && are_attributes(attributes)
}

fn number(text: &str, unit: &str) -> bool {
    let digits = text.strip_suffix(unit).unwrap_or_default();
    digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u32>().is_ok()
}

/// Nothing, or different words, each behind a sign or a comma.
fn are_attributes(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(['+', '-']) else {
        return text.is_empty();
    };
    let words: Vec<&str> = rest.split(['+', '-', ',']).collect();
    let is_word = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
    };
    let is_repeated = |(n, word): (usize, &&str)| words[..n].contains(word);
    words.iter().all(is_word) && !words.iter().enumerate().any(is_repeated)
}

#[cfg(test)]
mod tests {
    use super::is_instance_name;

    #[test]
    fn knows_names_of_instances() {
        for name in [
            "1g.10gb",
            "1c.3g.40gb",
            "1g.10gb+me",
            "1g.24gb+me.all",
            "1g.24gb-me",
            "1c.1g.24gb+gfx",
            "0g.0gb",
        ] {
            assert!(is_instance_name(name), "{name}");
        }
        for name in [
            "",
            "bogus",
            "1g",
            "10gb",
            "1g.10",
            "g.gb",
            "1c.1c.1g.10gb",
            " 1g.10gb",
            "1g.10gb+",
            "1g.10gb+me+me",
            "1g.10gb+1me",
            "1g.10gb me",
            "-1g.10gb",
            "1g.10gb+me,",
            "MIG 1g.10gb",
        ] {
            assert!(!is_instance_name(name), "{name}");
        }
    }
}
