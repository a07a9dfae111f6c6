//! The reading of arguments, line by line. `''` is an empty argument, `_` a missing one.

mod hostile;

use std::ffi::OsString;
use testkit::prelude::*;

use runmig::runtime::args::{Call, Create, Family, How, Log, Verb, parse};

fn words(line: &str) -> Vec<OsString> {
    let words = line.split_whitespace();
    words
        .map(|w| if w == "''" { "" } else { w }.into())
        .collect()
}

/// `VERB ID BUNDLE ROOT`
fn short(call: &Call) -> String {
    let path = |p: &Option<PathBuf>| match p {
        Some(p) => format!("{:?}", p.display()).replace('"', ""),
        None => "_".to_owned(),
    };
    let verb = match &call.verb {
        Verb::Make(create) => {
            let how = match create.how {
                How::Create => "create",
                How::Run { .. } => "run",
                How::Restore => "restore",
            };
            format!("{how} {} {}", create.id.display(), path(&create.bundle))
        }
        Verb::Delete(id) => format!("delete {} _", id.display()),
        Verb::Update(u) => format!(
            "update@{} {} {}",
            u.options_end,
            u.id.display(),
            u.resources.display()
        ),
        Verb::Checkpoint(words) => {
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            return format!("checkpoint {}", words.join(" "));
        }
        Verb::Features => return "features".to_owned(),
        Verb::Unclear(unclear) => return format!("unclear {}", unclear.command),
        Verb::Other => return "other".to_owned(),
    };
    format!("{verb} {}", path(&call.root))
}

fn table(family: Family, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (args, want) = line.split_once('>').unwrap();
        assert_eq!(short(&parse(family, &words(args))), want.trim(), "{line}");
    }
}

/// What both families read alike.
const BOTH: &str = "
    --root /r --log /l --log-format json create --bundle /b --pid-file /p c > create c /b /r
    create -b b c                       > create c b _
    create --bundle=b c                 > create c b _
    create --no-pivot c                 > create c _ _
    create c                            > create c _ _
    run -d --keep c                     > run c _ _
    create -b one -b two c              > create c two _
    create create                       > create create _ _
    create -b b -- -c                   > create -c b _
    create -b create run                > create run create _
    --log create create c               > create c _ _
    --unknown=value create c            > create c _ _
    --unknown=value --root r create c   > create c _ r
    restore --image-path i -b b c       > restore c b _
    delete c                            > delete c _ _
    --root r delete --force c           > delete c _ r
    delete -f c                         > delete c _ _
    checkpoint c                        > checkpoint c
    checkpoint --image-path /i c        > checkpoint --image-path /i c
    checkpoint c --shell-job=true       > checkpoint c --shell-job=true
    checkpoint --leave-running=false c  > checkpoint --leave-running=false c
    checkpoint --leave-running c        > other
    checkpoint c --leave-running=true   > other
    checkpoint --pre-dump c             > other
    checkpoint -leave-running=1 c       > other
    checkpoint --leave-running --leave-running=false c > checkpoint --leave-running --leave-running=false c
    checkpoint --pre-dump --pre-dump=0 c > checkpoint --pre-dump --pre-dump=0 c
    checkpoint --image-path --leave-running c > checkpoint --image-path --leave-running c
    checkpoint --work-path -R c         > checkpoint --work-path -R c
    checkpoint --leave-running --image-path /x c > other
    features                            > features
    --debug features                    > features

                                        > other
    create                              > other
    create --help                       > other
    create -h c                         > other
    --version create c                  > other
    -v create c                         > other
    --help create c                     > other
    help create c                       > other
    exec c create c                     > other
    state create                        > other
    Create c                            > other
    crea c                              > other
    '' create c                         > other
    --unknown                           > other
    --unknown state c                   > other
    --unknown delete c                  > other
    --root                              > other
    delete                              > other
    delete c d                          > other
    delete --unknown c                  > other
    delete c --force                    > other
    delete -r .*                        > other

    --unknown create c                  > unclear create
    --unknown delete create c           > unclear create
    --unknown x state restore           > unclear restore
    --roo r create c                    > unclear create
    --roo=r create c                    > unclear create
    -root r create c                    > unclear create
    ---root=r create c                  > unclear create
    --debug=true create c               > unclear create
    --root= create c                    > unclear create
    --root '' create c                  > unclear create
    -- create c                         > unclear create
    - create c                          > unclear create
    create --unknown c                  > unclear create
    create --unknown=value c            > unclear create
    create -bb c                        > unclear create
    create -bundle b c                  > unclear create
    create --bund b c                   > unclear create
    create --no-pivot=maybe c           > unclear create
    create --preserve-fds many c        > unclear create
    create --preserve-fds 020 c         > unclear create
    create --preserve-fds 0x10 c        > unclear create
    create --bundle= c                  > unclear create
    create -b c                         > unclear create
    create c -b b                       > unclear create
    create c --                         > unclear create
    create -b -- c                      > unclear create
    create -b - c                       > unclear create
    create one two                      > unclear create
    create ''                           > unclear create
    run c -d                            > unclear run
    restore one two three               > unclear restore
";

