//! An event as a line of JSON, and back. Pure.

use super::event::Event;
use serde::{Deserialize, Serialize};

/// The value of `apiVersion`.
const API_VERSION: &str = "runmig.dev/v1";
/// The value of `kind`.
const KIND: &str = "Event";
/// The begin of every line of this version. A string in JSON has no unescaped quotes, so no name can contain it.
const BEGIN: &[u8] = b"{\"apiVersion\":\"";

/// The longest text in an event, in bytes.
const MAX_TEXT: usize = 4096;
/// The longest text in an event whose line would be too long.
const MAX_SHORT: usize = 256;
/// The longest line that a reader takes, in bytes.
pub(super) const MAX_LINE: usize = 256 << 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    event: &'a Event,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
}

/// Returns the line of an event, with its end. Long texts are cut.
pub(super) fn encode(event: &Event) -> Option<Vec<u8>> {
    let mut event = event.clone();
    for max in [MAX_TEXT, MAX_SHORT] {
        event.cut(max);
        let line = Line {
            api_version: API_VERSION,
            kind: KIND,
            event: &event,
        };
        let mut text = serde_json::to_vec(&line).ok()?;
        text.push(b'\n');
        if text.len() <= MAX_LINE {
            return Some(text);
        }
    }
    None
}

/// An event of a line, and whether the line had more that cannot be read.
pub(super) struct Decoded {
    pub event: Option<Event>,
    pub is_damaged: bool,
}

/// Reads a line without its end. A full disk cuts a line, and the next event follows in the same line.
pub(super) fn decode(line: &[u8]) -> Decoded {
    if let Some(event) = read(line) {
        return Decoded {
            event: Some(event),
            is_damaged: false,
        };
    }
    let begins = line.windows(BEGIN.len()).rposition(|part| part == BEGIN);
    let event = begins.filter(|at| *at > 0).and_then(|at| read(&line[at..]));
    Decoded {
        event,
        is_damaged: true,
    }
}

fn read(line: &[u8]) -> Option<Event> {
    let head: Head = serde_json::from_slice(line).ok()?;
    if head.api_version != API_VERSION || head.kind != KIND {
        return None;
    }
    serde_json::from_slice(line).ok()
}

impl Event {
    fn cut(&mut self, max: usize) {
        let cut = |text: &mut String| {
            if text.len() > max {
                let end = (0..=max).rev().find(|at| text.is_char_boundary(*at));
                text.truncate(end.unwrap_or_default());
                text.push('…');
            }
        };
        { self.error.iter_mut() }
            .chain(&mut self.record)
            .for_each(cut);
        if let Some(lease) = &mut self.lease {
            lease.cut(cut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::event::{EventSeconds, EventType};
    use crate::view::LeaseView;

    fn event() -> Event {
        Event {
            seconds: Some(EventSeconds {
                total: Some(0.25),
                ..EventSeconds::default()
            }),
            lease: Some(LeaseView {
                container: Some("a\"\n{".to_owned()),
                ..LeaseView::default()
            }),
            ..Event::now(EventType::Ready)
        }
    }

    #[test]
    fn line_has_event_as_written() {
        let event = event();
        let line = encode(&event).unwrap();
        assert!(
            line.starts_with(b"{\"apiVersion\":\"runmig.dev/v1\",\"kind\":\"Event\",\"time\":")
        );
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let decoded = decode(line.trim_ascii_end());
        assert_eq!(decoded.event, Some(event));
        assert!(!decoded.is_damaged);
    }

    #[test]
    fn event_survives_cut_line_before_it() {
        let line = encode(&event()).unwrap();
        let both = [&line[..40], line.trim_ascii_end()].concat();
        let decoded = decode(&both);
        assert_eq!(
            decoded.event,
            Some(event()).map(|e| Event {
                time: decoded.event.clone().unwrap().time,
                ..e
            })
        );
        assert!(decoded.is_damaged);
    }

    #[test]
    fn newer_version_is_not_read() {
        let text = String::from_utf8(encode(&event()).unwrap()).unwrap();
        for (from, to) in [
            ("runmig.dev/v1", "runmig.dev/v2"),
            ("\"Event\"", "\"Layout\""),
        ] {
            let decoded = decode(text.replace(from, to).as_bytes());
            assert!(decoded.event.is_none() && decoded.is_damaged);
        }
        let newer = text.replace("\"ready\"", "\"mode-changed\"");
        let newer = decode(newer.as_bytes()).event.unwrap();
        assert_eq!(
            newer.event_type,
            EventType::Other("mode-changed".to_owned())
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let mut long = event();
        long.error = Some("é".repeat(1 << 20));
        long.lease.as_mut().unwrap().request = Some("\u{1}".repeat(1 << 20));
        let line = encode(&long).unwrap();
        assert!(line.len() < 10 * MAX_TEXT);
        assert!(decode(line.trim_ascii_end()).event.is_some());
    }
}
