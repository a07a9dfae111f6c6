//! The rules of `[policy]`, as pure functions.

use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::model::{Gpu, GpuUuid, MigMode, Profile};
use runmig_lease::policy::{Kind, Policy, Subject, Usage};
use runmig_lease::request::{Alternative, alternatives};
use testkit::prelude::*;

fn policy(text: &str) -> Policy {
    Config::parse(text).unwrap().policy
}

fn refused(text: &str) -> String {
    Config::parse(text).unwrap_err().line()
}

/// The number of slices that are asked for, and their memory in MiB.
type Slices = (u32, u64);

fn check(policy: &Policy, subject: &Subject, slices: Slices, usage: &[Usage]) -> Result<()> {
    let (count, memory_mib) = slices;
    policy.check_limits(subject, Kind::Slice, count, memory_mib, usage)
}

/// The line of a request that limits refuse.
#[track_caller]
fn over(policy: &Policy, subject: &Subject, slices: Slices, usage: &[Usage]) -> String {
    check(policy, subject, slices, usage).unwrap_err().line()
}

fn subject(namespace: &str, pod: &str) -> Subject {
    Subject {
        namespace: Some(namespace.to_owned()),
        pod: Some(pod.to_owned()),
        pod_uid: Some(format!("uid-of-{pod}")),
        user: None,
    }
}

fn user(id: u32) -> Subject {
    Subject {
        user: Some(id),
        ..Subject::default()
    }
}

fn usage(subject: Subject, gib: u64) -> Usage {
    Usage {
        subject,
        kind: Kind::Slice,
        memory_mib: gib << 10,
        whole_mib: gib << 10,
    }
}

fn asked(text: &str) -> Vec<Alternative> {
    alternatives(text).unwrap()
}

fn uuid(index: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-{index:08x}-6af1-5dca-b4e3-69e5b804a379"))
}

fn gpu(index: u32) -> Gpu {
    let profile = |name: &str| Profile {
        name: name.into(),
        ..Profile::default()
    };
    Gpu {
        index,
        uuid: uuid(index),
        mig: MigMode::Enabled,
        profiles: ["1g.10gb", "1g.10gb+me", "2g.20gb", "7g.80gb"]
            .map(profile)
            .into(),
        ..Gpu::default()
    }
}

#[test]
fn profiles_by_pattern() {
    let policy = policy("[policy]\nprofiles = [\"1g.*\", \"2g.20gb\"]");
    assert_eq!(policy.denied_profiles(&[gpu(0), gpu(1)]), ["7g.80gb"]);
    let list = asked("7g.80gb,2g.20gb,1Gi");
    assert_eq!(policy.allowed(&list).unwrap(), list[1..]);
    let none = Policy::default().denied_profiles(&[gpu(0)]);
    assert_eq!(none, Vec::<String>::new());
    let nothing = self::policy("[policy]\nprofiles = []");
    assert_eq!(nothing.denied_profiles(&[gpu(0)]).len(), 4);
    for (policy, hint) in testkit::rows! {
        policy => "request 1g.*, 2g.20gb";
        nothing => "ask the administrator to allow one; the list is empty";
    } {
        let line = policy.allowed(&list[..1]).unwrap_err().line();
        let words = format!("7g.80gb is not allowed (policy.profiles); hint: {hint}");
        assert_eq!(line, words);
    }
}

#[test]
fn gpus_that_are_excluded_or_reserved() {
    let policy = policy(&format!(
        "[policy]\nexclude_gpus = [0]\n\
         [[policy.reserve]]\ngpus = [\"{}\", 2]\nnamespace = \"team-a\"\n\
         [[policy.reserve]]\ngpus = [2]\nuser = 1000\n",
        uuid(1).as_str().replace("-6af1-", "-6AF1-"),
    ));
    let gpus = [gpu(0), gpu(1), gpu(2), gpu(3)];
    let excluded = |subject: &Subject| policy.excluded(&gpus, subject);
    let rule = |n: u32, rule: &str| (uuid(n), rule.to_owned());
    let zero = rule(0, "excluded by policy.exclude_gpus");
    let own = excluded(&subject("team-a", "p"));
    assert_eq!(own, std::slice::from_ref(&zero));
    let one = rule(1, "reserved for namespace team-a by [[policy.reserve]] 1");
    assert_eq!(excluded(&user(1000)), [zero.clone(), one.clone()]);
    let two = rule(2, "reserved for namespace team-a by [[policy.reserve]] 1");
    assert_eq!(excluded(&subject("team-b", "p")), [zero, one, two]);
}

