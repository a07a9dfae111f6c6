//! One error for everything that ends at a person: what was tried, on what, why it failed, and
//! where there is one, the way out. `Display` never holds the source; `line` prints the chain once,
//! at the edge.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

/// The result of an operation that may end at a person.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with an optional hint, a cause, and later failures.
pub struct Error(Box<Inner>);

#[derive(Default)]
struct Inner {
    what: String,
    /// Says whether `what` names an operation, as `read /etc/x`. A line says `cannot` before it.
    is_operation: bool,
    hint: Option<String>,
    /// Says whether the obstacle is about to go, as a lock.
    is_passing: bool,
    /// Says whether a call of the driver failed.
    is_of_driver: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
    also: Vec<Error>,
}

impl Error {
    /// Creates an error: `cannot VERB OBJECT`, or a cause.
    pub fn new(what: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            what: what.into(),
            ..Inner::default()
        }))
    }

    /// Creates an error of an operation that failed: `read /etc/x`. Its line says `cannot read /etc/x`.
    pub(crate) fn failed(operation: impl Into<String>) -> Self {
        let mut error = Error::new(operation);
        error.0.is_operation = true;
        error
    }

    /// Sets the operator's next step, an imperative.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Marks an obstacle that others are about to remove, for callers with the patience to try again.
    pub(crate) fn passing(mut self) -> Self {
        self.0.is_passing = true;
        self
    }

    /// Returns whether this error, a cause or a later failure is an obstacle that is about to go.
    pub(crate) fn is_passing(&self) -> bool {
        let cause = StdError::source(self).and_then(|e| e.downcast_ref::<Error>());
        self.0.is_passing
            || cause.is_some_and(Error::is_passing)
            || self.0.also.iter().any(Error::is_passing)
    }

    /// Marks the failure of a call of the driver.
    pub(crate) fn of_driver(mut self) -> Self {
        self.0.is_of_driver = true;
        self
    }

    /// Returns whether this error or a cause is the failure of a call of the driver.
    pub(crate) fn is_of_driver(&self) -> bool {
        let cause = StdError::source(self).and_then(|e| e.downcast_ref::<Error>());
        self.0.is_of_driver || cause.is_some_and(Error::is_of_driver)
    }

    /// Returns the hint of this error alone, not of its causes.
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Sets the cause.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds a failure that came on the way out of this one. `line` tells both.
    pub fn and(mut self, other: Option<Error>) -> Self {
        self.0.also.extend(other);
        self
    }

    /// Returns the whole chain and the hint nearest to the cause, in one line, since engines show one.
    pub fn line(&self) -> String {
        let (line, hint) = self.chain();
        let hint = hint.map_or_else(String::new, |hint| format!("; hint: {hint}"));
        printable(&with_short_ids(&(line + &hint)))
    }

    /// Copies the words and the hint, for a failure that several errors share.
    pub(crate) fn again(&self) -> Error {
        let (what, hint) = self.chain();
        let mut again = Error::new(what);
        again.0.hint = hint;
        again
    }

    /// Returns the whole chain without a hint, as the reason in another error.
    pub fn reason(&self) -> String {
        printable(&with_short_ids(&self.chain().0))
    }

    /// Returns the whole chain, and the hint nearest to the cause with those of later failures.
    fn chain(&self) -> (String, Option<String>) {
        let (mut line, mut hint) = (short(&self.to_string()).into_owned(), self.advice());
        let mut next = StdError::source(self);
        while let Some(e) = next {
            line.push_str(": ");
            line.push_str(&short(&e.to_string()));
            hint = { e.downcast_ref() }.and_then(Error::advice).or(hint);
            next = e.source();
        }
        let mut hint = hint.map(str::to_owned);
        for other in &self.0.also {
            let (text, its) = other.chain();
            // The same cause often fails twice.
            if line.ends_with(&text) {
                continue;
            }
            line.push_str("; and then: ");
            line.push_str(&text);
            hint = match (hint, its) {
                (Some(hint), Some(its)) if !hint.contains(&its) => {
                    Some(format!("{hint}; also {its}"))
                }
                (hint, its) => hint.or(its),
            };
        }
        (line, hint)
    }
}

/// Runs all results to their end and returns the failures as one error.
pub fn all(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let failures = results.into_iter().filter_map(Result::err);
    let all = failures.reduce(|e, other| e.and(Some(other)));
    all.map_or(Ok(()), Err)
}

/// The longest part of a line, in bytes. Everyone who reads the engine's log would see a megabyte in a key.
const MAX_PART: usize = 1024;

fn short(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_PART {
        return text.into();
    }
    let end = (0..=MAX_PART).rev().find(|at| text.is_char_boundary(*at));
    let end = end.unwrap_or_default();
    format!("{}… ({} bytes)", &text[..end], text.len()).into()
}

/// Returns an id as engines print it: the first 12 of 64 hexadecimal digits. Another id stays whole.
pub fn short_id(id: &str) -> &str {
    let is_engines = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_engines { &id[..12] } else { id }
}

