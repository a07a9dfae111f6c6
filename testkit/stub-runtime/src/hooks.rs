//! Hooks as runc runs them: the OCI state on standard input, the hook's environment and no other, its
//! time-out kept, and none after one that failed.

use crate::Failure;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn create_runtime(id: &str, state: &Value) -> Result<(), Failure> {
    run_all("createRuntime", id, state, "creating")
}

pub fn poststop(id: &str, state: &Value) -> Result<(), Failure> {
    run_all("poststop", id, state, "stopped")
}

fn run_all(kind: &str, id: &str, state: &Value, status: &str) -> Result<(), Failure> {
    let mut told = json!({
        "ociVersion": "1.0.2", "id": id, "status": status, "bundle": state["bundle"],
    });
    if status == "creating" {
        told["pid"] = state["init_process_pid"].clone();
    }
    for hook in state["hooks"][kind].as_array().into_iter().flatten() {
        let stderr = match kind {
            "poststop" => Stdio::inherit(),
            _ => Stdio::piped(),
        };
        run(hook, told.to_string().as_bytes(), stderr)?;
    }
    Ok(())
}

/// Runs a hook. Its standard error is the caller's, or a part of the failure.
fn run(hook: &Value, stdin: &[u8], stderr: Stdio) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    let strings = |name: &str| -> Vec<String> {
        let list = hook[name].as_array().into_iter().flatten();
        list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let path = hook["path"].as_str().ok_or("a hook without a path")?;
    let args = strings("args");
    let mut command = Command::new(path);
    if let [name, rest @ ..] = args.as_slice() {
        command.arg0(name).args(rest);
    }
    let env = strings("env");
    let pairs = env.iter().filter_map(|pair| pair.split_once('='));
    let mut child = command
        .env_clear()
        .envs(pairs)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|e| format!("hook {path}: {e}"))?;
    // It may end without reading.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(stdin));
    let timeout = hook["timeout"].as_u64().map(Duration::from_secs);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if timeout.is_some_and(|t| start.elapsed() > t) {
            child.kill()?;
            break child.wait()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    if status.success() {
        return Ok(());
    }
    // A hook says little, so its words fit into the pipe.
    let mut said = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = pipe.read_to_string(&mut said);
    }
    Err(format!("hook {path}: {status}: {}", said.trim_end()).into())
}
