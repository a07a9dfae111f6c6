//! Markdown as a manual page: headings, paragraphs, lists, tables, code. A link to another document keeps its text
//! alone, since a manual page has no folder.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The date of all pages, which a release changes.
const DATE: &str = "2026-11-24";

/// Returns a page with the content of a document.
pub fn page(name: &str, section: u8, summary: &str, markdown: &str) -> String {
    let mut page = Roff::default();
    let title = name.to_uppercase();
    page.out = format!(
        "'\\\" t\n.\\\" Made from Markdown; do not edit.\n.TH \"{title}\" \"{section}\" \"{DATE}\" \"runmig\" \"runmig\"\n\
         .SH NAME\n{} \\- {}\n",
        escape(name),
        escape(summary)
    );
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.see(event);
    }
    page.out
}

#[derive(Default)]
struct Roff {
    out: String,
    /// The text of the block so far.
    text: String,
    /// The marker of the next item, for each list around it: a number, or none for a bullet.
    lists: Vec<Option<u64>>,
    /// The target of the link that is open.
    link: Option<String>,
    /// The rows of the table that is open.
    rows: Option<Vec<Vec<String>>>,
    is_code: bool,
    is_title: bool,
}

impl Roff {
    fn see(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.text.push_str(&escape(&text)),
            Event::Text(text) => self.text.push_str(&escape(&text)),
            Event::Code(text) => {
                let literal = escape(&text).replace('-', "\\-");
                self.text.push_str(&format!("\\fB{literal}\\fR"));
            }
            Event::SoftBreak | Event::HardBreak => self.text.push('\n'),
            _ => {}
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush("");
                self.is_title = level == HeadingLevel::H1;
            }
            Tag::List(first) => {
                self.flush(".PP\n");
                self.lists.push(first);
            }
            Tag::CodeBlock(_) => {
                self.flush(".PP\n");
                self.is_code = true;
            }
            Tag::Table(_) => {
                self.flush(".PP\n");
                self.rows = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                self.rows.iter_mut().for_each(|rows| rows.push(Vec::new()));
            }
            Tag::Strong | Tag::Emphasis => self.text.push_str("\\fI"),
            Tag::Link { dest_url, .. } => self.link = Some(dest_url.to_string()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(HeadingLevel::H1) => {
                self.text.clear();
                self.out.push_str(".SH DESCRIPTION\n");
            }
            TagEnd::Heading(HeadingLevel::H2) => {
                let title = std::mem::take(&mut self.text).to_uppercase();
                self.out.push_str(&format!(".SH \"{}\"\n", quoted(&title)));
            }
            TagEnd::Heading(_) => {
                let title = std::mem::take(&mut self.text);
                self.out.push_str(&format!(".SS \"{}\"\n", quoted(&title)));
            }
            TagEnd::Paragraph if self.lists.is_empty() => self.flush(".PP\n"),
            TagEnd::Paragraph | TagEnd::Item => self.item(),
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                let code = std::mem::take(&mut self.text);
                let code: String = code.lines().map(|line| guarded(line) + "\n").collect();
                self.paragraph(".PP\n");
                self.out.push_str(&format!(".RS 4\n.EX\n{code}.EE\n.RE\n"));
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                let row = self.rows.as_mut().and_then(|rows| rows.last_mut());
                row.into_iter().for_each(|row| row.push(cell.clone()));
            }
            TagEnd::Table => self.table(),
            TagEnd::Strong | TagEnd::Emphasis => self.text.push_str("\\fR"),
            TagEnd::Link => {
                if let Some(url) = self.link.take().filter(|url| url.starts_with("http")) {
                    self.text.push_str(&format!(" (\\fI{}\\fR)", escape(&url)));
                }
            }
            _ => {}
        }
    }

    /// Ends the block, if it has text.
    fn flush(&mut self, before: &str) {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            return;
        }
        self.paragraph(before);
        for line in text.trim().lines() {
            self.out.push_str(&guarded(line));
            self.out.push('\n');
        }
    }

    /// Begins a paragraph, unless a heading has begun it.
    fn paragraph(&mut self, macros: &str) {
        let last = self.out.lines().last().unwrap_or_default();
        let is_first = last.starts_with(".SH") || last.starts_with(".SS");
        if !(is_first && macros == ".PP\n") {
            self.out.push_str(macros);
        }
    }

    fn item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}.", *number - 1)
            }
            _ => "\\[bu]".to_owned(),
        };
        self.flush(&format!(".IP \"{mark}\" 4\n"));
    }

    fn table(&mut self) {
        let rows = self.rows.take().unwrap_or_default();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(1);
        let head = vec!["lb"; columns].join(" ");
        let body = vec!["l"; columns - 1].join(" ");
        self.out.push_str(&format!(".TS\n{head}\n{body} lx.\n"));
        for row in rows {
            let cells = row
                .iter()
                .map(|cell| format!("T{{\n{}\nT}}", guarded(cell)));
            let cells: Vec<String> = cells.collect();
            self.out.push_str(&cells.join("\t"));
            self.out.push('\n');
        }
        self.out.push_str(".TE\n");
    }
}

/// Escapes the characters that roff obeys, and all outside of ASCII.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\e"),
            '\'' => escaped.push_str("\\[aq]"),
            '^' => escaped.push_str("\\[ha]"),
            '~' => escaped.push_str("\\[ti]"),
            '`' => escaped.push_str("\\[ga]"),
            c if c.is_ascii() => escaped.push(c),
            c => escaped.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    escaped
}

/// Returns a line that is no request of roff.
fn guarded(line: &str) -> String {
    match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}

/// Returns a text as an argument in quotation marks.
fn quoted(text: &str) -> String {
    text.replace('"', "\\(dq")
}
