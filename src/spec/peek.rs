//! Looks for a request in config.json. Every create does this, also for containers without a request. So it
//! searches most files only for a word, and reads only annotations and hooks of the others.
//!
//! It sees all that any low-level runtime could see, because a missed request is a container without its
//! slice. This includes keys in another case, each of two equal keys, and text that is not UTF-8. runmig
//! refuses a request that readers could read differently. Without a request it refuses nothing.

use super::document::{LIMIT, not_json};
use super::hooks::Mark;
use super::lenient_json::{Malformed, Text, Token, Tokens};
use super::oci::is_same;
use memchr::memmem;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::{files, request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

/// The word in every annotation key of runmig, and in the name of its hook. The search ignores case.
const WORD: &str = "runmig";
/// The end of the domain in keys that name runmig with a wrong letter, as `runmg.dev/slice`.
const DOMAIN: &str = ".dev";
/// The start of an escaped letter of the word; two digits follow.
const ESCAPE: &str = "\\u00";
const ESCAPED_LETTERS: [&str; 12] = [
    "72", "75", "6e", "6d", "69", "67", "52", "55", "4e", "4d", "49", "47",
];
/// The one wrong letter that breaks both the word and the end of the domain: two are swapped.
const SWAPPED: &str = "runmi.gdev";
/// The length of the longest of these.
const LONGEST: usize = SWAPPED.len();

/// The longest file that runmig searches, in bytes. No engine writes a thousandth of it.
const SEARCH_LIMIT: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// The annotations; empty if none can be runmig's.
    pub annotations: BTreeMap<String, String>,
    /// Says whether the file has runmig's hook, which an earlier create left in its edit.
    pub marked: bool,
    /// The hooks by which CDI devices mark the container, and those of the edit.
    pub marks: Vec<Mark>,
    /// The paths of the namespaces that the container joins, by type.
    pub namespaces: BTreeMap<String, String>,
    /// Why readers could read the annotations differently.
    pub doubt: Option<String>,
    /// The bytes of a file without the hook.
    pub unmarked: Option<Vec<u8>>,
}

pub fn peek(bytes: &[u8]) -> Result<Peek> {
    peek_for(bytes, false)
}

pub(super) fn peek_for(bytes: &[u8], reads_all: bool) -> Result<Peek> {
    let mut seen = Seen::default();
    let lower = bytes.to_ascii_lowercase();
    let names_us = reads_all || could_name_us(&lower);
    let means_us = names_us || could_mean_us(&lower);
    drop(lower);
    if means_us {
        for token in Tokens::new(bytes) {
            match token {
                Ok(token) => seen.take(&token),
                Err(Malformed) if names_us => return Err(malformed(bytes)),
                Err(Malformed) => return Ok(Peek::default()),
            }
        }
    }
    Ok(seen.peek)
}

/// Peeks at an open file, which may be longer than the limit for a request. `reads_all`: also at one that does not name runmig.
pub fn peek_file(file: &File, reads_all: bool) -> io::Result<Result<Peek>> {
    let bytes = files::read_start(file, LIMIT + 1)?;
    if bytes.len() as u64 <= LIMIT {
        return Ok(peek_for(&bytes, reads_all).map(|seen| Peek {
            unmarked: (!seen.marked).then_some(bytes),
            ..seen
        }));
    }
    if !reads_all && file.metadata()?.len() <= SEARCH_LIMIT {
        let names_us = |part: &[u8]| could_name_us(&part.to_ascii_lowercase());
        match files::has_part(bytes.chain(file), LONGEST, SEARCH_LIMIT, names_us) {
            Ok(false) => return Ok(Ok(Peek::default())),
            // One that grows meanwhile counts as naming runmig.
            Err(e) if e.kind() != io::ErrorKind::FileTooLarge => return Err(e),
            _ => {}
        }
    }
    let line = format!(
        "cannot tell whether the container asks for a slice: config.json is longer than {LIMIT} bytes"
    );
    Ok(Err(Error::new(line).hint("make it shorter")))
}

