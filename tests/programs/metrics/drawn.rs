//! Grafana's schema accepts the board, and Grafana's components draw it from Prometheus in headless Chromium. Grafana itself
//! does not run. `scripts/board` draws docs/board.png so.

use super::board::{Server, board, measure, queue, tools};
use super::page::{INTERVAL, Page, STEP, kept};
use super::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::process::{said, until};

/// Rounds of a brief container, and the scrapes of each.
const ROUNDS: usize = 6;
const SCRAPES: f64 = 5.0;
const LEASES: usize = 9;
/// Texts of panels on a machine with leases of every kind, and a queued create.
const SHOWN: &[(&str, &[&str])] = &[
    ("GPUs", &["4"]),
    ("Leases", &["9"]),
    ("Memory in use", &["60.0 %"]),
    ("Queue", &["1"]),
    ("Oldest wait", &[" s"]),
    (
        "Memory by state",
        &[
            "GPU 0 leased 68.3 GiB",
            "GPU 1 foreign 39.3 GiB",
            "GPU 2 free",
        ],
    ),
    ("Instances that still fit", &["1g.10gb 2", "7g.80gb 0"]),
    ("Fragmentation", &["node-1 GPU 0", "node-1 GPU 1"]),
    (
        "Limits",
        &["limit 1 shares team 100 %", "limit 1 slices team 15 %"],
    ),
    (
        "Leases by holder",
        &[
            "request profile node GPU placement state age memory used engine activity",
            "team seats left - seat share of 1/4 of 3g.40gb 3g.40gb node-1 0 0:4 ready",
            "team train - train-gpu slice 2g.20gb 2g.20gb node-1 1 0:2 ready",
            "team whole main - gpu 1 GPU - node-1 3 - ready",
        ],
    ),
    (
        "Unused leases",
        &["team train train-gpu slice 2g.20gb node-1"],
    ),
    ("Engine activity of the GPU", &["node-1 GPU 3"]),
    ("Creates by outcome", &["created", "timed_out"]),
    ("Parts of a create", &["driver median", "wait 95 %"]),
    ("Releases by actor", &["hook"]),
    ("Waiting creates", &["slice 7g.80gb"]),
    ("Driver", &["node-1 up"]),
    ("Last collection", &["node-1", " s"]),
    ("Destroys that failed", &["retries mig", "quarantines mps"]),
];
const WORK: &[&str] = &[
    "Engine activity",
    "Tensor activity",
    "Memory activity",
    "Memory used",
];
/// The texts of panels without series on a machine without MIG, dcgm-exporter and leases.
const EMPTY: &[(&str, &str)] = &[
    ("Instances that still fit", NO_MIG),
    ("Fragmentation", NO_MIG),
    ("Limits", "no limits"),
    ("Leases by holder", "no leases"),
    ("Engine activity", NO_DCGM),
    ("Tensor activity", NO_DCGM),
    ("Memory activity", NO_DCGM),
    ("Memory used", NO_DCGM),
    ("Unused leases", "none, or no data of dcgm-exporter"),
    ("Engine activity of the GPU", NO_DCGM),
    ("Tensor activity of the GPU", NO_DCGM),
    ("Memory activity of the GPU", NO_DCGM),
    ("Creates by outcome", "no creates"),
    ("Parts of a create", "no creates"),
    ("Releases by actor", "no releases"),
    ("Last collection", "none yet"),
    ("Destroys that failed", "none"),
];
const NO_MIG: &str = "no GPU in MIG mode";
const NO_DCGM: &str = "no data of dcgm-exporter";

#[test]
fn schema_accepts_board() {
    let Some(kept) = kept() else { return };
    let folder = tempfile::tempdir().unwrap();
    let check = |board: &Value| {
        let file = folder.path().join("board.json");
        fs::write(&file, board.to_string()).unwrap();
        said(Command::new(kept.join("schema")).arg(file))
    };
    let good = board();
    check(&good).ok();
    let mut unknown = good.clone();
    unknown["panels"][1]["options"]["nonsense"] = json!(1);
    let mut incomplete = good;
    let options = incomplete["panels"][1]["options"].as_object_mut().unwrap();
    options.remove("reduceOptions");
    for (board, field) in [(unknown, "nonsense"), (incomplete, "reduceOptions")] {
        let told = check(&board).exits(1);
        assert!(told.stderr.contains(field), "{}", told.stderr);
    }
}

/// Keeps the files of node_exporter new until Prometheus has scraped them so often.
struct Exposition<'a> {
    setup: &'a Setup,
    server: &'a Server,
    folder: &'a Path,
    has_dcgm: bool,
}