#[test]
fn reads_arguments_for_runc() {
    table(Family::Runc, BOTH);
    table(
        Family::Runc,
        "
        --rootless true create c            > create c _ _
        update --resources f c              > other
        update c --unknown                  > other
        --unknown update c                  > other
        ",
    );
}

#[test]
fn reads_arguments_for_crun() {
    table(Family::Crun, BOTH);
    table(
        Family::Crun,
        "
        update -r f c                       > update@3 c f _
        --root r update --resources=- c     > update@4 c - r
        --root=r update -r a -r b --cpu-share 1 c > update@8 c b r
        update --resources - -- -c          > update@3 -c - _
        update --memory=1 c                 > other

        update                              > other
        update -r f --help c                > other
        update -r f c d                     > unclear update
        update --res=f c                    > unclear update
        update c -r f                       > unclear update
        --unknown update c                  > unclear update
        --rootless true create c            > unclear create
        --rootl=true create c               > unclear create
        ",
    );
}

#[test]
fn keeps_what_runmig_needs() {
    let line = "--debug --log l --log-format json --systemd-cgroup \
                run --pid-file p --preserve-fds 16 --detach --keep c";
    let want = Call {
        root: None,
        log: Some(Log {
            file: "l".into(),
            is_json: true,
        }),
        systemd_cgroup: true,
        no_cgroup: false,
        verb: Verb::Make(Create {
            how: How::Run { detach: true },
            id: "c".into(),
            bundle: None,
            config: None,
        }),
    };
    assert_eq!(parse(Family::Runc, &words(line)), want);
    let line = "--log-level=debug --log=file:l --log-format=json --cgroup-manager=systemd \
                run --pid-file=p --preserve-fds=16 -d --keep c";
    assert_eq!(parse(Family::Crun, &words(line)), want);

    let line = "--log=journald:c --systemd-cgroup --cgroup-manager disabled create -f cfg c";
    let call = parse(Family::Crun, &words(line));
    assert_eq!(
        (call.log, call.systemd_cgroup, call.no_cgroup),
        (None, false, true)
    );
    assert!(matches!(call.verb, Verb::Make(c) if c.config == Some("cfg".into())));
}

#[test]
fn finds_log_of_other_calls() {
    let call = parse(Family::Runc, &words("--root r --log l exec c true"));
    assert_eq!(call.verb, Verb::Other);
    let log = call.log.map(|log| log.file);
    assert_eq!((call.root, log), (Some("r".into()), Some("l".into())));
}

#[test]
fn takes_family_from_resolved_file() {
    for (name, family) in [
        ("/usr/sbin/runc", Family::Runc),
        ("/nowhere/crun", Family::Crun),
        ("/nowhere/krun", Family::Crun),
        ("/nowhere/crun-wasm", Family::Crun),
        ("/nowhere/crunch", Family::Runc),
        ("/crun/nvidia-container-runtime", Family::Runc),
        ("/", Family::Runc),
    ] {
        assert_eq!(Family::of(Path::new(name)), family, "{name}");
    }
}

#[test]
fn knows_default_root_of_each_family() {
    let root = |family: Family, env: &'static [(&str, &str)], euid, userns| {
        let env = move |name: &str| {
            let of = env.iter().find(|(n, _)| *n == name);
            of.map(|(_, v)| OsString::from(v))
        };
        family
            .default_root(&env, euid, userns)
            .display()
            .to_string()
    };
    const XDG: &[(&str, &str)] = &[("XDG_RUNTIME_DIR", "/x")];
    const ROOT: &[(&str, &str)] = &[("XDG_RUNTIME_DIR", "/x"), ("USER", "root")];
    const EMPTY: &[(&str, &str)] = &[("XDG_RUNTIME_DIR", "")];
    assert_eq!(root(Family::Runc, &[], 0, false), "/run/runc");
    assert_eq!(root(Family::Runc, XDG, 0, false), "/run/runc");
    assert_eq!(root(Family::Runc, XDG, 0, true), "/x/runc");
    assert_eq!(root(Family::Runc, ROOT, 0, true), "/run/runc");
    assert_eq!(root(Family::Runc, ROOT, 1000, false), "/x/runc");
    assert_eq!(root(Family::Runc, EMPTY, 1000, false), "/run/runc");
    assert_eq!(root(Family::Crun, &[], 0, false), "/run/crun");
    assert_eq!(root(Family::Crun, XDG, 0, false), "/x/crun");
    assert_eq!(root(Family::Crun, EMPTY, 1000, false), "/run/crun");
}

#[test]
fn crun_stands_in_the_bundle() {
    let stands = |family, line: &str| {
        let call = parse(family, &words(line));
        call.stands_in(family, Path::new("/cwd"))
    };
    assert_eq!(stands(Family::Runc, "create -b b c"), Path::new("/cwd"));
    assert_eq!(stands(Family::Crun, "create -b b c"), Path::new("/cwd/b"));
    assert_eq!(stands(Family::Crun, "restore -b /b c"), Path::new("/b"));
    assert_eq!(stands(Family::Crun, "run c"), Path::new("/cwd"));
    assert_eq!(stands(Family::Crun, "delete c"), Path::new("/cwd"));
}