/// Returns whether a domain comes near runmig's, with a wrong letter in the word.
fn could_mean_us(lower: &[u8]) -> bool {
    String::from_utf8_lossy(lower).contains(DOMAIN)
        && memmem::find_iter(lower, DOMAIN).any(|end| {
            // A character of UTF-8 has at most 4 bytes.
            let lengths = WORD.len() - 1..=WORD.len() + 4;
            let word = |length| std::str::from_utf8(lower.get(end.checked_sub(length)?..end)?).ok();
            { lengths.filter_map(word) }.any(|word| request::is_one_off(word, WORD))
        })
}

/// memchr would ask the processor first what it can, and on a virtual machine that takes longer than the search.
fn could_name_us(lower: &[u8]) -> bool {
    let text = String::from_utf8_lossy(lower);
    let has = |word: &str| text.contains(word);
    let is_letter = |at: usize| {
        let digits = lower[at + ESCAPE.len()..].get(..2);
        digits.is_some_and(|d| ESCAPED_LETTERS.iter().any(|l| d == l.as_bytes()))
    };
    let is_escaped = || has(ESCAPE) && memmem::find_iter(lower, ESCAPE).any(is_letter);
    has(WORD) || has(SWAPPED) || is_escaped()
}

/// Returns the error in serde_json's words, which name the position.
fn malformed(bytes: &[u8]) -> Error {
    match serde_json::from_slice::<Value>(bytes) {
        Err(e) => not_json(e),
        Ok(_) => Error::new("config.json is not JSON"),
    }
}

/// Collects the facts from the tokens.
#[derive(Default)]
struct Seen {
    peek: Peek,
    /// The latest key of each open object; none for an open array.
    path: Vec<Option<String>>,
    hook: Mark,
    /// The type of the current namespace, which engines write first.
    namespace: String,
    has_annotations: bool,
}

const ANNOTATIONS: &str = "annotations";

impl Seen {
    fn take(&mut self, token: &Token<'_>) {
        match token {
            Token::Key(key) => return self.take_key(*key),
            Token::End => {
                self.end_hook();
                return drop(self.path.pop());
            }
            _ => {}
        }
        let text = match token {
            Token::Text(text) => Some(*text),
            _ => None,
        };
        if let [Some(root), Some(key)] = &self.path[..]
            && is_same(root, ANNOTATIONS)
        {
            let key = key.clone();
            self.take_annotation(key, text);
        }
        self.take_hook(token, text);
        self.take_namespace(text);
        match token {
            Token::Object => self.path.push(Some(String::new())),
            Token::Array => self.path.push(None),
            _ => {}
        }
    }

    fn take_namespace(&mut self, text: Option<Text<'_>>) {
        let [Some(linux), Some(namespaces), None, Some(key)] = &self.path[..] else {
            return;
        };
        let text = text
            .map(|text| text.lossy().into_owned())
            .unwrap_or_default();
        match [linux, namespaces, key].map(String::as_str) {
            ["linux", "namespaces", "type"] => self.namespace = text,
            ["linux", "namespaces", "path"] => {
                let kind = std::mem::take(&mut self.namespace);
                self.peek.namespaces.insert(kind, text);
            }
            _ => {}
        }
    }

