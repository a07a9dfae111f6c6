//! A second kind of resource and a second kind of holder: create, kill, gc and release.

use super::levels::LazyLevels;
use super::provision::{Failed, provision};
use super::record::{Allocation, Part, roll_back};
use super::requester::Tried;
use crate::bundles::NoBundles;
use crate::config::Config;
use crate::context::{LeaseContext, now};
use crate::draft;
use crate::dummy;
use crate::model::{LeaseId, Process};
use crate::reclaim::{self, Outcome, Patience, Returned, holder};
use crate::store::{
    Held, Holder, InstanceState, Key, Lease, LeaseState, Origin, Portion, Resource, random_id,
};
use std::fs;
use std::path::PathBuf;

struct World {
    dir: tempfile::TempDir,
    config: Config,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().join("state"),
            ..Config::default()
        };
        let world = World { dir, config };
        fs::write(world.file("life"), "").unwrap();
        world
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn context(&self) -> LeaseContext<'_> {
        LeaseContext::open(&self.config, Box::new(NoBundles)).unwrap()
    }

    fn has_hardware(&self) -> bool {
        self.file("hardware").exists()
    }

    /// Returns a lease and an instance that are not on record yet, of an operation that is killed.
    fn draft(&self, context: &LeaseContext<'_>) -> Held {
        let resource = Resource::Dummy(dummy::Resource {
            gpu_uuid: "GPU-1".into(),
            file: self.file("hardware"),
        });
        let state = (Origin::Ours, InstanceState::Creating);
        let instance = draft::instance(context, resource, state).unwrap();
        let lease = Lease {
            id: LeaseId::new(random_id().unwrap()),
            instance: instance.id.clone(),
            portion: Portion::All,
            state: LeaseState::Pending,
            boot_id: context.boot_id.clone(),
            created: now(),
            request: "a dummy".to_owned(),
            holder: Holder::Dummy(dummy::Holder {
                name: "claim".to_owned(),
                dir: self.dir.path().to_owned(),
            }),
            operation: Some(context.store.begin().unwrap().id().to_owned()),
            creator: Process {
                pid: 1,
                start_time: 0,
            },
            runtime_process: None,
            init: None,
            namespaces: None,
            cgroups: Vec::new(),
            shared_in: None,
            limit: None,
        };
        Held { lease, instance }
    }

    fn create(&self, context: &LeaseContext<'_>) -> Held {
        let held = self.draft(context);
        context.store.lock("test").unwrap().put_new(&held).unwrap();
        provisioned(context, held).ok().unwrap().remove(0)
    }

    /// The holder is withdrawn, and a collector comes.
    fn ends_with_a_collection(&self, context: &LeaseContext<'_>) {
        fs::write(self.file("withdrawn"), "").unwrap();
        let collected = reclaim::gc(context, false).unwrap();
        assert!(collected.damaged.is_empty());
        for found in &collected.leases {
            assert!(matches!(found.outcome, Outcome::Released(_)), "{found:?}");
        }
        self.nothing_is_left(context);
    }

    fn nothing_is_left(&self, context: &LeaseContext<'_>) {
        assert!(!self.has_hardware());
        assert_eq!(context.store.names(), Vec::<String>::new());
        assert!(self.file("released").exists());
    }
}

fn provisioned(context: &LeaseContext<'_>, held: Held) -> Result<Vec<Held>, Failed> {
    let parts = vec![Part::Place(held)];
    let driver = context.driver();
    provision(
        context,
        (&driver, &LazyLevels::new()),
        Allocation { parts },
        &mut Tried::default(),
    )
}

#[test]
fn creates_and_releases_second_kind() {
    let world = World::new();
    let context = world.context();
    let held = world.create(&context);
    assert!(world.has_hardware());
    assert_eq!(held.instance.state, InstanceState::Ready);
    let listing = context.store.list().unwrap();
    assert_eq!(listing.held().collect::<Vec<_>>(), [&held]);
    // It takes no part of a GPU in MIG mode, and no container's key finds it.
    assert_eq!(draft::footprint(&held.instance), None);
    assert!(
        !held
            .lease
            .is_of(&Key::new("dummy".into(), "claim".to_owned()))
    );

    let life = |now: &Lease| holder::sign_of_life(&context.store, now);
    let kept = reclaim::release_unless(&context, &held, Patience::NONE, life).unwrap();
    assert_eq!(kept, Returned::No("its file exists".to_owned()));
    fs::remove_file(world.file("life")).unwrap();
    let released = reclaim::release_unless(&context, &held, Patience::NONE, life).unwrap();
    assert_eq!(released, Returned::Yes);
    world.nothing_is_left(&context);
}

