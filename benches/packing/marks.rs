//! The parts of documents that scripts write.

use std::path::Path;

/// Writes a text between the two marks of a part of a document.
pub fn replace(file: &Path, script: &str, what: &str, text: &str) {
    let marks = [
        format!("<!-- {script} writes from here: {what} -->\n"),
        format!("<!-- to here: {what} -->"),
    ];
    let old = std::fs::read_to_string(file).expect("the document");
    let (before, rest) = old.split_once(&marks[0]).expect("the first mark");
    let (_, after) = rest.split_once(&marks[1]).expect("the second mark");
    let text = text.trim_end();
    let new = format!("{before}{}\n{text}\n\n{}{after}", marks[0], marks[1]);
    std::fs::write(file, new).expect("the document");
}
