//! What the core does, says and logs on a simulated machine, step by step: each text in `transcripts/` has a machine, and steps
//! with their answers. `UPDATE=1 cargo test --workspace --test core -- leases::transcripts` writes the answers anew.

use super::Node;
use nix::mount::{MsFlags, mount};
use nvml_sim::engine::{Driver, Holder, HolderKind, MemoryLimit, Target, UNLIMITED};
use runmig_lease::error::Result;
use runmig_lease::events::Event;
use runmig_lease::model::{GpuUuid, Placement};
use runmig_lease::placement::{MAX_STEPS, SlotCost, Verdict};
use runmig_lease::policy::Subject;
use runmig_lease::store::{Claim, ClaimName, ClaimPod, Held, Key, Lease};
use runmig_lease::what_if::{Answer, OnTrial, WhatIf};
use runmig_lease::{
    Applied, ClaimNews, ClaimPlace, Finding, Inventory, LeaseView, ObservedShare, Outcome,
    Patience, PlannedInstance, PlannedMode, SliceView, observe, process,
};
use std::cell::RefCell;
use std::sync::Once;
use std::time::SystemTime;
use testkit::prelude::{BTreeMap, Duration, Path, Write, fs, io, script, until};
use testkit::{cgroup2, faults::machine, mounted::own_mounts, process::kill};

#[test]
fn each_step_answers_as_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/leases/transcripts");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // A thread of its own, which may have mounts of its own.
        let now =
            std::thread::scope(|scope| scope.spawn(|| said(&text)).join()).expect("the steps");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, now).unwrap();
        } else {
            let mut both = now.lines().zip(text.lines());
            assert_eq!(
                both.find(|(now, before)| now != before),
                None,
                "{}",
                path.display()
            );
            assert_eq!(now.len(), text.len(), "{}", path.display());
        }
    }
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = RefCell::default();
}

/// Collects what each thread logs. A subscriber for one thread alone would lose what another one logs first: its place in the
/// code then counts as one that nobody listens to.
fn log_by_thread() {
    struct Log;
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            LOG.with_borrow_mut(|log| log.write(bytes))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false);
    subscriber.without_time().with_writer(|| Log).init();
}

/// Returns a transcript with the answers of now.
fn said(text: &str) -> String {
    let mut lines = text.lines();
    let machine = lines.next().unwrap();
    let (model, others) = machine.split_once(" + ").unwrap();
    let config: Vec<&str> = { lines.clone() }
        .take_while(|line| !line.is_empty())
        .collect();
    let node = &Node::new(model, others.parse().unwrap(), &config.join("\n"));
    let mut now = format!("{machine}\n{}\n", config.join("\n"));
    static BEGIN: Once = Once::new();
    BEGIN.call_once(log_by_thread);
    LOG.take();
    std::thread::scope(|scope| {
        let (mut events, mut waits) = (0, BTreeMap::new());
        for step in lines.filter(|line| line.starts_with("$ ")) {
            let words: Vec<&str> = step[2..].split(' ').collect();
            let answer = match words[..] {
                ["wait", id, ..] => {
                    waits.insert(id, scope.spawn(move || waited(node, id, &words[2..])));
                    let its = format!("{id} waits");
                    until(&its, || queue(node).iter().any(|w| w.starts_with(&its)));
                    Ok(queue(node))
                }
                ["waited", id] => Ok(waits.remove(id).unwrap().join().unwrap()),
                _ => answer(node, &words, &mut events),
            };
            let mut lines = answer.unwrap_or_else(|e| vec![e.line()]);
            lines.extend(logged());
            let lines = lines.iter().map(|line| plain(node, line) + "\n");
            now += &format!("\n{step}\n{}", lines.collect::<String>());
        }
    });
    now
}

