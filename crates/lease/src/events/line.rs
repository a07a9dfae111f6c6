//! An event as a line of JSON, and back. Pure.

use super::event::Event;
use serde::{Deserialize, Serialize};

/// The value of `apiVersion`.
const API_VERSION: &str = "runmig.dev/v1";
/// The value of `kind`.
const KIND: &str = "Event";

/// The longest error in an event, and the longest other text, in bytes.
const MAX_ERROR: usize = 4096;
const MAX_TEXT: usize = 1024;

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
pub(super) fn encode(mut event: Event) -> serde_json::Result<Vec<u8>> {
    event.error.iter_mut().for_each(|text| cut(text, MAX_ERROR));
    event.record.iter_mut().for_each(|text| cut(text, MAX_TEXT));
    if let Some(lease) = &mut event.lease {
        lease.cut(|text| cut(text, MAX_TEXT));
    }
    let mut text = serde_json::to_vec(&Line {
        api_version: API_VERSION,
        kind: KIND,
        event: &event,
    })?;
    text.push(b'\n');
    Ok(text)
}

fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
}

/// Reads a line. Returns none for one that is damaged or of another version.
pub(super) fn decode(line: &[u8]) -> Option<Event> {
    let head: Head = serde_json::from_slice(line).ok()?;
    if head.api_version != API_VERSION || head.kind != KIND {
        return None;
    }
    serde_json::from_slice(line).ok()
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
        let line = encode(event.clone()).unwrap();
        assert!(
            line.starts_with(b"{\"apiVersion\":\"runmig.dev/v1\",\"kind\":\"Event\",\"time\":")
        );
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(decode(&line), Some(event));
    }

    #[test]
    fn newer_version_is_not_read() {
        let text = String::from_utf8(encode(event()).unwrap()).unwrap();
        for (from, to) in [
            ("runmig.dev/v1", "runmig.dev/v2"),
            ("\"Event\"", "\"Layout\""),
        ] {
            assert_eq!(decode(text.replace(from, to).as_bytes()), None);
        }
        let newer = text.replace("\"ready\"", "\"mode-changed\"");
        let newer = decode(newer.as_bytes()).unwrap();
        assert_eq!(newer.event_type.word(), "mode-changed");
    }

    #[test]
    fn long_texts_are_cut() {
        let mut long = event();
        long.error = Some("é".repeat(1 << 20));
        long.lease.as_mut().unwrap().request = Some("\u{1}".repeat(1 << 20));
        let line = encode(long).unwrap();
        assert!(line.len() < 10 * MAX_ERROR);
        assert!(decode(&line).is_some());
    }
}
