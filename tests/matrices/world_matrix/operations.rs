//! Everything that is called on a node, and what is there before.

use crate::world_matrix::node::Node;
use testkit::faults::operations::{HOLDER, ID, makes_way};
use testkit::faults::strace::Call;
use testkit::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Makes the container.
    Create,
    /// The same, and it is over when the call is.
    Run,
    /// There is no room.
    Refused,
    /// Makes nothing, releases nothing.
    Look,
    /// Releases the slice of the container.
    GiveBack,
    /// Releases a slice that no container has.
    Collect,
}

pub struct Operation {
    pub name: &'static str,
    pub kind: Kind,
    pub prepare: fn(&Node) -> Call,
}

const fn operation(name: &'static str, kind: Kind, prepare: fn(&Node) -> Call) -> Operation {
    Operation {
        name,
        kind,
        prepare,
    }
}

pub const ALL: [Operation; 15] = [
    operation("create", Kind::Create, |node| make(node, "create")),
    operation("create-from-idle", Kind::Create, |node| {
        idle(node);
        make(node, "create")
    }),
    operation("create-without-room", Kind::Refused, |node| {
        node.fill();
        make(node, "create")
    }),
    operation("wait", Kind::Create, |node| {
        let wait = [
            ("runmig.dev/slice", node.profile),
            ("runmig.dev/wait", node.wait),
        ];
        let _ = fs::remove_file(node.path("bundles").join(ID).join("config.json"));
        node.bundle_saying(ID, &wait);
        node.fill();
        makes_way(node);
        make(node, "create")
    }),
    operation("run", Kind::Run, |node| {
        node.behave("run-ends\nno-hooks");
        make(node, "run")
    }),
    operation("start", Kind::Look, |node| {
        node.create(ID);
        node.runmig(&["start", ID]).into()
    }),
    operation("exec", Kind::Look, |node| {
        node.create(ID);
        node.runmig(&["exec", ID, "true"]).into()
    }),
    operation("update", Kind::Look, |node| {
        node.create(ID);
        let file = node.path("resources.json");
        fs::write(&file, r#"{"devices": [{"allow": false, "access": "rwm"}]}"#).unwrap();
        let file = format!("--resources={}", file.display());
        node.runmig(&["update", &file, ID]).into()
    }),
    operation("delete", Kind::GiveBack, |node| {
        node.create(ID);
        node.behave("no-hooks");
        node.runmig(&["delete", "--force", ID]).into()
    }),
    operation("poststop", Kind::GiveBack, |node| {
        let lease = node.abandoned(ID);
        node.hook(ID, &lease)
    }),
    operation("gc", Kind::GiveBack, |node| {
        node.abandoned(ID);
        node.migctl(&["gc"]).into()
    }),
    operation("gc-of-idle", Kind::Collect, |node| {
        idle(node);
        node.set("keep_idle = \"1ns\"");
        node.migctl(&["gc"]).into()
    }),
    operation("release", Kind::GiveBack, |node| {
        node.abandoned(ID);
        node.migctl(&["release", ID]).into()
    }),
    operation("list", Kind::Look, |node| {
        node.migctl(&["list", "-o", "json"]).into()
    }),
    operation("configure", Kind::Look, |node| {
        let place = node.path("place");
        let bin = place.join("usr/local/bin");
        fs::create_dir_all(place.join("etc")).unwrap();
        fs::create_dir_all(&bin).unwrap();
        for name in ["runmig", "migctl"] {
            // Not by this process: a program that is written to cannot be started.
            let mut cp = Command::new("cp");
            cp.arg("-u").arg(node.program(name).get_program());
            said(cp.arg(bin.join(name))).ok();
        }
        let mut migctl = node.program(&bin.join("migctl").display().to_string());
        migctl.args(["configure", "podman", "--root"]).arg(place);
        migctl.into()
    }),
];

fn make(node: &Node, verb: &str) -> Call {
    let bundle = node.bundle(ID).display().to_string();
    node.runmig(&[verb, "--bundle", &bundle, ID]).into()
}

/// An idle slice, which runmig would keep.
fn idle(node: &Node) {
    node.set("keep_idle = \"5m\"");
    node.create(HOLDER);
    node.delete(HOLDER);
}