/// Cuts the ids of engines in a text, as [`short_id`] does. An id in a path stays whole.
fn with_short_ids(text: &str) -> String {
    let is_between = |c: char| !c.is_ascii_alphanumeric() && !"/-_.:".contains(c);
    let cut = |piece: &str| {
        let word = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        [short_id(word), &piece[word.len()..]].concat()
    };
    text.split_inclusive(is_between).map(cut).collect()
}

/// Text that others wrote, made safe for a terminal and for one line: control characters (and the
/// invisible ones that turn text around) become their escapes.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Names the first of some: `a, b and c`, or `a, b and 2 more`.
pub(crate) fn first_of(first: &[String], all: usize) -> String {
    match (all.saturating_sub(first.len()), first) {
        (0, [init @ .., last]) if !init.is_empty() => format!("{} and {last}", init.join(", ")),
        (0, some) => some.join(", "),
        (more, some) => format!("{} and {more} more", some.join(", ")),
    }
}

/// Names the first of some processes: `process 7`, or `processes 7, 8 and 9`.
pub fn processes(pids: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = pids.iter().take(SHOWN).map(u32::to_string).collect();
    let es = if pids.len() == 1 { "" } else { "es" };
    format!("process{es} {}", first_of(&shown, pids.len()))
}

/// Tells whether a terminal obeys this character or does not show it.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cannot = if self.0.is_operation { "cannot " } else { "" };
        write!(f, "{cannot}{}", self.0.what)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.source.as_deref()?;
        Some(source)
    }
}

/// Adds the failed operation to an error: `read().context(|| format!("read {path}"))?`
pub trait Context<T> {
    /// Wraps the error as the cause of a failed operation, a verb with its object.
    fn context<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T>;

    /// Wraps the error as the cause of a statement, such as `it is not text`.
    fn because<S: Into<String>>(self, statement: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Context<T> for std::result::Result<T, E> {
    fn context<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| Error::failed(operation()).caused_by(e))
    }

    fn because<S: Into<String>>(self, statement: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| Error::new(statement()).caused_by(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_chain_and_nearest_hint() {
        let inner = Error::failed("open b")
            .hint("make b")
            .caused_by(std::io::Error::other("gone"));
        let outer = Error::failed("read a").hint("make a").caused_by(inner);
        assert_eq!(
            outer.line(),
            "cannot read a: cannot open b: gone; hint: make b"
        );
        assert_eq!(outer.to_string(), "cannot read a");
        let passing = Error::failed("read a").caused_by(Error::new("b is locked").passing());
        assert!(passing.is_passing() && !outer.is_passing());
        let both = Error::new("it is not text").and(Some(Error::failed("close a")));
        assert_eq!(both.line(), "it is not text; and then: cannot close a");
        let gone = || Error::new("b is gone").hint("make b");
        let twice = Error::failed("read a").caused_by(gone()).and(Some(gone()));
        let twice = twice.and(Some(Error::failed("close a").hint("make b")));
        assert_eq!(
            twice.line(),
            "cannot read a: b is gone; and then: cannot close a; hint: make b"
        );
        let other = twice.again().and(Some(Error::new("c").hint("make c")));
        let line = other.line();
        assert!(
            line.ends_with("a; and then: c; hint: make b; also make c"),
            "{line}"
        );
        let said: Result<()> = Err(std::io::Error::other("gone")).context(|| "read a");
        assert_eq!(said.unwrap_err().line(), "cannot read a: gone");
        assert_eq!(format!("{outer:?}"), outer.line());
    }

    #[test]
    fn writes_readable_lines() {
        let long = "ä".repeat(10 << 20);
        let line = Error::new(&long).caused_by(Error::new(&long)).line();
        assert!(line.len() < 2200, "{}", line.len());
        assert!(line.ends_with("ä… (20971520 bytes)"), "{line}");
    }

    #[test]
    fn shortens_ids_of_engines() {
        let id = "4f2a9c1d03be".repeat(6)[..64].to_owned();
        let other = "0".repeat(63);
        let line = |text: &str| Error::new(text.replace("ID", &id)).line();
        assert_eq!(line("container ID: gone"), "container 4f2a9c1d03be: gone");
        assert_eq!(line("web (ID), ID"), "web (4f2a9c1d03be), 4f2a9c1d03be");
        assert_eq!(line("ID"), "4f2a9c1d03be");
        for whole in [
            "/run/ID/userdata",
            "libpod-ID.scope",
            "sha256:ID",
            "IDa",
            &other,
        ] {
            assert_eq!(line(whole), whole.replace("ID", &id));
        }
    }

    #[test]
    fn escapes_terminal_sequences() {
        assert_eq!(
            printable("a\x1b[31m\n\u{202e}b"),
            "a\\u{1b}[31m\\u{a}\\u{202e}b"
        );
        assert_eq!(printable("größe 10 GiB"), "größe 10 GiB");
    }
}
