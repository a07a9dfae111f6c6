//! The keys of the page.

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    PreviousColumn,
    NextColumn,
    Reverse,
    Gpu,
    Namespace,
    Kind,
}

/// The bytes that a terminal sends for each key.
const SENT: [(&[u8], Key); 28] = [
    (b"\x1b[A", Key::Up),
    (b"\x1b[B", Key::Down),
    (b"\x1bOA", Key::Up),
    (b"\x1bOB", Key::Down),
    (b"\x1b[5~", Key::PageUp),
    (b"\x1b[6~", Key::PageDown),
    (b"\x1b[H", Key::Home),
    (b"\x1b[F", Key::End),
    (b"\x1bOH", Key::Home),
    (b"\x1bOF", Key::End),
    (b"\x1b[1~", Key::Home),
    (b"\x1b[4~", Key::End),
    (b"\x1b[D", Key::PreviousColumn),
    (b"\x1b[C", Key::NextColumn),
    (b"\x1bOD", Key::PreviousColumn),
    (b"\x1bOC", Key::NextColumn),
    (b"<", Key::PreviousColumn),
    (b">", Key::NextColumn),
    (b"r", Key::Reverse),
    (b"g", Key::Gpu),
    (b"n", Key::Namespace),
    (b"k", Key::Kind),
    (b" ", Key::PageDown),
    (b"b", Key::PageUp),
    (b"q", Key::Quit),
    // In a raw terminal Ctrl-C, Ctrl-D and Ctrl-\ are bytes like others.
    (b"\x03", Key::Quit),
    (b"\x04", Key::Quit),
    (b"\x1c", Key::Quit),
];

/// Returns the keys of these bytes. Others have no meaning.
pub fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let known = SENT.iter().find(|(sent, _)| bytes.starts_with(sent));
        keys.extend(known.map(|(_, key)| *key));
        bytes = &bytes[known.map_or_else(|| unknown(bytes), |(sent, _)| sent.len())..];
    }
    keys
}

/// Returns the length of a sequence without a meaning, so that its letters are no keys.
fn unknown(bytes: &[u8]) -> usize {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            end.map_or(bytes.len(), |end| end + 3)
        }
        [0x1b, _, ..] => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_keys_or_nothing() {
        assert_eq!(
            parse(b"\x1b[Ar\x1b[6~"),
            [Key::Up, Key::Reverse, Key::PageDown]
        );
        // A key of functions, and a letter with Alt.
        assert_eq!(parse(b"\x1b[15;2~\x1bq\x1b[n"), []);
        assert_eq!(parse(b"\x1b"), []);
        assert_eq!(parse(b"\x03"), [Key::Quit]);
    }
}