#[test]
fn limits_each_namespace_alone() {
    let policy = policy(
        "[[policy.limit]]\nslices = 9\n[[policy.limit]]\nnamespace = \"team-*\"\nslices = 2\n",
    );
    let a = |pod| usage(subject("team-a", pod), 10);
    let both = [a("p"), a("q"), usage(subject("team-b", "p"), 10)];
    assert_eq!(
        over(&policy, &subject("team-a", "r"), (1, 1), &both),
        "namespace team-a has 2 of 2 slices ([[policy.limit]] 2); hint: run migctl list to see which; ask \
         again when one ends"
    );
    for other in [subject("team-b", "r"), subject("other", "r"), user(0)] {
        check(&policy, &other, (1, 1), &both).unwrap();
    }
    let full = vec![usage(subject("other", "p"), 10); 9];
    let line = over(&policy, &user(0), (1, 1), &full);
    begins_with(&line, "the machine has 9 of 9 slices ([[policy.limit]] 1)");
}

#[test]
fn counts_several_slices_together() {
    let policy = policy("[[policy.limit]]\nslices = 3\n[[policy.limit]]\nmemory = \"40Gi\"\n");
    let has = [usage(user(1), 10)];
    let line = |count, gib: u64| {
        let checked = check(&policy, &user(2), (count, gib << 10), &has);
        checked.map_err(|e| e.line())
    };
    line(2, 30).unwrap();
    assert_eq!(
        line(3, 0).unwrap_err(),
        "the machine has 1 of 3 slices, and 3 are asked for ([[policy.limit]] 1); hint: run migctl \
         list to see which; ask again when one ends"
    );
    assert!(line(4, 0).unwrap_err().ends_with("hint: ask for fewer"));
    let none = self::policy("[[policy.limit]]\nslices = 0\n");
    for count in [1, 3] {
        let line = over(&none, &user(2), (count, 0), &[]);
        ends_with(&line, "hint: have the administrator raise the limit");
    }
    let words = "31744Mi are asked for ([[policy.limit]] 2)";
    testkit::has(&line(2, 31).unwrap_err(), words);
}

#[test]
fn allows_slices_up_to_number() {
    let line = |policy: &Policy, text| policy.allowed(&asked(text)).map_err(|e| e.line());
    let none = Policy::default();
    assert_eq!(
        line(&none, "1g.10gb*2").unwrap_err(),
        "1g.10gb*2 asks for several slices, and CUDA uses one MIG device in a process; hint: ask for one \
         larger slice, or run a container for each; where a container's processes share them out, \
         policy.slices_per_container allows several"
    );
    assert_eq!(line(&none, "1g.10gb*2,2g.20gb").unwrap(), asked("2g.20gb"));
    let three = policy("[policy]\nslices_per_container = 3");
    assert_eq!(line(&three, "1g.10gb*3").unwrap(), asked("1g.10gb*3"));
    assert_eq!(
        line(&three, "1g.10gb*4").unwrap_err(),
        "1g.10gb*4 asks for more than 3 slices (policy.slices_per_container); hint: ask for fewer, larger \
         slices, or run several containers"
    );
    for bad in ["0", "65"] {
        let line = refused(&format!("[policy]\nslices_per_container = {bad}"));
        has(&line, &format!("{bad} is not a number from 1 to 64"));
    }
}

#[test]
fn counts_memory_with_the_request() {
    let policy = policy("[[policy.limit]]\nuser = \"*\"\nmemory = \"40Gi\"\n");
    let has = [usage(user(1000), 30), usage(user(2000), 40)];
    let allow = |id, gib: u64| check(&policy, &user(id), (1, gib << 10), &has);
    allow(1000, 10).unwrap();
    allow(3000, 40).unwrap();
    let words =
        "user 1000 has 30720Mi of 40Gi of memory, and 11264Mi are asked for ([[policy.limit]] 1)";
    begins_with(&allow(1000, 11).unwrap_err().line(), words);
    allow(2000, 0).unwrap();
    // A container that the rule does not name is not counted.
    check(&policy, &Subject::default(), (1, 1 << 20), &has).unwrap();
}