/// Creates a container that waits. Returns what the create said of it.
fn waited(node: &Node, id: &str, asked: &[&str]) -> Vec<String> {
    let refused = node.create(id, &pairs(asked)).err();
    let logged = logged().into_iter();
    let of_it =
        logged.filter(|line| line.contains(&format!("\"{id}\"")) || line.contains("made: "));
    { refused.iter().map(|e| e.line()) }.chain(of_it).collect()
}

/// Returns the requests that wait, in their order.
fn queue(node: &Node) -> Vec<String> {
    let all = node.leases().store().waiting().unwrap();
    { all.iter() }
        .map(|w| format!("{} waits for {}", w.waiter.container, w.waiter.request))
        .collect()
}

/// Returns what this thread logged since the last call.
fn logged() -> Vec<String> {
    let log = String::from_utf8(LOG.take()).unwrap();
    // Whether a wait of a millisecond is over at the first look is a matter of time.
    { log.lines().map(str::trim_start) }
        .filter(|line| !line.starts_with("INFO waits for"))
        .map(str::to_owned)
        .collect()
}

/// Returns the text without what differs between two runs: paths, also in names of cgroups, UUIDs, pids and times.
fn plain(node: &Node, text: &str) -> String {
    let dir = node.dir.path().to_str().unwrap();
    let cgroup = &dir[dir.rfind('/').unwrap()..];
    let mut text = text.replace(dir, "DIR").replace(cgroup, "");
    for (index, gpu) in node.machine.engine().gpus.iter().enumerate() {
        text = text.replace(&gpu.uuid, &format!("GPU-{index}"));
    }
    let mut plain = Vec::new();
    let mut last = "";
    for word in text.split(' ') {
        // `lease="…"` in the log.
        let (key, value) = word.split_at(word.find("=\"").map_or(0, |at| at + 2));
        let end = value.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-:".contains(c));
        let is_id = value.bytes().filter(u8::is_ascii_hexdigit).count() >= 32;
        let is_time = last == "for" && word.parse::<u64>().is_ok();
        plain.push(
            match is_id || is_time || ["process", "since"].contains(&last.trim_start_matches('(')) {
                true => format!("{key}…{end}"),
                false => word.to_owned(),
            },
        );
        last = word;
    }
    plain.join(" ")
}

