//! Points in time, as records hold them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// A point in time, written in RFC 3339. The text of a record stays as it is, even if it is no time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(String);

impl Timestamp {
    /// Creates a timestamp with the precision of a second.
    pub fn seconds(time: SystemTime) -> Timestamp {
        Timestamp(humantime::format_rfc3339_seconds(time).to_string())
    }

    /// Creates a timestamp with the precision of a millisecond.
    pub fn millis(time: SystemTime) -> Timestamp {
        Timestamp(humantime::format_rfc3339_millis(time).to_string())
    }

    /// Returns the time; none if the text of a record is no time.
    pub fn time(&self) -> Option<SystemTime> {
        humantime::parse_rfc3339(&self.0).ok()
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
impl From<&str> for Timestamp {
    fn from(text: &str) -> Timestamp {
        Timestamp(text.to_owned())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn keeps_the_text_of_a_record() {
        let time = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(Timestamp::seconds(time).as_str(), "1970-01-01T00:00:01Z");
        assert_eq!(Timestamp::millis(time).as_str(), "1970-01-01T00:00:01.500Z");
        assert_eq!(Timestamp::millis(time).time(), Some(time));
        let odd: Timestamp = serde_json::from_str("\"soon\"").unwrap();
        assert_eq!(odd.time(), None);
        assert_eq!(serde_json::to_string(&odd).unwrap(), "\"soon\"");
    }
}
