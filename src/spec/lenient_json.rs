//! JSON as a list of tokens, read as leniently as any low-level runtime reads it.
//!
//! serde_json cannot tell how another reader reads a file. Go takes the first value of a file and ignores
//! the rest. It replaces lone surrogates and bytes that are not UTF-8, and merges keys that occur twice.
//! crun takes the first of such keys. So these tokens keep every key in its order, and accept every string
//! that any of the readers takes.

use std::borrow::Cow;

#[derive(Debug)]
pub enum Token<'a> {
    Object,
    Array,
    /// The end of the innermost object or array.
    End,
    Key(Text<'a>),
    Text(Text<'a>),
    /// A number, true, false or null.
    Plain,
}

/// A string in its raw form between the quotes.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(&'a [u8]);

/// The error for text that is not JSON to any low-level runtime, or an extension that only some of them
/// know.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

pub struct Tokens<'a> {
    rest: &'a [u8],
    /// The open containers; true for an object.
    inside: Vec<bool>,
    expected: Expected,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    /// A value, or the end of an empty array.
    FirstElement,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    /// A comma, or the end of the innermost container.
    More,
    Nothing,
}

impl<'a> Tokens<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Tokens {
            rest: bytes,
            inside: Vec::new(),
            expected: Expected::Value,
        }
    }

    fn step(&mut self) -> Result<Option<Token<'a>>, Malformed> {
        use Expected::*;
        loop {
            if self.expected == Nothing {
                return Ok(None);
            }
            self.rest = self.rest.trim_ascii_start();
            let (byte, after) = self.rest.split_first().ok_or(Malformed)?;
            return Ok(Some(match (self.expected, byte) {
                (More, b',') => {
                    self.rest = after;
                    self.expected = if self.is_in_object() { Key } else { Value };
                    continue;
                }
                (More, b'}') if self.is_in_object() => self.close(after),
                (More, b']') if !self.is_in_object() => self.close(after),
                (FirstKey, b'}') | (FirstElement, b']') => self.close(after),
                (FirstKey | Key, b'"') => {
                    let key = self.string(after)?;
                    let rest = self.rest.trim_ascii_start();
                    self.rest = rest.strip_prefix(b":").ok_or(Malformed)?;
                    self.expected = Value;
                    Token::Key(key)
                }
                (Value | FirstElement, b'{') => self.open(after, true),
                (Value | FirstElement, b'[') => self.open(after, false),
                (Value | FirstElement, b'"') => {
                    let text = self.string(after)?;
                    self.value_is_over();
                    Token::Text(text)
                }
                (Value | FirstElement, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    let is_part =
                        |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
                    let end = self.rest.iter().position(|b| !is_part(b));
                    self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
                    self.value_is_over();
                    Token::Plain
                }
                _ => return Err(Malformed),
            }));
        }
    }

    fn is_in_object(&self) -> bool {
        self.inside.last() == Some(&true)
    }

    fn value_is_over(&mut self) {
        self.expected = if self.inside.is_empty() {
            Expected::Nothing
        } else {
            Expected::More
        };
    }

    fn open(&mut self, after: &'a [u8], is_object: bool) -> Token<'a> {
        self.rest = after;
        self.inside.push(is_object);
        if is_object {
            self.expected = Expected::FirstKey;
            Token::Object
        } else {
            self.expected = Expected::FirstElement;
            Token::Array
        }
    }

    fn close(&mut self, after: &'a [u8]) -> Token<'a> {
        self.rest = after;
        self.inside.pop();
        self.value_is_over();
        Token::End
    }

    /// Returns the text before the closing quote.
    fn string(&mut self, after: &'a [u8]) -> Result<Text<'a>, Malformed> {
        let mut at = 0;
        loop {
            match after.get(at) {
                None | Some(0..0x20) => return Err(Malformed),
                Some(b'"') => break,
                Some(b'\\') => at += 1 + escape(&after[at + 1..])?,
                Some(_) => at += 1,
            }
        }
        self.rest = &after[at + 1..];
        Ok(Text(&after[..at]))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let token = self.step().transpose();
        if matches!(token, Some(Err(_))) {
            self.expected = Expected::Nothing;
        }
        token
    }
}

/// Returns the length of the escape after its backslash.
fn escape(after: &[u8]) -> Result<usize, Malformed> {
    match after.first() {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(1),
        Some(b'u') if unit(&after[1..]).is_some() => Ok(5),
        _ => Err(Malformed),
    }
}

/// Returns the value of the four digits of a `\u`.
fn unit(digits: &[u8]) -> Option<u16> {
    let digits = digits.get(..4)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(text, 16).ok()
}

impl<'a> Text<'a> {
    /// Returns the string as Go reads it: U+FFFD replaces bytes that are not Unicode.
    pub fn lossy(self) -> Cow<'a, str> {
        self.read().unwrap_or_else(Cow::Owned)
    }

    /// Returns the string, or none if readers read it differently: bytes that are not UTF-8, a lone
    /// surrogate.
    pub fn exact(self) -> Option<Cow<'a, str>> {
        self.read().ok()
    }

    fn read(self) -> Result<Cow<'a, str>, String> {
        if !self.0.contains(&b'\\') {
            return match String::from_utf8_lossy(self.0) {
                Cow::Borrowed(text) => Ok(Cow::Borrowed(text)),
                Cow::Owned(lossy) => Err(lossy),
            };
        }
        let mut bytes = Vec::with_capacity(self.0.len());
        let mut is_exact = true;
        let mut rest = self.0;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if *byte != b'\\' {
                bytes.push(*byte);
                continue;
            }
            let c = if after.first() == Some(&b'u') {
                let (c, length) = code_point(after);
                is_exact &= c.is_some();
                rest = &after[length..];
                c.unwrap_or(char::REPLACEMENT_CHARACTER)
            } else {
                rest = after.get(1..).unwrap_or_default();
                match after.first() {
                    Some(b'b') => '\u{8}',
                    Some(b'f') => '\u{c}',
                    Some(b'n') => '\n',
                    Some(b'r') => '\r',
                    Some(b't') => '\t',
                    other => char::from(*other.unwrap_or(&b'\\')),
                }
            };
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        match String::from_utf8(bytes) {
            Ok(text) if is_exact => Ok(Cow::Owned(text)),
            Ok(lossy) => Err(lossy),
            Err(e) => Err(String::from_utf8_lossy(e.as_bytes()).into_owned()),
        }
    }
}

