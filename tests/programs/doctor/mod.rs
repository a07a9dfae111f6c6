//! migctl doctor with the checks of runmig-dra. Its own checks are in sessions/doctor.txt and sessions/doctor_engines.txt.

use testkit::prelude::*;

/// The ids and states of the findings of a diagnosis that fails.
fn findings(setup: &Setup) -> Vec<(String, String)> {
    let only = ["doctor", "-o", "json", "--only=host.boot", "--kubernetes"];
    let said = setup.migctl(&only).exits(1).json();
    assert_eq!(said["kind"], "Diagnosis");
    let text = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
    let items = said["items"].as_array().unwrap().iter();
    items
        .map(|item| (text(item, "id"), text(item, "status")))
        .collect()
}

/// runmig-dra's findings join the others; without it, its absence is one.
#[test]
fn joins_findings_of_kubernetes_driver() {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    let program = Path::new(env!("CARGO_BIN_EXE_runmig")).with_file_name("runmig-dra");
    if !program.exists() {
        return skip("runmig-dra is not built: cargo build --workspace");
    }
    let fail = |id: &str| (id.to_owned(), "fail".to_owned());
    let mut found = findings(&setup);
    found.retain(|(_, status)| status == "fail");
    assert_eq!(found, [fail("kubernetes.driver")]);
    copy_program(&program, &setup.program("runmig-dra"));
    let found = findings(&setup);
    // It has no cluster here.
    assert!(found.contains(&fail("kubernetes.api")), "{found:?}");
    for id in ["kubernetes.gpus", "host.boot"] {
        assert!(found.iter().any(|(its, _)| its == id), "{id}: {found:?}");
    }
}