fn answer(node: &Node, words: &[&str], events: &mut usize) -> Result<Vec<String>> {
    let leases = node.leases();
    let index = |gpu: &str| gpu.parse::<usize>().unwrap();
    let uuid = |gpu: &str| GpuUuid::new(node.machine.engine().gpus[index(gpu)].uuid.clone());
    let mut lines = Vec::new();
    match words {
        ["create", id, asked @ ..] => {
            node.create(id, &pairs(asked))?;
        }
        ["explain", asked @ ..] => return explained(node, &pairs(asked)),
        ["ends", id] => node.ends(id),
        ["release", id, forced @ ..] => {
            for held in leases.of(&Key::new(node.path("root"), (*id).to_owned()))? {
                let life = |lease: &Lease| leases.sign_of_life(lease).filter(|_| forced.is_empty());
                lines.push(format!(
                    "{:?}",
                    leases.release_unless(&held, Patience::default(), life)?
                ));
            }
        }
        // No collection of a create that waits finds it dead with its lease. But such a create may take part in the release.
        ["drop", id] => {
            let held = leases.of(&Key::new(node.path("root"), (*id).to_owned()))?;
            leases.release_unless(&held[0], Patience::default(), |_| None)?;
            node.ends(id);
            LOG.take();
        }
        ["gc", dry @ ..] => {
            lines.extend(leases.gc(dry == ["dry"])?.iter().map(found));
            lines.sort();
        }
        ["apply", entry] => lines = applied(&node.apply(serde_json::from_str(entry).unwrap())?),
        [
            "promise" | "prepare",
            uid,
            gpu,
            profile,
            start,
            patience @ ..,
        ] => {
            let (start, size) = start.split_once(':').unwrap();
            let at = ClaimPlace {
                gpu: uuid(gpu),
                profile: (*profile).to_owned(),
                placement: Placement {
                    start: start.parse().unwrap(),
                    size: size.parse().unwrap(),
                },
            };
            let claim = Claim {
                uid: (*uid).to_owned(),
                namespace: "team".to_owned(),
                name: (*uid).to_owned(),
                device: "a".to_owned(),
                pods: vec![ClaimPod {
                    uid: "pod".to_owned(),
                    name: "pod".to_owned(),
                }],
                ..Claim::default()
            };
            let told = RefCell::new(Vec::new());
            let hear = |news: ClaimNews| told.borrow_mut().push(format!("{news:?}"));
            // It ends long before.
            let patience = patience.len() as u32 * Duration::from_secs(600);
            match words[0] {
                "promise" => drop(leases.promise(claim, &at, &hear)?),
                _ => drop(leases.prepare(claim, &at, patience, &hear)?),
            }
            lines = told.take();
        }
        ["attach", id, uid, pod] => drop(node.attach(id, &claim(uid), pod)?),
        ["attach-new", id, uid, pod] => {
            let acquired = node.attach_new(id, claim(uid), pod)?;
            node.creates.lock().unwrap().push(acquired);
        }
        ["kill-creates"] => node.creates.lock().unwrap().clear(),
        ["release-ended"] => leases.release_ended()?,
        ["detach", id, uid] => leases.detach(&claim(uid), id)?,
        ["user", uid] => lines.extend(leases.user_of_device(&claim(uid))?),
        ["unprepare", uid] => leases.unprepare(uid, Patience::default())?,
        ["gpus"] => lines = parts(node)?,
        ["uses"] => lines = uses(node)?,
        ["cordon", gpu] => leases.cordon(&uuid(gpu), Some("a repair"), false)?,
        ["uncordon", gpu] => lines.push(leases.uncordon(&uuid(gpu))?.to_string()),
        ["admin", gpu, profile, start] => {
            let start = start.parse().unwrap();
            node.machine
                .admin_creates(index(gpu) as u32, profile, start, true);
        }
        ["destroy", gpu, start] => {
            let (gpu, start) = (index(gpu) as u32, start.parse().unwrap());
            let all = node.machine.instances();
            let it = all.iter().find(|i| (i.gpu, i.start) == (gpu, start));
            node.machine.admin_destroys(gpu, it.unwrap().gi);
        }
        ["lose" | "find", gpu] => node.machine.change(|machine, _| {
            machine.gpus[index(gpu)].lost = words[0] == "lose";
        }),
        ["no-reset"] => node.machine.change(|machine, _| machine.no_reset = true),
        // The first reset meets a process that looks at the GPU.
        ["refuse-reset"] => {
            let program = node.machine.0.join("usr/bin/nvidia-smi");
            fs::rename(&program, program.with_extension("real")).unwrap();
            let text = "[ -e \"$0.tried\" ] && exec \"$0.real\" \"$@\"\n: >\"$0.tried\"\nexit 1";
            script(&program, text);
        }
        ["damage"] => fs::write(node.path("state/ledger.json"), "").unwrap(),
        ["repair"] => {
            let repair = leases.repair()?.expect("the ledger is damaged");
            lines.extend(repair.leases.iter().map(found));
            lines.extend({ repair.without_owner.iter() }.map(|(gpu, instance)| {
                format!("nobody has {} on GPU {}", instance.placement, gpu.index)
            }));
        }
        ["fabric", gpu, status] => node.machine.change(|machine, _| {
            let health = &mut machine.gpus[index(gpu)].health;
            (health.fabric, health.fabric_status) = (3, status.parse().unwrap());
        }),
        ["fail", call, times, code] => {
            node.fails(call, times.parse().unwrap(), code.parse().unwrap());
        }
        ["install", program] => machine::install(&node.machine.0, program),
        ["tell", id, command @ ..] => {
            let server = || node.tell(id, "get_server_list");
            let command = command.join(" ").replace("SERVER", &server());
            lines.push(node.tell(id, &command));
        }
        // As an earlier boot leaves it, or a repair.
        ["leave-daemon", id] => fs::create_dir_all(node.path("state/mps").join(id)).unwrap(),
        ["uninstall", program] => {
            fs::remove_file(node.machine.0.join("usr/bin").join(program)).unwrap();
        }
        ["long-log", id] => {
            let log = node.home(id).join("logs/daemon.log");
            let log = fs::File::options().write(true).open(log);
            log.unwrap().set_len((1 << 20) + 1).unwrap();
        }
        ["log", id] => {
            let log = fs::metadata(node.home(id).join("logs/daemon.log")).unwrap();
            let sizes = ["empty", "short", "long"];
            lines.push(sizes[usize::from(log.len() > 0) + usize::from(log.len() > 1 << 20)].into());
        }
        // As a hook leaves it that does not see its hierarchy, or that of a daemon that lives.
        ["leave-cgroup", minutes, of @ ..] => {
            let left = node.cgroup(of.first().copied());
            fs::create_dir_all(&left).unwrap();
            let age = Duration::from_secs(60 * minutes.parse::<u64>().unwrap());
            let then = fs::File::open(&left).unwrap();
            then.set_modified(SystemTime::now() - age).unwrap();
        }
        ["cgroup", of @ ..] => {
            let is_there = node.cgroup(of.first().copied()).exists();
            lines.push(is_there.to_string());
        }
        ["hierarchy", "v2"] => cgroup2::enter(),
        ["hierarchy", "none"] => {
            own_mounts();
            let none = None::<&str>;
            mount(none, cgroup2::ROOT, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        }
        ["branch", branch] => node.machine.change(|machine, _| {
            machine.driver = Driver::of_branch(branch.parse().unwrap()).unwrap();
        }),
        ["moves", id, to] => node.moves(id, to),
        ["drop-cgroup", cgroup] => {
            let cgroup = node.unified(cgroup);
            until("the cgroup is empty", || fs::remove_dir(&cgroup).is_ok());
        }
        ["limit", id, others @ ..] => {
            let pid = node.inits.lock().unwrap()[*id].id() as i32;
            let container = others.first().unwrap_or(id);
            leases.limit_memory(&node.lease(id).id, container, pid)?;
        }
        ["missing", id] => {
            let held = leases.store().get(&node.lease(id).id)?.unwrap();
            let missing = leases.missing_limit(&held)?;
            lines.extend(missing.map(|m| format!("awaited: {}, {}", m.is_awaited, m.why.line())));
        }
        ["end-unlimited", id] => {
            let init = node.process_of("init", id);
            leases.end_unlimited(&node.lease(id))?;
            until("it ends", || !process::is_alive(&init));
        }
        // As root of the host can.
        ["change-limit", mib] => node.machine.change(|machine, _| {
            let mut limit = machine.memory_limits[0].clone();
            limit.hard = mib.parse().map_or(UNLIMITED, |mib: u64| mib << 20);
            machine.set_memory_limit(limit);
        }),
        ["forget-limits"] => node
            .machine
            .change(|machine, _| machine.memory_limits.clear()),
        ["limits"] => {
            let limits = { node.machine.engine() }.memory_limits.clone();
            let limit =
                |l: &MemoryLimit| format!("{} on GPU {}: {} {}", l.cgroup, l.gpu, l.soft, l.hard);
            lines.extend(limits.iter().map(limit));
        }
        // A process of a container: its first one, or the control program of its MPS daemon.
        ["computes", who, id, gpu] => {
            let process = node.process_of(who, id);
            node.machine.change(|machine, _| {
                machine.holders.push(Holder {
                    pid: process.pid as u32,
                    start_time: process.start_time,
                    target: Target::of_gpu(index(gpu) as u32),
                    memory: 100 << 20,
                    managed: 0,
                    cgroups: Vec::new(),
                    kind: HolderKind::Plain,
                });
            });
        }
        ["enters", who, id] => {
            let container = node.cgroup_of_container(id);
            fs::create_dir_all(&container).unwrap();
            let pid = node.process_of(who, id).pid.to_string();
            for cgroup in super::hierarchies().into_iter().chain([container]) {
                fs::write(cgroup.join("cgroup.procs"), &pid).unwrap();
            }
        }
        ["mig-on"] => {
            let driver = runmig_lease::driver(&node.config);
            let switched = Inventory::look(&node.config, &driver)?.with_mig_on(&driver);
            let gpus = switched.iter().flat_map(|on| &on.snapshot.gpus);
            lines.extend(gpus.map(|gpu| {
                let count = gpu.profiles.len();
                format!("GPU {}: {:?}, {count} profiles", gpu.index, gpu.mig)
            }));
        }
        ["kill-daemon", id] => kill(node.lease(id).daemon().unwrap().process.unwrap().pid),
        ["list"] => {
            let entries = leases.store().list()?.entries;
            lines.extend(entries.iter().map(|entry| shown(&LeaseView::from(entry))));
            lines.sort();
        }
        ["events", kind @ ..] => {
            let all = node.events();
            let told = all[*events..].iter().map(told);
            lines.extend(told.filter(|line| line.starts_with(&kind.concat())));
            *events = all.len();
        }
        _ => panic!("{words:?}"),
    }
    Ok(lines)
}

fn claim(uid: &str) -> ClaimName {
    let [uid, device] = [uid, "a"].map(str::to_owned);
    ClaimName { uid, device }
}

fn pairs<'s>(words: &[&'s str]) -> Vec<(&'s str, &'s str)> {
    let pair = |word: &&'s str| word.split_once('=').unwrap();
    words.iter().map(pair).collect()
}

