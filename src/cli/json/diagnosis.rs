//! `migctl doctor`: a `Diagnosis`.

use serde::Serialize;

/// A finding of a check.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosisItem<'a> {
    /// The check, as `GROUP.CHECK`. Several items have the same id where a check looks at several things.
    pub id: &'a str,
    /// The group of the check.
    pub group: &'a str,
    /// `ok`, `warn`, `fail` or `skip`.
    pub status: &'static str,
    /// The finding, in words.
    pub text: &'a str,
    /// The repair, a command where one exists; null where all is well.
    pub repair: Option<&'a str>,
}