    /// Collects the current hook of any list, in every spelling that a reader might take.
    fn take_hook(&mut self, token: &Token<'_>, text: Option<Text<'_>>) {
        let [Some(hooks), Some(stage), None, rest @ ..] = &self.path[..] else {
            return;
        };
        if !is_same(hooks, "hooks") {
            return;
        }
        let is_exact = text.is_some_and(|text| text.exact().is_some());
        let lossy = || text.map_or(String::new(), |t| t.lossy().into_owned());
        let hook = &mut self.hook;
        let is_plain = match (rest, token) {
            ([], Token::Object) => {
                *hook = Mark {
                    stage: stage.clone(),
                    ..Mark::default()
                };
                true
            }
            ([Some(key)], _) if is_same(key, "path") => {
                let is_first = hook.path.is_empty();
                // An odd hook counts under the first of its names.
                if is_first || !hook.is_named() {
                    hook.path = lossy();
                }
                is_first && is_exact && key == "path"
            }
            ([Some(key)], _) if is_same(key, "args") => {
                let is_first = hook.args.is_empty();
                if !hook.is_named() && !hook.is_of_edit() {
                    hook.args.clear();
                }
                is_first && matches!(token, Token::Array) && key == "args"
            }
            ([Some(key), None], _) if is_same(key, "args") => {
                hook.args.push(lossy());
                is_exact
            }
            ([Some(key)], Token::Plain) => key == "timeout",
            _ => false,
        };
        hook.is_odd |= !is_plain || hooks != "hooks";
    }

    fn end_hook(&mut self) {
        if let [Some(hooks), Some(_), None, Some(_)] = &self.path[..]
            && is_same(hooks, "hooks")
        {
            let hook = std::mem::take(&mut self.hook);
            self.peek.marked |= hook.is_of_edit();
            if hook.is_of_edit() || hook.is_named() {
                self.peek.marks.push(hook);
            }
        }
    }

    fn take_key(&mut self, key: Text<'_>) {
        let name = key.lossy().into_owned();
        match &self.path[..] {
            [_] if is_same(&name, ANNOTATIONS) => {
                if name != ANNOTATIONS {
                    self.doubt(&name, "is annotations in another case");
                } else if self.has_annotations {
                    self.doubt(&name, "occurs twice");
                }
                self.has_annotations = true;
            }
            [Some(root), _]
                if is_same(root, ANNOTATIONS)
                    && key.exact().is_none_or(|exact| exact.contains('\0')) =>
            {
                self.doubt(&name, "is a key that readers differ in");
            }
            _ => {}
        }
        if let Some(last) = self.path.last_mut() {
            *last = Some(name);
        }
    }

    fn take_annotation(&mut self, key: String, value: Option<Text<'_>>) {
        match value {
            None => self.doubt(&key, "is not a string"),
            Some(text) if text.exact().is_none() => self.doubt(&key, "is not UTF-8"),
            Some(_) => {}
        }
        let value = value.map_or(String::new(), |text| text.lossy().into_owned());
        if self.peek.annotations.contains_key(&key) {
            self.doubt(&key, "occurs twice");
        }
        self.peek.annotations.insert(key, value);
    }

