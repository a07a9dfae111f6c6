//! A page with Grafana's components, in headless Chromium.

use super::board::{Server, board, filled};
use super::parsers::there;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::process::said;
use testkit::runtimes;

/// The interval of the scrapes, as Prometheus and the page write it. The rate is that of four, as in Grafana.
pub const INTERVAL: &str = "500ms";
pub const STEP: f64 = 0.5;
const RATE_INTERVAL: &str = "2s";

const WIDTH: u64 = 1440;
/// A line of Grafana's grid with its gap, and the title of the page.
const LINE: u64 = 38;
const HEADER: u64 = 48;
const ROW: &str = "<h5 data-row";

/// Returns the folder that `scripts/setup board` makes.
pub fn kept() -> Option<PathBuf> {
    there(runtimes::cache()?.join("board"), "board")
}

/// The text of each panel as drawn, and the number of its series, by its title.
pub struct Page(pub BTreeMap<String, (String, usize)>);

impl Page {
    /// Draws the last seconds that Prometheus has, without an error, and writes a picture if there is a file for it.
    pub fn draw(
        folder: &Path,
        kept: &Path,
        server: &Server,
        seconds: f64,
        picture: Option<&Path>,
    ) -> Page {
        let end = server.query("vector(time())")[0].value;
        let source = json!({
            "url": format!("http://127.0.0.1:{}", server.port),
            "start": end - seconds,
            "end": end,
            "step": STEP,
            "width": WIDTH,
        });
        let mut board = board();
        for panel in board["panels"].as_array_mut().unwrap() {
            let targets = panel.get_mut("targets").and_then(Value::as_array_mut);
            for target in targets.into_iter().flatten() {
                target["expr"] = filled(target["expr"].as_str().unwrap(), RATE_INTERVAL).into();
            }
        }
        bundle(kept, folder);
        letters(kept, folder);
        let page = fs::read_to_string(sources().join("board.html")).unwrap();
        let page = page.replace("BOARD", &board.to_string());
        let page = page.replace("SOURCE", &source.to_string());
        fs::write(folder.join("board.html"), page).unwrap();

        let dom = chromium(folder, &board, "--dump-dom");
        if let Some(picture) = picture {
            let output = format!("--screenshot={}", picture.display());
            chromium(folder, &board, &output);
        }
        if let Some((_, error)) = dom.split_once("data-error=") {
            panic!("the page fails: {}", visible(error));
        }
        let page = Page::read(&dom);
        page.has_every_panel(&board);
        page
    }

    fn read(dom: &str) -> Page {
        let main = dom.split_once("<main data-drawn=").and_then(|(_, rest)| {
            let (main, _) = rest.split_once("</main>")?;
            Some(main)
        });
        let main = main.unwrap_or_else(|| panic!("nothing is drawn: {dom}"));
        let panel = |part: &str| {
            let (title, rest) = part.split_once('"').unwrap();
            let (_, series) = rest.split_once("data-series=\"").unwrap();
            let (count, _) = series.split_once('"').unwrap();
            let (own, _) = rest.split_once(ROW).unwrap_or((rest, ""));
            (title.to_owned(), (visible(own), count.parse().unwrap()))
        };
        Page(main.split("data-panel=\"").skip(1).map(panel).collect())
    }

    fn has_every_panel(&self, board: &Value) {
        let panels = board["panels"].as_array().unwrap().iter();
        for panel in panels.filter(|panel| panel["type"] != "row") {
            let title = panel["title"].as_str().unwrap();
            let text = self.text(title);
            assert!(text.starts_with(title), "{title}: {text}");
            for bad in ["No data", "undefined", "NaN", "Error", "{{"] {
                assert!(!text.contains(bad), "{title}: {text}");
            }
        }
    }

    #[track_caller]
    pub fn text(&self, title: &str) -> &str {
        let found = self.0.get(title);
        &found.unwrap_or_else(|| panic!("no panel {title}")).0
    }

    #[track_caller]
    pub fn shows(&self, title: &str, words: &[&str]) {
        let text = self.text(title);
        for word in words {
            assert!(text.contains(word), "{title} lacks {word}: {text}");
        }
    }
}

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/grafana/check"))
}

/// Makes one script and one style from the page and Grafana's components.
fn bundle(kept: &Path, folder: &Path) {
    let mut esbuild = Command::new(kept.join("node_modules/.bin/esbuild"));
    esbuild.arg(sources().join("board.tsx"));
    let options = ["--bundle", "--format=iife", "--minify", "--jsx=automatic"];
    esbuild.args(options).arg("--log-level=warning");
    for kind in ["svg", "png", "ttf", "woff2"] {
        esbuild.arg(format!("--loader:.{kind}=dataurl"));
    }
    esbuild.arg("--define:process.env.NODE_ENV=\"production\"");
    esbuild.arg(format!("--outdir={}", folder.display()));
    said(esbuild.env("NODE_PATH", kept.join("node_modules"))).ok();
}

/// Puts the font where the components look for it.
fn letters(kept: &Path, folder: &Path) {
    let fonts = folder.join("public/fonts/inter");
    fs::create_dir_all(&fonts).unwrap();
    for (weight, name) in [(400, "Regular"), (500, "Medium")] {
        let file =
            format!("node_modules/@fontsource/inter/files/inter-latin-{weight}-normal.woff2");
        let copy = fonts.join(format!("Inter-{name}.woff2"));
        fs::copy(kept.join(file), copy).unwrap();
    }
}

fn chromium(folder: &Path, board: &Value, output: &str) -> String {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    chromium.args(["--hide-scrollbars", "--virtual-time-budget=15000"]);
    // The font is a file.
    chromium.arg("--allow-file-access-from-files");
    // It asks nobody but Prometheus.
    chromium.args(["--no-first-run", "--disable-background-networking"]);
    chromium.arg("--disable-component-update");
    chromium.arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
    let profile = folder.join("chromium");
    chromium.arg(format!("--user-data-dir={}", profile.display()));
    chromium.arg(format!("--window-size={WIDTH},{}", height(board)));
    chromium.arg(output);
    let page = folder.join("board.html");
    chromium.arg(format!("file://{}", page.display()));
    said(&mut chromium).ok().stdout
}

fn height(board: &Value) -> u64 {
    let bottom = |panel: &Value| {
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        side("y") + side("h")
    };
    let panels = board["panels"].as_array().unwrap().iter();
    HEADER + panels.map(bottom).max().unwrap() * LINE
}

/// Returns the text outside of tags.
fn visible(html: &str) -> String {
    let outside = |part: &str| part.split_once('>').map(|(_, text)| text.to_owned());
    let text: Vec<String> = html.split('<').filter_map(outside).collect();
    let text = text.join(" ").replace("&amp;", "&");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
