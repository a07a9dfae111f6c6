//! The output of nvidia-smi without a verb.

use super::clients::squeeze;

/// The columns of a line of a table, squeezed.
fn columns(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(squeeze).collect()
}

#[test]
fn overview_shows_mig_devices() {
    let smi = smi_on!("--gpu A100-80GB --count 2 --mig on");
    smi.ok("mig -cgi 19,14 -C -i 0");
    let out = smi.ok("");
    let (gpus, devices) = out.split_once("MIG devices:").expect(&out);
    assert_eq!(gpus.matches("NVIDIA A100").count(), 2, "{out}");
    assert_eq!(gpus.matches("Enabled").count(), 2, "{out}");
    assert_eq!(gpus.matches("/ 81920MiB").count(), 2, "{out}");
    // User Guide, "Creating GPU Instances". Columns: GPU, GI, CI and MIG device;
    // memory; SM and ECC errors; CE, ENC, DEC, OFA and JPG.
    let devices: Vec<Vec<String>> = devices
        .lines()
        .filter(|line| line.contains("MiB /"))
        .map(columns)
        .collect();
    let shown: Vec<(&str, &str, &str, &str)> = devices
        .iter()
        .step_by(2) // below each is its BAR1 memory
        .map(|columns| {
            let total = columns[1].rsplit(' ').next().unwrap();
            let sm = columns[2].split(' ').next().unwrap();
            (columns[0].as_str(), total, sm, columns[3].as_str())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("0 5 0 0", "19968MiB", "28", "2 0 1 0 0"),
            ("0 13 0 1", "9728MiB", "14", "1 0 0 0 0")
        ],
        "{out}"
    );
    assert!(out.contains("No running processes found"), "{out}");

    smi.ok("mig -dci");
    let out = smi.ok("");
    assert!(out.contains("No MIG devices found"), "{out}");
}

/// The values of a field in `nvidia-smi -q`, in order.
fn values<'a>(out: &'a str, field: &str) -> Vec<&'a str> {
    out.lines()
        .filter_map(|line| line.split_once(" : "))
        .filter(|(name, _)| name.trim() == field)
        .map(|(_, value)| value.trim())
        .collect()
}

#[test]
fn long_form_shows_mig_devices() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19,14 -C");
    let out = smi.ok("-q");
    let (_, mode) = out.split_once("MIG Mode").expect(&out);
    assert_eq!(
        (values(mode, "Current")[0], values(mode, "Pending")[0]),
        ("Enabled", "Enabled")
    );
    assert!(
        values(&out, "Product Name")[0].starts_with("NVIDIA A100"),
        "{out}"
    );
    assert_eq!(values(&out, "GPU Instance ID"), ["5", "13"]);
    assert_eq!(values(&out, "Compute Instance ID"), ["0", "0"]);
    assert_eq!(values(&out, "Multiprocessor count"), ["28", "14"]);
    let (_, devices) = out.split_once("    MIG Device\n").expect(&out);
    let totals: Vec<_> = values(devices, "Total")
        .into_iter()
        .filter(|v| v.ends_with("MiB"))
        .collect();
    assert_eq!((totals[0], totals[2]), ("19968 MiB", "9728 MiB"), "{out}");
    // The same GPU as -L shows.
    let list = smi.ok("-L");
    assert!(list.contains(values(&out, "GPU UUID")[0]), "{list}");
}

#[test]
fn query_lists_the_gpus() {
    let smi = smi_on!("--gpu A100-80GB --count 2 --mig on");
    let out = smi.lines("--query-gpu=index,mig.mode.current,memory.total --format=csv,noheader");
    assert_eq!(out, ["0, Enabled, 81920 MiB", "1, Enabled, 81920 MiB"]);
}
