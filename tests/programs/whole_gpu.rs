//! A whole GPU in a container. The session whole_gpus has the rest.

use testkit::prelude::*;
use testkit::sharing::mixed;

fn asking(setup: &Setup, script: &str) -> Bundle {
    let bundle = setup.bundle(script);
    bundle.annotate("runmig.dev/gpu", "1");
    bundle
}

fn gives_gpu_alone(low: Low) {
    let setup = Setup::on(low, mixed());
    let one = unique();
    let first = asking(&setup, "exec sleep 1000");
    let before = first.bytes();
    setup.create(&first, &one);

    let said = setup.run(&asking(&setup, SHOW));
    let uuid = setup.machine.gpu_uuid(0);
    assert_eq!(visible(&said.stdout), Some(uuid.as_str()));
    let seen: Vec<String> = nodes(&said.stdout).into_keys().collect();
    let is_gpu = |n: &&String| !n.contains('-') && *n != "nvidiactl";
    assert!(seen.iter().filter(is_gpu).eq(["nvidia0"]), "{seen:?}");
    assert!(!seen.iter().any(|node| node.contains("caps")), "{seen:?}");

    let said = setup.run(&asking(&setup, OPEN));
    lacks(&said.stdout, "not permitted");
    setup.ends(&[&one]);
    assert_eq!(first.bytes(), before);
}

testkit::tests! {
    runc_gets_gpu_alone: gives_gpu_alone(Low::Runc);
    crun_gets_gpu_alone: gives_gpu_alone(Low::Crun);
}