/// Returns where a request would go, or the error of its create, and the answer of each GPU.
fn explained(node: &Node, asked: &[(&str, &str)]) -> Result<Vec<String>> {
    let wanted = node.asked(asked)?.wanted;
    let driver = runmig_lease::driver(&node.config);
    let inventory = Inventory::look(&node.config, &driver)?.without_idle_over();
    let what_if = WhatIf::new(
        &node.config,
        &driver,
        &inventory,
        &wanted,
        Subject::default(),
    );
    let answers = what_if.answers(MAX_STEPS)?;
    let mut lines = Vec::new();
    for Answer { request, on, .. } in &answers.all {
        match on {
            OnTrial::Slices(reports) => lines.extend(reports.iter().map(|on| {
                let slot = |slot: &SlotCost| format!("{} for {}", slot.placement, slot.cost);
                let verdict = match &on.verdict {
                    Verdict::Fits(slots) => slots.iter().map(slot).collect::<Vec<_>>().join(", "),
                    other => format!("{other:?}"),
                };
                format!("{request} on GPU {}: {verdict}", on.gpu.index)
            })),
            OnTrial::Parts(parts) => lines.extend(parts.iter().map(|part| {
                let obstacle = part.obstacle.as_ref().map(|why| format!("{why:?}"));
                format!(
                    "{request} on GPU {}: {}",
                    part.gpu.index,
                    obstacle.unwrap_or("fits".to_owned())
                )
            })),
        }
    }
    lines.extend(what_if.error(answers).map(|e| e.line()));
    Ok(lines)
}

