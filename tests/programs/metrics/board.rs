//! The board for Grafana: its schema accepts it, and Prometheus answers each of its queries with series, also where it has
//! renamed pods, and without dcgm-exporter.

use super::parsers::there;
use super::prometheus::{answer, node_exporter, prometheus, query, tools};
use super::reading::Series;
use super::*;
use testkit::prelude::*;
use testkit::runtimes;

/// The activity of every slice, but of the claim's.
const ACTIVE: f64 = 0.5;
const IDLE: f64 = 0.01;
const LEASES: usize = 9;

struct Query {
    panel: String,
    text: String,
}

impl Query {
    /// Returns whether the query needs dcgm-exporter.
    fn is_of_dcgm(&self) -> bool {
        self.text.contains("DCGM_")
            || self.text.contains("_active:ratio")
            || self.text.contains("runmig:slice_memory_used")
    }
}

fn board() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/grafana/runmig.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Fills in the variables, as All does. A lease of the test is younger than 15 minutes.
fn filled(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, value) in testkit::rows! {
        "$__rate_interval" => "1m";
        "$__range" => "1h";
        "$node" => ".*";
        "$gpu" => ".*";
        "$namespace" => ".*";
        "$kind" => ".*";
        "runmig:lease_age:seconds > 900" => "runmig:lease_age:seconds > 0";
    } {
        text = text.replace(name, value);
    }
    lacks(&text, "$");
    text
}

fn queries(board: &Value) -> Vec<Query> {
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(|target| Query {
            panel: panel["title"].as_str().unwrap().to_owned(),
            text: filled(target["expr"].as_str().unwrap()),
        })
    });
    targets.collect()
}

/// Returns the first query of a panel.
#[track_caller]
fn named<'a>(queries: &'a [Query], panel: &str) -> &'a Query {
    let found = queries.iter().find(|one| one.panel == panel);
    found.unwrap_or_else(|| panic!("no panel {panel}"))
}

/// Returns the values of a variable, whose query is `label_values(SERIES, LABEL)`.
fn values(port: u16, of: &str) -> BTreeSet<String> {
    let inside = of.strip_prefix("label_values(").unwrap();
    let inside = inside.strip_suffix(')').unwrap();
    let (series, label) = inside.rsplit_once(", ").unwrap();
    let series = query(port, &filled(series));
    let values = series.iter().map(|one| one.label(label).to_owned());
    values.collect()
}

