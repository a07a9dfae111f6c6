//! Manual pages made from Markdown: `docs/man/` has a page for each of these documents, and no other form of it.
//!
//! `UPDATE=1 cargo test -p runmig --test pages` writes the pages anew. migctl's own pages come from its arguments
//! (`src/cli/pages.rs`).

mod roff;

use std::fs;
use std::path::{Path, PathBuf};

/// A page with its document.
struct Page {
    document: &'static str,
    name: &'static str,
    section: u8,
    summary: &'static str,
}

const PAGES: [Page; 5] = [
    Page {
        document: "docs/man/runmig.md",
        name: "runmig",
        section: 8,
        summary: "OCI runtime that gives a container its own slice of an NVIDIA GPU",
    },
    Page {
        document: "docs/man/runmig-slice.md",
        name: "runmig-slice",
        section: 8,
        summary: "part of runmig for containers with a request",
    },
    Page {
        document: "docs/man/runmig-hook.md",
        name: "runmig-hook",
        section: 8,
        summary: "release the slice of a container that has ended",
    },
    Page {
        document: "docs/configuration.md",
        name: "runmig.toml",
        section: 5,
        summary: "configuration of runmig",
    },
    Page {
        document: "docs/annotations.md",
        name: "runmig-annotations",
        section: 7,
        summary: "annotations by which a container asks for a part of a GPU",
    },
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Page {
    fn file(&self) -> PathBuf {
        repository().join(format!("docs/man/{}.{}", self.name, self.section))
    }

    fn text(&self) -> String {
        let document = fs::read_to_string(repository().join(self.document)).unwrap();
        roff::page(self.name, self.section, self.summary, &document)
    }
}

#[test]
fn pages_match_their_documents() {
    for page in PAGES {
        let text = page.text();
        let mut stands = fs::read_to_string(page.file()).unwrap_or_default();
        if stands != text && std::env::var_os("UPDATE").is_some() {
            fs::write(page.file(), &text).unwrap();
            stands.clone_from(&text);
        }
        assert!(
            stands == text,
            "{} is stale: UPDATE=1 cargo test -p runmig --test pages",
            page.file().display()
        );
    }
}

#[test]
fn mandoc_accepts_every_page() {
    let pages = fs::read_dir(repository().join("docs/man")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let mut pages: Vec<PathBuf> =
        { pages.filter(|page| page.extension() != Some("md".as_ref())) }.collect();
    pages.sort();
    let linted = std::process::Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(&pages)
        .output();
    let Ok(linted) = linted else {
        return skip("mandoc is not there: apt-get install mandoc");
    };
    let said = String::from_utf8_lossy(&linted.stdout);
    assert!(linted.status.success() && said.is_empty(), "{said}");
}

fn skip(why: &str) {
    let required = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(
        !required("CI") && !required("RUNMIG_REQUIRE_ALL"),
        "cannot run here, and all is to run: {why}"
    );
    eprintln!("SKIPPED: {why}");
}