fn applied(applied: &Applied) -> Vec<String> {
    let mode = |mode: &PlannedMode| format!("GPU {}: MIG {}", mode.gpu_index, mode.mig_enabled);
    let instance = |i: &PlannedInstance| {
        let (change, profile, at) = (i.change, &i.profile, i.mig_placement);
        let parts = (&i.compute_slices, i.is_whole, &i.holders);
        format!(
            "{change} {profile} at {at} on GPU {} {parts:?}",
            i.gpu_index
        )
    };
    let mut lines: Vec<String> = applied.instances.iter().map(instance).collect();
    lines.sort();
    lines.splice(..0, applied.modes.iter().map(mode));
    lines.push(format!("{}: {:?}", applied.layout, applied.made));
    lines.extend(applied.refusal());
    lines
}

/// Returns who has each memory slice, what is booked, the parts by state, and the slices, shares and GPUs by state.
fn parts(node: &Node) -> Result<Vec<String>> {
    let driver = runmig_lease::driver(&node.config);
    let inventory = Inventory::look(&node.config, &driver)?;
    let mut lines = Vec::new();
    for booking in inventory.bookings(&driver) {
        let (gpu, total) = (booking.gpu, booking.total_mib);
        let room = inventory.room(gpu);
        let name = |of: Option<usize>| {
            of.map_or("free".to_owned(), |n| {
                room.name(room.occupants[n].profile_id)
            })
        };
        let row: Vec<String> = room.by_slice().into_iter().map(name).collect();
        let state = inventory.use_of(&driver, gpu);
        let parts = inventory.parts(gpu, &state, total);
        let booked = booking.booked_mib;
        let error = state.error.map_or(String::new(), |e| format!(", {e}"));
        lines.push(format!(
            "GPU {}: {row:?}, {booked} of {total:?} MiB, {parts:?}{error}",
            gpu.index
        ));
    }
    let entries = inventory.entries();
    let slices = inventory.slices(&entries);
    let slice = |view: &SliceView<'_>| {
        format!("{:?} {} on GPU {}", view.state, view.kind(), view.gpu_index)
    };
    let mut slices: Vec<String> = slices.iter().map(slice).collect();
    slices.sort();
    lines.extend(slices);
    lines.extend(uses(node)?);
    Ok(lines)
}