#[test]
fn tells_pods_of_one_name_apart() {
    let policy = policy("[[policy.limit]]\nnamespace = \"*\"\npod = \"*\"\nslices = 1\n");
    let has = [usage(subject("team-a", "p"), 10)];
    let mut again = subject("team-a", "p");
    let line = over(&policy, &again, (1, 0), &has);
    begins_with(&line, "namespace team-a, pod p has 1 of 1 slices");
    again.pod_uid = Some("another".into());
    for other in [again, subject("team-b", "p")] {
        check(&policy, &other, (1, 0), &has).unwrap();
    }
}

#[test]
fn names_what_is_wrong() {
    for (text, words) in testkit::rows! {
        "[policy]\nprofile = []" => "line 2: unknown key profile; hint: write profiles";
        "[[policy.limit]]\nuser = 1\nslice = 4" => "unknown key slice; hint: write slices";
        "[[policy.limit]]\nnamespace = \"a\"" => "[[policy.limit]] 1 limits nothing";
        "[policy]\nkinds = [\"seat\"]" => "unknown value \"seat\"; hint: write one of slice, share, gpu";
        "[policy]\ngpus_per_container = 65" => "policy.gpus_per_container = 65 is not a number from 1 to 64";
        "[[policy.limit]]\nmemory = \"40\"" => "\"40\" is not an amount of memory such as 40Gi";
        "[[policy.limit]]\nmemory = \"none\"" => "\"none\" is not an amount of memory";
        "[[policy.limit]]\nmemory = \"1g.10gb\"" => "\"1g.10gb\" is not an amount of memory";
        "[[policy.limit]]\nslices = -1" => "slices = -1 is not a whole number that fits; hint: write a whole number";
        "[[policy.limit]]\nuser = \"root\"\nslices = 1" => "a user is a number, or \"*\" for each";
        "[policy]\nexclude_gpus = [1.5]" => "a GPU is an index (0) or a UUID";
        "[[policy.reserve]]\ngpus = []\nuser = 1" => "[[policy.reserve]] 1 names no GPU";
        "[[policy.reserve]]\ngpus = [1]" => "[[policy.reserve]] 1 names nobody";
        "[[policy.reserve]]\nuser = 1" => "missing field `gpus`";
        "[[policy.limit]]\nuser = \"\"\nslices = 1" => "a user is a number, or \"*\" for each";
        "[[policy.limit]]\nslices = 1\nnamespace = \"\"" =>
            "[[policy.limit]] 1: namespace has an empty pattern; hint: write a name";
        "[[policy.limit]]\nslices = 1\npod = \"\"" => "[[policy.limit]] 1: pod has an empty pattern; hint: write a name";
        "[[policy.reserve]]\ngpus = [0]\nuser = 1\nnamespace = \"\"" =>
            "[[policy.reserve]] 1: namespace has an empty pattern";
        "[[policy.reserve]]\ngpus = [0]\nuser = 1\npod = \"\"" => "[[policy.reserve]] 1: pod has an empty pattern";
        "[policy]\nprofiles = [\"1g.10gb\", \"\"]" => "policy.profiles has an empty pattern";
    } {
        let line = refused(text);
        assert!(line.contains(words), "{text}: {line}");
    }
}

/// A rule that matches nothing would let everything through.
#[test]
fn refuses_impossible_gpu_names() {
    let uuid = uuid(1).to_string();
    let longer = format!("{uuid}0");
    for name in [
        "",
        "0",
        "gpu-x",
        "GPU-1",
        &uuid[4..],
        &uuid[..uuid.len() - 1],
        &longer,
        &uuid.replace("GPU", "gpu"),
        &uuid.replace("GPU", "MIG"),
        &uuid.replace('a', "g"),
        &uuid.replace("-6af1-", "-6af-1"),
    ] {
        for (text, rule) in testkit::rows! {
            format!("[policy]\nexclude_gpus = [0, \"{name}\"]") => "policy.exclude_gpus";
            format!("[[policy.reserve]]\ngpus = [\"{name}\"]\nuser = 1") => "[[policy.reserve]] 1";
        } {
            let line = refused(&text);
            let words = "is not a GPU's UUID; hint: write it as nvidia-smi -L";
            begins_with(&line, &format!("{rule}: \"{name}\" {words}"));
        }
    }
}