    fn doubt(&mut self, name: &str, why: &str) {
        let name: String = name.chars().take(80).collect();
        let why = format!("{} {why}", printable(&name));
        self.peek.doubt.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_annotations_and_mark_alone() {
        let seen = peek(br#"{"process":{"env":["A=\u0000"]},"annotations":{"\u0072unmig.dev/slice":"1g.10gb"},"hooks":{"poststop":[{"path":"/x"},{"path":"/y","args":["runmig-hook","--lease","ab"]}]},"n":18446744073709551616}"#).unwrap();
        assert_eq!(seen.annotations["runmig.dev/slice"], "1g.10gb");
        assert!(seen.marked);
        for plain in [
            r#"{"x":"runmig"}"#,
            r#"{"annotations":null,"hooks":null,"x":"runmig"}"#,
            r#"{"hooks":{"poststop":null,"prestart":[3]},"x":"runmig"}"#,
            r#"{"hooks":{"poststop":[{"path":"/usr/bin/runmig-hook","args":["runmig-hook"]}]}}"#,
        ] {
            let seen = peek(plain.as_bytes()).unwrap();
            assert!(seen.annotations.is_empty() && !seen.marked, "{plain}");
        }
    }

    #[test]
    fn reads_joined_namespaces() {
        let seen = peek(br#"{"linux":{"namespaces":[{"type":"mount"},{"type":"pid","path":"/proc/7/ns/pid"},{"path":"/x"}],"x":[{"type":"uts","path":"/y"}]},"annotations":{"runmig.dev/slice":"1g.10gb"}}"#).unwrap();
        let pid = ("pid".to_owned(), "/proc/7/ns/pid".to_owned());
        let odd = (String::new(), "/x".to_owned());
        assert_eq!(seen.namespaces, BTreeMap::from([pid, odd]));
    }

    #[test]
    fn reads_all_where_the_runtime_asks() {
        let sandbox = br#"{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}"#;
        let all = |bytes: &[u8]| peek_for(bytes, true);
        assert_eq!(peek(sandbox).unwrap(), Peek::default());
        assert_eq!(all(sandbox).unwrap().annotations.len(), 1);
        assert_eq!(peek(b"{").unwrap(), Peek::default());
        assert!(all(b"{").is_err());
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &vec![b' '; LIMIT as usize + 1]).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        assert!(peek_file(&file, true).unwrap().is_err());
    }

    /// Returns the marks in hooks, as `STAGE PATH ARGUMENTS`, with a star for an odd one.
    fn marks(hooks: &str) -> Vec<String> {
        let seen = peek(format!(r#"{{"hooks":{hooks}}}"#).as_bytes()).unwrap();
        let shown = |mark: &Mark| {
            let odd = if mark.is_odd { " *" } else { "" };
            format!("{} {} {}{odd}", mark.stage, mark.path, mark.args.join(" "))
        };
        assert!(!seen.marked);
        seen.marks.iter().map(shown).collect()
    }

    #[test]
    fn reads_marks_of_cdi_devices() {
        let plain = r#"{"createRuntime":[{"path":"/a"},{"path":"/x","args":["runmig-request","slice=1g"],"timeout":3}],"poststop":[{"args":["runmig-claim","detach"],"path":"/y"}]}"#;
        assert_eq!(
            marks(plain),
            [
                "createRuntime /x runmig-request slice=1g",
                "poststop /y runmig-claim detach"
            ]
        );
        for (hook, shown) in testkit::rows! {
            r#"{"path":"/b/runmig-request-wants-runtime-runmig"}"# => "/b/runmig-request-wants-runtime-runmig ";
            r#"{"path":"/x","args":["/b/runmig-request"],"env":["A=1"]}"# => "/x /b/runmig-request *";
            r#"{"path":"/x","args":["runmig-request"],"env":null}"# => "/x runmig-request *";
            r#"{"Path":"/x","args":["runmig-request"]}"# => "/x runmig-request *";
            r#"{"path":"/x","path":"/y","args":["runmig-request"]}"# => "/y runmig-request *";
            r#"{"path":"/x","args":["a"],"args":["runmig-request"]}"# => "/x runmig-request *";
            r#"{"path":"/y","ARGS":["runmig-claim"]}"# => "/y runmig-claim *";
            r#"{"path":"/y","args":["runmig-claim",1]}"# => "/y runmig-claim  *";
            r#"{"path":"/y","args":["runmig-claim","\ud800"]}"# => "/y runmig-claim \u{fffd} *";
            r#"{"path":"/y","args":["runmig-claim"],"timeout":"3"}"# => "/y runmig-claim *";
        } {
            let seen = marks(&format!(r#"{{"prestart":[{hook}]}}"#));
            assert_eq!(seen, [format!("prestart {shown}")], "{hook}");
        }
        for other in [
            r#"{"path":"/x","args":["a","runmig-request"],"env":["A=1"]}"#,
            r#"{"path":"/runmig-request/x"}"#,
        ] {
            let seen = marks(&format!(r#"{{"createRuntime":[{other}]}}"#));
            assert_eq!(seen, [""; 0], "{other}");
        }
        let in_other_case = br#"{"Hooks":{"createRuntime":[{"path":"/runmig-request"}]}}"#;
        assert!(peek(in_other_case).unwrap().marks[0].is_odd);
    }

    #[test]
    fn sees_a_request_in_any_reading() {
        for (text, doubt) in testkit::rows! {
            &br#"{"annotations":{"runmig.dev/slice":"7g"}} x"#[..] => None;
            br#"{"annotations":{"runmig.dev/slice":1}}"# => Some("runmig.dev/slice is not a string");
            br#"{"annotations":{"runmig.dev/slice":null}}"# => Some("runmig.dev/slice is not a string");
            br#"{"annotations":{"runmig.dev/slice":{"a":["b"]}}}"# => Some("runmig.dev/slice is not a string");
            br#"{"annotations":{"runmig.dev/slice":"1g","runmig.dev/slice":"7g"}}"# => Some("runmig.dev/slice occurs twice");
            br#"{"annotations":{"runmig.dev/slice":"1g","runmig.dev/slice":"1g"}}"# => Some("runmig.dev/slice occurs twice");
            br#"{"annotations":{"runmig.dev/slice":"1g"},"annotations":{}}"# => Some("annotations occurs twice");
            br#"{"annotations":{},"annotations":{"runmig.dev/slice":"1g"}}"# => Some("annotations occurs twice");
            br#"{"Annotations":{"runmig.dev/slice":"1g"}}"# => Some("Annotations is annotations in another case");
            "{\"annotation\u{17f}\":{\"runmig.dev/slice\":\"1g\"}}".as_bytes() => Some("annotation\u{17f} is annotations in another case");
            b"{\"annotations\":{\"a\xff\":\"b\",\"runmig.dev/slice\":\"1g\"}}" => Some("a\u{fffd} is a key that readers differ in");
            br#"{"annotations":{"runmig.dev/slice":"\ud800"}}"# => Some("runmig.dev/slice is not UTF-8");
            b"{\"x\":\"\xff\",\"annotations\":{\"runmig.dev/slice\":\"1g\"}}" => None;
        } {
            let seen = peek(text).unwrap();
            assert!(
                seen.annotations.contains_key("runmig.dev/slice"),
                "{}",
                text.escape_ascii()
            );
            assert_eq!(seen.doubt.as_deref(), doubt, "{}", text.escape_ascii());
        }
        let hooks = br#"{"Hooks":{"postStop":[{"args":[]},{"Args":["runmig-hook","--lease"]}]}}"#;
        assert!(peek(hooks).unwrap().marked);
        for others in [
            r#"{"hooks":{"poststop":[{"args":["x","runmig-hook","--lease"]},{"args":[1,"runmig-hook","--lease"]}]}}"#,
            r#"{"hooks":{"poststop":[{"args":[["runmig-hook","--lease"]]}],"prestart":[{"args":["runmig-hook","--lease"]}]}}"#,
        ] {
            assert!(!peek(others.as_bytes()).unwrap().marked, "{others}");
        }
    }

    #[test]
    fn reads_annotations_whose_domain_comes_near() {
        for key in [
            "runmg.dev/slice",
            "Runmig.dev/gpu",
            "RUNMIG.DEV/slice",
            "RUNMG.Dev/slice",
            "RUNMIG/SLICE",
            "slice-runmig.dev/web",
            "runmi.gdev/slice",
            r"runmg.dev\/slice",
            "runm\u{ff49}g.dev/slice",
            "runmig\u{1f600}.dev/slice",
            r"\u0052UNMIG.DEV/slice",
        ] {
            let seen = peek(format!(r#"{{"annotations":{{"{key}":"1"}}}}"#).as_bytes()).unwrap();
            assert_eq!(seen.annotations.len(), 1, "{key}");
        }
        // Somebody else's domain is not read at all.
        for key in ["tekton.dev/slice", "kubevirt.dev/owner"] {
            let seen = peek(format!(r#"{{"annotations":{{"{key}":"1"}}}}"#).as_bytes()).unwrap();
            assert_eq!(seen, Peek::default(), "{key}");
        }
        // The low-level runtime refuses these in its own words.
        for broken in ["{\"annotations\":{\"runmg.dev/x\":", "{'runmg.dev/x':1}"] {
            assert_eq!(
                peek(broken.as_bytes()).unwrap(),
                Peek::default(),
                "{broken}"
            );
        }
    }

    #[test]
    fn refuses_fragments_that_name_us() {
        for (text, line) in testkit::rows! {
            "{\"runmig\":" => "config.json is cut off: EOF while parsing a value at line 1 column 10";
            "{'runmig':1}" => "config.json is not JSON: key must be a string at line 1 column 2";
            "{} // runmig" => "";
        } {
            let line_of = peek(text.as_bytes()).err().map(|e| e.line());
            assert_eq!(line_of.unwrap_or_default(), line, "{text}");
        }
    }

    #[test]
    fn leaves_odd_files_of_others_alone() {
        for others in [
            &b"\"runmig.dev/slice\""[..],
            b"[\"runmig.dev/slice\"]",
            b"{\"process\":{\"env\":[\"A=\xff\",\"runmig\"]}} trailing",
            br#"{"annotations":{"a":"\ud800","a":null},"x":"runmig"}"#,
            br#"{"annotations":["runmig.dev/slice"]}"#,
            br#"{"x":{"annotations":{"runmig.dev/slice":"1g"}}}"#,
            br#"{"annotations":{"x":{"runmig.dev/slice":"1g"}}}"#,
        ] {
            let seen = peek(others).unwrap();
            let ours = |key: &String| key.starts_with("runmig.");
            assert!(
                !seen.marked && !seen.annotations.keys().any(ours),
                "{}",
                others.escape_ascii()
            );
        }
    }

    #[test]
    fn searches_long_files_in_pieces() {
        use std::io::Write;
        let limit = LIMIT as usize;
        let look = |before: usize, word: &str, after: usize| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![b' '; before]).unwrap();
            file.write_all(word.as_bytes()).unwrap();
            file.write_all(&vec![b' '; after]).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            peek_file(&file, false).unwrap()
        };
        let line = "cannot tell whether the container asks for a slice: config.json is longer than 16777216 bytes; hint: make it shorter";
        for (before, word, after) in [
            (0, "runmig", limit),
            (limit - 2, "runmig", 0),
            (limit - 2, "RUNMIG", limit),
            (limit - 8, "runmi.gdev", limit),
            // 32 KiB is in memory at a time, with 9 bytes of the part before.
            (limit + 1 + 2 * (32 * 1024 - 9) - 3, "runmig", 9),
            (limit + 1 + 2 * (32 * 1024 - 9) - 1, "\\u006D", 9),
        ] {
            assert_eq!(look(before, word, after).unwrap_err().line(), line);
        }
        assert_eq!(
            look(limit + 5, "\\u0061 run mig", 1 << 20).unwrap(),
            Peek::default()
        );
        let endless = tempfile::tempfile().unwrap();
        endless.set_len(1 << 40).unwrap();
        assert_eq!(
            peek_file(&endless, false).unwrap().unwrap_err().line(),
            line
        );
    }

    #[test]
    fn finds_escaped_spellings_of_keys() {
        let escaped =
            br#"{"annotations":{"\u0072\u0075\u006d\u0069\u0067.dev/slice":"1g.10gb","a":"b"}}"#;
        assert_eq!(peek(escaped).unwrap().annotations.len(), 2);
        // A file without the word passes: the low-level runtime judges whether it is a config.json.
        for others in [&br#"{"annotations":{"a":"b"}}"#[..], b"not JSON"] {
            assert_eq!(peek(others).unwrap(), Peek::default());
        }
    }
}
