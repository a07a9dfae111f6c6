//! Prometheus scrapes the endpoint, and node_exporter with the file, while containers come and go.

use super::parsers::tool;
use super::reading::{Exposition, Labels, Series};
use super::*;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::process::until;

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that logs its address into a file. Returns its port.
pub fn serve(command: &mut Command, log: &Path) -> (Running, u16) {
    let file = fs::File::create(log).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    let running = Running(command.spawn().unwrap());
    let port = || {
        let text = fs::read_to_string(log).unwrap();
        let line = text.lines().find(|line| line.contains("Listening on"))?;
        let (_, rest) = line.split_once("address=127.0.0.1:")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    until(&format!("{command:?} listens"), || port().is_some());
    (running, port().unwrap())
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

pub fn api(port: u16, path: &str) -> Value {
    let text = get(port, &format!("/api/v1/{path}")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the series of an instant query.
pub fn query(port: u16, query: &str) -> Vec<Series> {
    let quoted: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = api(port, &format!("query?query={quoted}"));
    let result = answer["data"]["result"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let series = |value: &Value| {
        let labels = value["metric"].as_object().unwrap().iter();
        let mut labels: Labels = labels
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        Series {
            name: labels.remove("__name__").unwrap_or_default(),
            labels,
            value: value["value"][1].as_str().unwrap().parse().unwrap(),
        }
    };
    result.iter().map(series).collect()
}

/// Returns whether Prometheus has the values of `migctl list -o json` for every lease, and no other lease.
fn agrees(port: u16, job: &str, list: &[Value]) -> bool {
    let seen = Exposition(query(
        port,
        &format!("{{__name__=~\"runmig_lease_.*\",job=\"{job}\"}}"),
    ));
    let has = |lease: &Value| {
        let id = lease["id"].as_str().unwrap();
        let info = seen.find("runmig_lease_info", &[("lease", id)]);
        let is_info = |info: &&Series| {
            let gpu_instance = lease["gpuInstanceID"].as_u64().map(|id| id.to_string());
            info.label("state") == lease["state"]
                && info.label("kind") == lease["kind"]
                && info.label("GPU_I_ID") == gpu_instance.unwrap_or_default()
                && info.label("pod") == lease["pod"].as_str().unwrap_or_default()
        };
        let amounts = [
            ("memory", "memoryBytes"),
            ("booked", "bookedBytes"),
            ("memory_used", "usedBytes"),
        ];
        let amount = |(family, field): &(&str, &str)| {
            let its = seen.find(&format!("runmig_lease_{family}_bytes"), &[("lease", id)]);
            its.first().map(|series| series.value) == lease[field].as_f64()
        };
        info.len() == 1 && info.iter().all(is_info) && amounts.iter().all(amount)
    };
    seen.of("runmig_lease_info").len() == list.len() && list.iter().all(has)
}

const JOIN: &str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE * on (UUID, GPU_I_ID) group_left (namespace, pod, container) \
                    runmig_slice_info{job=\"endpoint\"}";

/// Writes what dcgm-exporter would say: half of each instance and of each GPU without MIG is active.
fn stand_in(setup: &Setup, file: &Path) -> usize {
    let mut text =
        "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio.\n# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\n"
            .to_owned();
    let instances = setup.machine.instances();
    for one in &instances {
        text.push_str(&format!(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu=\"{0}\",UUID=\"{1}\",device=\"nvidia{0}\",modelName=\"x\",\
             GPU_I_PROFILE=\"{2}\",GPU_I_ID=\"{3}\",Hostname=\"h\"}} 0.5\n",
            one.gpu, one.gpu_uuid, one.profile, one.gi
        ));
    }
    for gpu in [2, 3] {
        let uuid = setup.machine.gpu_uuid(gpu);
        text.push_str(&format!(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu=\"{gpu}\",UUID=\"{uuid}\",device=\"nvidia{gpu}\",modelName=\"x\",\
             Hostname=\"h\"}} 0.5\n"
        ));
    }
    fs::write(file, text).unwrap();
    instances.len() + 2
}

#[test]
fn prometheus_holds_values_of_list() {
    let tools = ["prometheus", "prometheus-node-exporter"].map(tool);
    let ([Some(prometheus), Some(node_exporter)], Some(setup)) = (tools, setup()) else {
        return;
    };
    let folder = setup.path("collector");
    fs::create_dir(&folder).unwrap();
    // systemd-socket-activate wants a port that is free.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut activate = setup.plain("/usr/bin/systemd-socket-activate".as_ref());
    activate.args([
        "--accept",
        "--inetd",
        "-E",
        "RUNMIG_CONFIG",
        "-l",
        &format!("127.0.0.1:{port}"),
    ]);
    activate
        .arg(setup.program("migctl"))
        .args(["metrics", "--http"]);
    let null = || Stdio::null();
    let _endpoint = Running(
        activate
            .stdin(null())
            .stdout(null())
            .stderr(null())
            .spawn()
            .unwrap(),
    );
    let mut exporter = Command::new(node_exporter);
    exporter.args([
        "--collector.disable-defaults",
        "--collector.textfile",
        "--web.listen-address=127.0.0.1:0",
    ]);
    exporter.arg(format!(
        "--collector.textfile.directory={}",
        folder.display()
    ));
    let (_exporter, exporter) = serve(&mut exporter, &setup.path("exporter.log"));
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n\
         - {{job_name: endpoint, scrape_timeout: 1s, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n\
         - {{job_name: textfile, static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]}}\n"
    );
    fs::write(setup.path("prometheus.yml"), config).unwrap();
    let mut server = Command::new(prometheus);
    server.arg("--web.listen-address=127.0.0.1:0");
    server.arg(format!(
        "--config.file={}",
        setup.path("prometheus.yml").display()
    ));
    server.arg(format!(
        "--storage.tsdb.path={}",
        setup.path("tsdb").display()
    ));
    let (_server, server) = serve(&mut server, &setup.path("prometheus.log"));

    let check = || {
        let file = folder.join("runmig.prom");
        setup
            .migctl(&["metrics", "--textfile", file.to_str().unwrap()])
            .ok();
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
    setup
        .runmig(&["delete", "--force", job["container"].as_str().unwrap()])
        .ok();
    create(&setup, "next", "main", &[("runmig.dev/slice", "2g.20gb")]);
    check();

    let type_and_unit = |family: &str| {
        let told = api(server, &format!("metadata?metric={family}"));
        let told = told["data"][family].as_array().cloned().unwrap_or_default();
        let of = |entry: &Value| {
            (
                entry["type"].clone(),
                entry["unit"].clone(),
                entry["help"] != "",
            )
        };
        told.iter().map(of).collect::<Vec<_>>()
    };
    let info = ("info".into(), "".into(), true);
    until("the metadata of an info", || {
        type_and_unit("runmig_slice").contains(&info)
    });
    let bytes = ("gauge".into(), "bytes".into(), true);
    assert!(type_and_unit("runmig_lease_memory_bytes").contains(&bytes));

    // Each instance has one container or none, and no query fails for a second series.
    let count = stand_in(&setup, &folder.join("dcgm.prom"));
    until("the join names each instance", || {
        query(server, JOIN).len() == count
    });
    let joined = Exposition(query(server, JOIN));
    let pod = |pod: &str| joined.find("", &[("pod", pod)]);
    let (shared, alone, whole) = (pod("web"), pod("next"), pod("whole"));
    assert_eq!((shared.len(), shared[0].label("container")), (1, ""));
    assert_eq!((alone.len(), alone[0].label("container")), (1, "main"));
    assert_eq!((whole.len(), whole[0].label("GPU_I_ID")), (1, ""));
    let shares = pod("infer");
    assert_eq!((shares.len(), shares[0].label("container")), (1, ""));
    assert_eq!(
        pod("").len(),
        1,
        "the instance of an administrator has no pod"
    );
    assert!(joined.0.iter().all(|series| series.value == 0.5));
}

/// Every connection gets its own process, and its whole answer.
#[test]
fn answers_hundred_at_once() {
    let Some(setup) = setup() else { return };
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut activate = setup.plain("/usr/bin/systemd-socket-activate".as_ref());
    activate.args([
        "--accept",
        "--inetd",
        "-E",
        "RUNMIG_CONFIG",
        "-l",
        &format!("127.0.0.1:{port}"),
    ]);
    activate
        .arg(setup.program("migctl"))
        .args(["metrics", "--http"]);
    let null = || Stdio::null();
    let _endpoint = Running(
        activate
            .stdin(null())
            .stdout(null())
            .stderr(null())
            .spawn()
            .unwrap(),
    );
    until("the endpoint answers", || get(port, "/metrics").is_some());
    let asking: Vec<_> = (0..100)
        .map(|_| std::thread::spawn(move || get(port, "/metrics")))
        .collect();
    for one in asking {
        let text = one.join().unwrap().expect("an answer");
        assert_eq!(
            Exposition::read(&text)
                .of("runmig_exposition_seconds")
                .len(),
            1
        );
    }
}