/// Writes what dcgm-exporter would say of every instance, and of every GPU without MIG. The slice of the claim is idle.
fn measure(setup: &Setup, file: &Path) {
    let instances = setup.machine.instances();
    let mig = instances.iter().map(|one| {
        let is_of_claim = one.profile == "2g.20gb" && one.gpu == 1;
        let active = if is_of_claim { IDLE } else { ACTIVE };
        (one.gpu_uuid.clone(), one.gi.to_string(), active)
    });
    let whole = [2, 3].map(|gpu| (setup.machine.gpu_uuid(gpu), String::new(), ACTIVE));
    let slices: Vec<_> = mig.chain(whole).collect();
    let mut text = String::new();
    for family in [
        "PROF_GR_ENGINE_ACTIVE",
        "PROF_PIPE_TENSOR_ACTIVE",
        "PROF_DRAM_ACTIVE",
        "DEV_FB_USED",
    ] {
        let family = format!("DCGM_FI_{family}");
        text.push_str(&format!("# HELP {family} x\n# TYPE {family} gauge\n"));
        for (uuid, id, value) in &slices {
            let labels = format!("UUID=\"{uuid}\",GPU_I_ID=\"{id}\",Hostname=\"h\"");
            text.push_str(&format!("{family}{{{labels}}} {value}\n"));
        }
    }
    // node_exporter reads no half of it.
    fs::write(file.with_extension("new"), text).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

/// Returns a folder with the machine's textfile.
fn collected(setup: &Setup) -> PathBuf {
    let folder = setup.path("collector");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("runmig.prom");
    let file = file.to_str().unwrap();
    setup.migctl(&["metrics", "--textfile", file]).ok();
    folder
}

/// node_exporter with a folder of textfiles, and Prometheus with the rules, which scrapes it.
struct Server {
    exporter: u16,
    port: u16,
    _running: [Going; 2],
}

impl Server {
    /// Scrapes as if node_exporter were a pod: Prometheus renames the labels of the exposition.
    fn of(setup: &Setup, [server, exporter]: &[PathBuf; 2], folder: &Path) -> Server {
        let labels = "namespace: monitoring, pod: exporter, container: exporter";
        let (serving, exporter) = node_exporter(exporter, folder);
        let config = format!(
            "global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 500ms}}\n\
             rule_files: [{}/prometheus/runmig.rules.yml]\nscrape_configs:\n\
             - job_name: node\n  static_configs:\n  - targets: ['127.0.0.1:{exporter}']\n    \
             labels: {{{labels}}}\n",
            env!("CARGO_MANIFEST_DIR")
        );
        let (running, port) = prometheus(setup, server, &config);
        Server {
            exporter,
            port,
            _running: [serving, running],
        }
    }

    fn query(&self, text: &str) -> Vec<Series> {
        query(self.port, text)
    }

    /// Waits until there are series.
    #[track_caller]
    fn answers(&self, one: &Query) {
        let what = format!("{}: {}", one.panel, one.text);
        until(&what, || !self.query(&one.text).is_empty());
    }

    /// A query without series is no error.
    #[track_caller]
    fn accepts(&self, one: &Query) {
        let answer = answer(self.port, &one.text);
        assert_eq!(answer["status"], "success", "{}: {answer}", one.panel);
    }
}

#[test]
fn board_queries_return_series() {
    let Some(tools) = tools() else { return };
    let setup = setup();
    let limit = "[[policy.limit]]\nnamespace = \"*\"\nslices = 20";
    setup.configure(&format!("{NONE}\n{limit}"));
    fill(&setup);
    setup.migctl(&["gc"]).ok();
    let _waiter = setup.waits(&[("runmig.dev/slice", "7g.80gb")]);
    let folder = collected(&setup);
    let server = Server::of(&setup, &tools, &folder);
    let board = board();
    let queries = queries(&board);
    for one in &queries {
        match one.is_of_dcgm() {
            true => server.accepts(one),
            false => server.answers(one),
        }
    }
    measure(&setup, &folder.join("dcgm.prom"));
    queries.iter().for_each(|one| server.answers(one));

    let of = |panel: &str| server.query(&named(&queries, panel).text);
    let value = |panel: &str| of(panel)[0].value;
    for (panel, wanted) in [
        ("GPUs", 4.0),
        ("Leases", LEASES as f64),
        ("Queue", 1.0),
        ("Quarantine", 0.0),
        ("Unreadable ledger", 0.0),
    ] {
        assert_eq!(value(panel), wanted, "{panel}");
    }
    let holders = of("Leases by holder");
    assert_eq!(holders.len(), LEASES);
    // The names of the exposition.
    let names = [("namespace", "team")];
    holders.iter().for_each(|one| one.is(&names));
    let is_claim = |one: &&Series| one.label("claim") == "train-gpu";
    let claim = holders.iter().find(is_claim).unwrap();
    claim.is(&[("pod", "train"), ("container", "")]);
    // A claim holds the only slice below 5 %.
    let unused = of("Unused leases");
    assert_eq!(unused.len(), 1, "{unused:?}");
    assert_eq!(unused[0].label("claim"), "train-gpu");
    // Slices of 1, 2 and 3 of 7 compute slices.
    let (first, whole) = (setup.machine.gpu_uuid(0), of("Engine activity of the GPU"));
    let whole = whole.iter().find(|one| one.label("UUID") == first).unwrap();
    assert!((whole.value - ACTIVE * 6.0 / 7.0).abs() < 1e-9, "{whole:?}");

    // scripts/board draws from this Prometheus.
    if let Some(draw) = std::env::var_os("RUNMIG_BOARD_DRAW") {
        let mut draw = setup.plain(draw.as_ref());
        draw.arg("draw").arg(server.port.to_string()).arg(&folder);
        said(draw.arg(setup.program("migctl"))).ok();
    }

    let variables = board["templating"]["list"].as_array().unwrap().iter();
    let variables = variables.filter(|one| one["type"] == "query");
    for variable in variables {
        let found = values(server.port, variable["query"].as_str().unwrap());
        let wanted: BTreeSet<String> = match variable["name"].as_str().unwrap() {
            "node" => [format!("127.0.0.1:{}", server.exporter)].into(),
            "gpu" => (0..4).map(|gpu| setup.machine.gpu_uuid(gpu)).collect(),
            "namespace" => ["team".to_owned()].into(),
            "kind" => ["slice", "share", "gpu", "seat"].map(str::to_owned).into(),
            other => panic!("no test of ${other}"),
        };
        assert_eq!(found, wanted, "{}", variable["name"]);
    }
}

#[test]
fn schema_accepts_board() {
    let schema = runtimes::cache().map(|cache| cache.join("schema/schema"));
    let Some(schema) = schema.and_then(|at| there(at, "full")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let check = |board: &Value| {
        let file = folder.path().join("board.json");
        fs::write(&file, board.to_string()).unwrap();
        said(Command::new(&schema).arg(file))
    };
    let good = board();
    check(&good).ok();
    let mut unknown = good.clone();
    unknown["panels"][1]["options"]["nonsense"] = json!(1);
    let mut incomplete = good;
    let options = incomplete["panels"][1]["options"].as_object_mut().unwrap();
    options.remove("reduceOptions");
    for (board, field) in [(unknown, "nonsense"), (incomplete, "reduceOptions")] {
        check(&board).exits(1).warns(field);
    }
}

/// With MIG off and without dcgm-exporter the panels of both are empty, and no query fails.
#[test]
fn board_works_without_mig() {
    let Some(tools) = tools() else { return };
    let setup = Setup::with("--gpu L4 --count 2", NONE);
    create(&setup, "infer", "a", &[("runmig.dev/share", "4Gi")]);
    let folder = collected(&setup);
    let server = Server::of(&setup, &tools, &folder);
    let queries = queries(&board());
    for (panel, value) in [
        ("GPUs", 2.0),
        ("Leases", 1.0),
        ("Queue", 0.0),
        ("Oldest wait", 0.0),
        ("Driver errors", 0.0),
    ] {
        let text = &named(&queries, panel).text;
        until(panel, || {
            server.query(text).iter().map(|one| one.value).eq([value])
        });
    }
    for panel in ["Memory in use", "Memory by state", "Driver"] {
        server.answers(named(&queries, panel));
    }
    queries.iter().for_each(|one| server.accepts(one));
    let holders = named(&queries, "Leases by holder");
    server.answers(holders);
    let holders = server.query(&holders.text);
    assert_eq!((holders.len(), holders[0].label("pod")), (1, "infer"));
}