/// Returns what each lease uses, and what else of it changed.
fn uses(node: &Node) -> Result<Vec<String>> {
    let driver = runmig_lease::driver(&node.config);
    let inventory = Inventory::look(&node.config, &driver)?;
    let held: Vec<&Held> = inventory.leases.iter().collect();
    let seen = observe(&node.config, &driver, &held);
    let used = |lease: &ObservedShare| {
        let bytes = lease.used_bytes;
        format!("a lease uses {bytes:?} bytes{}", beside(lease))
    };
    let mut used: Vec<String> = seen.iter().map(used).collect();
    used.sort();
    Ok(used)
}

/// Returns what a share tells beside its use.
fn beside(share: &ObservedShare) -> String {
    let limit = share.limit_changed.map(|l| format!(", limit {l}"));
    let around = { share.around.as_ref() }
        .map(|pids| pids.iter().map(|_| "a process").collect::<Vec<_>>())
        .map(|around| format!(", {around:?} around"));
    let unknown = { share.unknown.iter() }.map(|(what, why)| format!(", cannot {what}: {why}"));
    { limit.into_iter().chain(around) }.chain(unknown).collect()
}

fn found(finding: &Finding) -> String {
    let what = match &finding.outcome {
        Outcome::Kept(why) => format!("stays: {why}"),
        Outcome::Released(why) => format!("is released: {why}"),
        Outcome::Failed(e) => format!("fails: {}", e.line()),
    };
    format!("{} {what}", finding.entry.holder())
}

/// Returns the fields of a view that every run has alike.
fn shown(view: &LeaseView) -> String {
    let json = serde_json::to_value(view).unwrap();
    let fields = "state kind container profile migPlacement gpuIndex memoryBytes enforcement adopted layout error attempts";
    let field = |name: &str| Some(format!("{name}={}", json.get(name)?));
    fields
        .split(' ')
        .filter_map(field)
        .collect::<Vec<_>>()
        .join(" ")
}

fn told(event: &Event) -> String {
    let lease = event.lease.clone().unwrap_or_default();
    let more = [
        lease.container,
        lease.request.map(|request| format!("[{request}]")),
        event.verdict.clone(),
        event.actor.clone(),
        event.error.clone(),
    ];
    let word = event.event_type.word().to_owned();
    let words: Vec<String> = [word]
        .into_iter()
        .chain(more.into_iter().flatten())
        .collect();
    words.join(" ")
}