#[test]
fn collector_keeps_second_kind_until_withdrawn() {
    let world = World::new();
    let context = world.context();
    world.create(&context);
    fs::remove_file(world.file("life")).unwrap();
    let collected = reclaim::gc(&context, false).unwrap();
    let outcomes: Vec<&Outcome> = collected.leases.iter().map(|f| &f.outcome).collect();
    assert!(
        matches!(outcomes[..], [Outcome::Kept(why)] if why == "nobody withdrew it"),
        "{outcomes:?}"
    );
    assert!(world.has_hardware());
    world.ends_with_a_collection(&context);
}

/// A kill after each step of a create.
#[test]
fn killed_create_keeps_second_kind() {
    type Step = fn(&LeaseContext<'_>, &Held);
    let steps: [Step; 4] = [
        |context, held| {
            let ledger = context.store.lock("test").unwrap();
            ledger.put_lease(&held.lease).unwrap();
        },
        |context, held| {
            let ledger = context.store.lock("test").unwrap();
            ledger.put_instance(&held.instance).unwrap();
        },
        |_, held| match &held.instance.resource {
            Resource::Dummy(dummy) => dummy.create().unwrap(),
            Resource::Mig(_) | Resource::Gpu(_) | Resource::Mps(_) => {
                unreachable!("the draft is a dummy")
            }
        },
        |context, held| {
            let ready = context.record(held, |i| i.state = InstanceState::Ready);
            assert_eq!(ready.unwrap().instance.state, InstanceState::Ready);
        },
    ];
    // The first step alone leaves a lease without an instance. It counts as damaged (reclaim/damaged.rs).
    for killed_after in 2..=steps.len() {
        let world = World::new();
        let context = world.context();
        let held = world.draft(&context);
        steps[..killed_after]
            .iter()
            .for_each(|step| step(&context, &held));
        assert_eq!(world.has_hardware(), killed_after > 2);
        world.ends_with_a_collection(&context);
    }
}

#[test]
fn quarantines_undestroyable_second_kind() {
    let world = World::new();
    let context = world.context();
    let held = world.create(&context);
    fs::remove_file(world.file("hardware")).unwrap();
    fs::create_dir(world.file("hardware")).unwrap();
    let line = reclaim::release(&context, &held, Patience::NONE)
        .unwrap_err()
        .line();
    assert!(line.starts_with("cannot destroy "), "{line}");
    let now = context.store.held_now(&held).unwrap().unwrap();
    assert_eq!(now.instance.attempt().unwrap().count, 1);
    fs::remove_dir(world.file("hardware")).unwrap();
    world.ends_with_a_collection(&context);
}

#[test]
fn failed_create_rolls_back_second_kind() {
    let world = World::new();
    let context = world.context();
    let held = world.draft(&context);
    context.store.lock("test").unwrap().put_new(&held).unwrap();
    fs::create_dir(world.file("hardware")).unwrap();
    let failed = provisioned(&context, held).err().unwrap();
    assert!(failed.error.unwrap().line().starts_with("cannot create "));
    fs::remove_dir(world.file("hardware")).unwrap();
    roll_back(&context, failed.undo).unwrap();
    world.nothing_is_left(&context);
}

/// The names alone tell a second kind, so that a record with every byte lost keeps it.
#[test]
fn keeps_damaged_record_of_second_kind() {
    let world = World::new();
    let context = world.context();
    let held = world.create(&context);
    fs::write(context.store.instance_file(&held.instance), "").unwrap();
    let collected = reclaim::gc(&context, false).unwrap();
    assert!(collected.leases.is_empty());
    assert!(
        matches!(&collected.damaged[..], [(_, Outcome::Kept(why))] if why == "its file exists"),
        "{:?}",
        collected.damaged
    );
    assert!(world.has_hardware());
    fs::remove_file(world.file("life")).unwrap();
    let collected = reclaim::gc(&context, false).unwrap();
    let (_, outcome) = &collected.damaged[0];
    assert!(
        matches!(outcome, Outcome::Failed(e) if e.line().contains("destroy it by hand")),
        "{outcome:?}"
    );
    assert!(world.has_hardware());
}
