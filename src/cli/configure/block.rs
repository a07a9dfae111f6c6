//! Blocks of TOML that runmig appends to a file between two comments, to find them again.
//!
//! TOML allows a table at the end of any file, so appended text needs no editor, and cutting it out gives
//! the original back.

/// The comment that marks each addition.
pub const OURS: &str = "# added by migctl configure";

fn begin(label: &str) -> String {
    format!("{OURS}: {label}\n")
}

fn end(label: &str) -> String {
    format!("# end of what migctl configure added: {label}\n")
}

/// Appends a block. The newline before it makes a blank line, or ends a last line without an end. `without`
/// removes that newline with the block.
pub fn with(text: &str, label: &str, body: &str) -> String {
    format!("{text}\n{}{body}{}", begin(label), end(label))
}

/// Returns the text between the comments of a block.
pub fn body<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let body = text.split_once(&begin(label))?.1;
    Some(body.split_once(&end(label))?.0)
}

/// Undoes `with`. A text without the block stays as it is.
pub fn without(text: &str, label: &str) -> String {
    let (begin, end) = (begin(label), end(label));
    let Some((before, rest)) = text.split_once(&begin) else {
        return text.to_owned();
    };
    let Some((_, after)) = rest.split_once(&end) else {
        return text.to_owned();
    };
    let before = before.strip_suffix('\n').unwrap_or(before);
    format!("{before}{after}")
}

/// Returns the labels of all blocks that begin with `prefix`.
pub fn labels<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(OURS)?.strip_prefix(": "))
        .filter(move |label| label.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_block_restores_the_text() {
        for text in ["", "a = 1\n", "a = 1", "a = 1\n\n"] {
            let one = with(text, "handler x", "[b]\n");
            let two = with(&one, "handler xy", "[c]\n");
            assert_eq!(
                labels(&two, "handler ").collect::<Vec<_>>(),
                ["handler x", "handler xy"]
            );
            assert_eq!(body(&two, "handler xy"), Some("[c]\n"));
            assert_eq!(without(&two, "handler xy"), one);
            let other = without(&two, "handler x");
            assert_eq!(without(&other, "handler xy"), text);
            assert_eq!(without(text, "handler x"), text);
        }
    }
}
