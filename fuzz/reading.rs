//! A config.json, before and after the edit, as Go reads it and as runmig believes it to be.

use super::edit;
use runmig::spec;
use runmig_lease::cdi::Edits;
use runmig_lease::request;
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;

#[path = "go.rs"]
pub mod go;

use go::{GoReader, believed};

thread_local! {
    /// Its start is dear, and its answers are cheap.
    static GO: RefCell<Option<GoReader>> = RefCell::new(start());
}

/// None where there is no Go.
pub fn start() -> Option<GoReader> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ancestors = here.ancestors().map(|dir| dir.join("fuzz/go-reader"));
    let source = { ancestors }
        .find(|dir| dir.is_dir())
        .expect("fuzz/go-reader");
    GoReader::start(&source, &std::env::temp_dir())
}

pub fn reading(bytes: &[u8]) {
    GO.with_borrow_mut(|go| go.as_mut().map(|go| agrees(go, bytes)));
}

/// Returns whether it is edited. Then Go and runmig read the same in it, before and after. A request that Go
/// reads is never missed.
pub fn agrees(go: &mut GoReader, original: &[u8]) -> bool {
    let read = go.read(original);
    let shown = || original.escape_ascii().to_string();
    if let Ok(read) = &read
        && asks(&read["annotations"])
        && let Ok(seen) = spec::peek(original)
    {
        let ours = seen.annotations.keys().any(|key| request::is_ours(key));
        assert!(ours, "{}", shown());
    }
    let Ok(edited) = edit(original, &Edits::default()) else {
        return false;
    };
    if let Ok(read) = read {
        assert_eq!(read, believed(original), "{}", shown());
    }
    if let Ok(read) = go.read(&edited) {
        assert_eq!(read, believed(&edited), "{}", shown());
    }
    true
}

fn asks(annotations: &Value) -> bool {
    let annotations = annotations.as_object();
    annotations.is_some_and(|all| all.keys().any(|key| request::is_ours(key)))
}