/// Returns the character of a `\u` escape or of a surrogate pair, and its length after the backslash.
fn code_point(after: &[u8]) -> (Option<char>, usize) {
    let Some(first) = after.get(1..).and_then(unit) else {
        return (None, after.len());
    };
    let second = after[5..].strip_prefix(b"\\u").and_then(unit);
    let mut units = std::iter::once(first).chain(second);
    match char::decode_utf16(&mut units).next() {
        Some(Ok(c)) if c.len_utf16() == 2 => (Some(c), 11),
        Some(Ok(c)) => (Some(c), 5),
        _ => (None, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, Malformed> {
        let mut out = Vec::new();
        for token in Tokens::new(bytes) {
            out.push(match token? {
                Token::Object => "{".to_owned(),
                Token::Array => "[".to_owned(),
                Token::End => "]".to_owned(),
                Token::Key(key) => format!("{}:", key.lossy()),
                Token::Text(text) => format!("{:?}", text.lossy()),
                Token::Plain => "_".to_owned(),
            });
        }
        Ok(out.join(" "))
    }

    #[test]
    fn reads_first_value_to_its_end() {
        for (text, tokens) in testkit::rows! {
            &b" {} "[..] => "{ ]";
            b"[1, -2.5e+7,null ] x" => "[ _ _ _ ]";
            br#"{"a":{"b":["c",{}]},"a":true}"# => r#"{ a: { b: [ "c" { ] ] ] a: _ ]"#;
            b"{\"\xff\":\"a\xe9\"}" => "{ \u{fffd}: \"a\u{fffd}\" ]";
            br#""\ud83d\ude00\ud83d\u0041\/\n""# => r#""😀�A/\n""#;
            br#""\\u0041""# => r#""\\u0041""#;
        } {
            assert_eq!(read(text).unwrap(), tokens, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn refuses_extensions_and_fragments() {
        for text in [
            "",
            "{",
            "[1",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{'a':1}",
            "{a:1}",
            "// x\n{}",
            "[/**/]",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\t\"",
            "\"a",
            "[}",
            "{]",
            "[1 2]",
            "\u{feff}{}",
        ] {
            assert_eq!(read(text.as_bytes()), Err(Malformed), "{text}");
        }
        assert!(read("[".repeat(1 << 20).as_bytes()).is_err());
    }

    #[test]
    fn tells_exact_text_from_replaced() {
        let exact = |raw: &'static [u8]| Text(raw).exact();
        assert_eq!(exact(br"\u0072unmig").unwrap(), "runmig");
        assert_eq!(exact(br"\ud83d\uDE00").unwrap(), "😀");
        for raw in [
            &b"\xff"[..],
            br"\ud800",
            br"\ud800\ud800",
            br"\udc00x",
            b"\\n\xc3",
        ] {
            assert_eq!(exact(raw), None, "{}", raw.escape_ascii());
        }
    }
}