impl Exposition<'_> {
    fn goes_on(&self, scrapes: f64) {
        let begin = self.scrapes();
        until("Prometheus scrapes", || {
            let file = self.folder.join("runmig.prom");
            self.setup
                .migctl(&["metrics", "--textfile", file.to_str().unwrap()])
                .ok();
            if self.has_dcgm {
                let at = self.scrapes();
                measure(
                    self.setup,
                    &self.folder.join("dcgm.prom"),
                    |slice, family| {
                        let wave = 0.5 + 0.4 * (at / 5.0 + slice as f64).sin();
                        let mebibytes = 2048.0 + 1024.0 * slice as f64;
                        match family {
                            "DEV_FB_USED" => mebibytes * (1.0 + wave),
                            "PROF_PIPE_TENSOR_ACTIVE" => wave * 0.6,
                            _ => wave,
                        }
                    },
                );
            }
            self.scrapes() >= begin + scrapes
        });
    }

    fn scrapes(&self) -> f64 {
        let count = self.server.query("count_over_time(up[1h])");
        count.first().map_or(0.0, |one| one.value)
    }
}

/// Returns the folder of node_exporter's files, and the server that scrapes it.
fn collector(setup: &Setup, tools: &[PathBuf; 2]) -> (PathBuf, Server) {
    let folder = setup.path("collector");
    fs::create_dir(&folder).unwrap();
    let server = Server::scraping(setup, tools, &folder, (INTERVAL, "instance: node-1"));
    (folder, server)
}

#[test]
fn components_draw_board() {
    let (Some(kept), Some(tools), Some(setup)) = (kept(), tools(), setup()) else {
        return;
    };
    setup.configure(
        "sharing.enforcement = [\"none\"]\n[[policy.limit]]\nnamespace = \"*\"\nslices = 20\nshares = 4\ngpus = 2\n",
    );
    fill(&setup);
    setup.migctl(&["gc"]).ok();
    let (folder, server) = collector(&setup, &tools);
    let exposition = Exposition {
        setup: &setup,
        server: &server,
        folder: &folder,
        has_dcgm: true,
    };
    let brief = || {
        let id = create(&setup, "brief", "main", &[("runmig.dev/slice", "1g.10gb")]);
        setup.runmig(&["delete", "--force", &id]).ok();
    };
    exposition.goes_on(4.0);
    let mut waiters = Vec::new();
    for round in 0..ROUNDS {
        brief();
        if round == ROUNDS / 2 {
            waiters.push(queue(&setup));
        }
        exposition.goes_on(SCRAPES);
    }

    let picture = std::env::var_os("RUNMIG_BOARD_PICTURE").map(PathBuf::from);
    let seconds = ROUNDS as f64 * SCRAPES * STEP;
    let page = Page::draw(
        &setup.path("page"),
        &kept,
        &server,
        seconds,
        picture.as_deref(),
    );
    for (title, (text, series)) in &page.0 {
        assert!(*series > 0, "{title} has no series: {text}");
    }
    for (title, words) in SHOWN {
        page.shows(title, words);
    }
    let rows = page.text("Leases by holder").matches(" ready ").count();
    assert_eq!(rows, LEASES);
    for title in WORK {
        page.shows(
            title,
            &[
                "GPU 0 2g.20gb team job alone",
                "GPU 1 2g.20gb team train train-gpu",
                "GPU 1 3g.40gb",
            ],
        );
    }
}

/// A panel without data tells why.
#[test]
fn components_draw_without_mig() {
    let machine = Machine::with(&["--gpu", "L4", "--count", "2"]);
    let (Some(kept), Some(tools), Some(setup)) = (kept(), tools(), Setup::on(Low::Runc, machine))
    else {
        return;
    };
    setup.configure("sharing.enforcement = [\"none\"]");
    let (folder, server) = collector(&setup, &tools);
    let exposition = Exposition {
        setup: &setup,
        server: &server,
        folder: &folder,
        has_dcgm: false,
    };
    exposition.goes_on(SCRAPES);
    let page = Page::draw(&setup.path("page"), &kept, &server, SCRAPES * STEP, None);
    for (title, reason) in EMPTY {
        assert_eq!(page.text(title), format!("{title} {reason}"));
    }
    let is_empty = |title: &str| EMPTY.iter().any(|(empty, _)| *empty == title);
    for (title, (text, series)) in &page.0 {
        assert!(*series > 0 || is_empty(title), "{title}: {text}");
    }

    create(&setup, "infer", "a", &[("runmig.dev/share", "4Gi")]);
    exposition.goes_on(SCRAPES);
    let page = Page::draw(&setup.path("page"), &kept, &server, SCRAPES * STEP, None);
    page.shows(
        "Leases by holder",
        &["team infer a share share of 4Gi node-1 0 ready"],
    );
    for title in WORK {
        assert_eq!(page.text(title), format!("{title} {NO_DCGM}"));
    }
}
