//! Prometheus scrapes the endpoint, and node_exporter with the file, while containers come and go.

use super::parsers::tool;
use super::reading::{Exposition, Labels, Series};
use super::*;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use testkit::prelude::*;

/// Starts a server that logs its address. Returns its port.
fn serve(command: &mut Command) -> (Going, u16) {
    let running = going(command.stdin(Stdio::null()));
    let port = || {
        let text = running.said_so_far();
        let line = text.lines().find(|line| line.contains("Listening on"))?;
        let (_, rest) = line.split_once("address=127.0.0.1:")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    until(&format!("{command:?} listens"), || port().is_some());
    let port = port().unwrap();
    (running, port)
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

fn api(port: u16, path: &str) -> Value {
    let text = get(port, &format!("/api/v1/{path}")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the answer to an instant query.
pub fn answer(port: u16, query: &str) -> Value {
    let quoted: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    api(port, &format!("query?query={quoted}"))
}

/// Returns the series of an instant query.
pub fn query(port: u16, query: &str) -> Vec<Series> {
    let answer = answer(port, query);
    let result = answer["data"]["result"].as_array();
    let series = |value: &Value| {
        let labels = value["metric"].as_object().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut labels: Labels = labels
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        Series {
            name: labels.remove("__name__").unwrap_or_default(),
            labels,
            value: value["value"][1].as_str().unwrap().parse().unwrap(),
        }
    };
    result.into_iter().flatten().map(series).collect()
}

/// Returns whether Prometheus has every lease of `migctl list -o json` in its state, and no other lease.
fn agrees(port: u16, job: &str, list: &[Value]) -> bool {
    let seen = query(port, &format!("runmig_lease_info{{job=\"{job}\"}}"));
    let fields = [("lease", "id"), ("state", "state"), ("kind", "kind")];
    let is_of = |series: &Series, lease: &Value| {
        let mut fields = fields.iter();
        fields.all(|(label, field)| lease[field] == series.label(label))
    };
    let has = |lease: &Value| seen.iter().any(|series| is_of(series, lease));
    seen.len() == list.len() && list.iter().all(has)
}

/// Returns the programs of Prometheus and of node_exporter.
pub fn tools() -> Option<[PathBuf; 2]> {
    let [prometheus, exporter] = ["prometheus", "prometheus-node-exporter"].map(tool);
    Some([prometheus?, exporter?])
}

/// Starts node_exporter with a folder of textfiles alone.
pub fn node_exporter(program: &Path, folder: &Path) -> (Going, u16) {
    let mut exporter = Command::new(program);
    exporter.args([
        "--collector.disable-defaults",
        "--collector.textfile",
        "--web.listen-address=127.0.0.1:0",
    ]);
    let folder = folder.display();
    exporter.arg(format!("--collector.textfile.directory={folder}"));
    serve(&mut exporter)
}

/// Starts Prometheus with a configuration.
pub fn prometheus(setup: &Setup, program: &Path, config: &str) -> (Going, u16) {
    let (file, data) = (setup.path("prometheus.yml"), setup.path("tsdb"));
    fs::write(&file, config).unwrap();
    let mut server = Command::new(program);
    server.arg("--web.listen-address=127.0.0.1:0");
    server.arg(format!("--config.file={}", file.display()));
    server.arg(format!("--storage.tsdb.path={}", data.display()));
    serve(&mut server)
}

/// Serves migctl's metrics as the units of systemd do: a process for each connection.
fn endpoint(setup: &Setup) -> (Going, u16) {
    // systemd-socket-activate wants a port that is free.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut activate = setup.plain("/usr/bin/systemd-socket-activate".as_ref());
    activate.args(["--accept", "--inetd", "-E", "RUNMIG_CONFIG", "-l"]);
    activate
        .arg(format!("127.0.0.1:{port}"))
        .arg(setup.program("migctl"));
    activate.args(["metrics", "--http"]);
    (going(activate.stdin(Stdio::null())), port)
}

#[test]
fn prometheus_holds_values_of_list() {
    let Some([prometheus, node_exporter]) = tools() else {
        return;
    };
    let setup = setup();
    let folder = setup.path("collector");
    fs::create_dir(&folder).unwrap();
    let (_endpoint, port) = endpoint(&setup);
    let (_exporter, exporter) = self::node_exporter(&node_exporter, &folder);
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n\
         - {{job_name: endpoint, scrape_timeout: 1s, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n\
         - {{job_name: textfile, static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]}}\n"
    );
    let (_server, server) = self::prometheus(&setup, &prometheus, &config);

    let check = || {
        let file = folder.join("runmig.prom");
        let textfile = ["metrics", "--textfile", file.to_str().unwrap()];
        setup.migctl(&textfile).ok();
        let list = setup.leases();
        for job in ["endpoint", "textfile"] {
            until(&format!("{job} has {list:#?}"), || {
                agrees(server, job, &list)
            });
        }
    };
    check();
    fill(&setup);
    check();
    let list = setup.leases();
    let job = list.iter().find(|lease| lease["pod"] == "job").unwrap();
    setup.delete(job["container"].as_str().unwrap());
    create(&setup, "next", "main", &[("runmig.dev/slice", "2g.20gb")]);
    check();
}

/// Every connection gets its own process, and its whole answer.
#[test]
fn answers_hundred_at_once() {
    let setup = setup();
    let (_endpoint, port) = endpoint(&setup);
    until("the endpoint answers", || get(port, "/metrics").is_some());
    let asking: Vec<_> = (0..100)
        .map(|_| std::thread::spawn(move || get(port, "/metrics")))
        .collect();
    for one in asking {
        let text = one.join().unwrap().expect("an answer");
        Exposition::read(&text).value("runmig_exposition_seconds", &[]);
    }
}
