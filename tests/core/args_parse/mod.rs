//! The reading of arguments, line by line. `''` is an empty argument, `_` a missing one.

mod hostile;

use std::ffi::OsString;
use testkit::prelude::*;

use runmig::runtime::args::{Call, Create, Family, LogFormat, Run, Verb, parse};

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
    let create = |c: &Create| format!("{} {}", c.id.display(), path(&c.bundle));
    let verb = match &call.verb {
        Verb::Create(c) => format!("create {}", create(c)),
        Verb::Run(r) => format!("run {}", create(&r.create)),
        Verb::Restore { id, bundle } => format!("restore {} {}", id.display(), path(bundle)),
        Verb::Delete { id, force: true } => format!("kill {} _", id.display()),
        Verb::Delete { id, force: false } => format!("delete {} _", id.display()),
        Verb::Update(u) => format!(
            "update@{} {} {}",
            u.options_end,
            u.id.display(),
            u.resources.display()
        ),
        Verb::Features => return "features".to_owned(),
        Verb::Other => return "other".to_owned(),
    };
    format!("{verb} {}", path(&call.root))
}

fn table(family: Family, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (args, want) = line.split_once('>').unwrap();
        let got = match parse(family, &words(args)) {
            Ok(call) => short(&call),
            Err(e) => {
                assert!(e.line().contains("hint: "), "{line}");
                "refused".to_owned()
            }
        };
        assert_eq!(got, want.trim(), "{line}");
    }
}

#[test]
fn reads_arguments_like_runc() {
    table(
        Family::Runc,
        "
        --root /r --log /l --log-format json create --bundle /b --pid-file /p c > create c /b /r
        create -b b c                       > create c b _
        create c -b b                       > create c b _
        create --no-pivot c                 > create c _ _
        create c                            > create c _ _
        run c -bundle b                     > run c b _
        -root r run -b=b -d=false c         > run c b r
        --root=r create -b '' c             > create c _ r
        create -b one -b two c              > create c two _
        create create                       > create create _ _
        create -b create run                > create run create _
        --log create create c               > create c _ _
        --criu run create c                 > create c _ _
        -- create -- -c                     > create -c _ _
        create -b -- c                      > create c -- _
        create -b --no-pivot c              > create c --no-pivot _
        create c --                         > create c _ _
        create --help=false c               > create c _ _
        --unknown=value create c            > create c _ _
        restore --image-path i -b b c       > restore c b _
        delete c                            > delete c _ _
        --root r delete c --force           > kill c _ r
        delete -f=0 c                       > delete c _ _
        update --resources f c              > other
        features                            > features
        --debug features                    > features

                                            > other
        create                              > other
        create --help                       > other
        create -h c                         > other
        --version create c                  > other
        --help create c                     > other
        --help create --help=false c        > other
        --version create c d                > other
        help create c                       > other
        exec c create c                     > other
        exec create run                     > other
        state create                        > other
        Create c                            > other
        crea c                              > other
        '' create c                         > other
        - create c                          > other
        --unknown                           > other
        --unknown state c                   > other
        --root                              > other
        ---x exec c                         > other
        delete                              > other
        delete c d                          > other
        delete --unknown c                  > other

        --unknown create c                  > refused
        --unknown x create c                > refused
        --unknown x state restore           > refused
        --roo r create c                    > refused
        ---root=r create c                  > refused
        --debug=maybe create c              > refused
        --help=false -h=false create c      > refused
        --root= create c                    > refused
        create --unknown c                  > refused
        create --unknown=value c            > refused
        create -bb c                        > refused
        create -b one --bundle two c        > refused
        create --no-pivot=maybe c           > refused
        create --preserve-fds many c        > refused
        create -b c                         > refused
        create c -b                         > refused
        create --no-pivot c -b b            > refused
        create one two                      > refused
        create ''                           > refused
        create c -b -                       > refused
        create -b - c                       > refused
        create -d c                         > refused
        ",
    );
}

#[test]
fn reads_arguments_like_crun() {
    table(
        Family::Crun,
        "
        --root /r --log /l --log-format json create --bundle /b --pid-file /p c > create c /b /r
        create -b b c                       > create c b _
        create -bb c                        > create c b _
        create -b=b c                       > create c =b _
        --roo r run --bund b c              > run c b r
        --root r --root=q create c          > create c _ q
        run -dbb c                          > run c b _
        create -b -- c                      > create c -- _
        create -- -c                        > create -c _ _
        -- create create                    > create create _ _
        create -                            > create - _ _
        --log create create c               > create c _ _
        --program-name run create c         > create c _ _
        --HANG=0 create c                   > create c _ _
        --log-l debug create c              > create c _ _
        --unknown=value create c            > create c _ _
        --unknown=value --root r create c   > create c _ r
        --unknown=value -- create c         > create c _ _
        restore -b b c                      > restore c b _
        restore --network-lock skip c       > restore c _ _
        restore c extra                     > restore c _ _
        delete --force c                    > kill c _ _
        delete c                            > delete c _ _
        update -r f c                       > update@3 c f _
        --root r update --res=- -- c        > update@4 c - r
        --root=r update -r a -rb --cpu-s 1 c > update@7 c b r
        update --memory-s -- -r - -- -c     > update@5 -c - _
        update --pids=8 --l3=x -r f c       > update@5 c f _
        features                            > features

                                            > other
        update                              > other
        update --memory=1 c                 > other
        update -r f                         > other
        update -r f c d                     > other
        update -r f --unknown c             > other
        update c -r f                       > other
        update --mem=1 -r f c               > other
        update -r f --help c                > other
        --rootless true update -r f c       > other
        create                              > other
        create -b b --help --unknown        > other
        create -? c                         > other
        create --usage c                    > other
        --version create c                  > other
        -v create c                         > other
        -Vx create c                        > other
        --ver --unknown create c            > other
        exec c create c                     > other
        crea c                              > other
        - create c                          > other
        --unknown state c                   > other
        --rootless true state create        > other
        delete -r .*                        > other
        delete c --force                    > other
        delete --unknown c                  > other

        --unknown create c                  > refused
        --u=n --unknown create c            > refused
        --lo l create c                     > refused
        --debug=true create c               > refused
        -root r create c                    > refused
        -x create c                         > refused
        --rootless true create c            > refused
        --rootl true create c               > refused
        --root '' create c                  > refused
        create c -b b                       > refused
        create -b b                         > refused
        create c --                         > refused
        create -b                           > refused
        create --no c                       > refused
        create --con cfg c                  > refused
        create --no-pivot=1 c               > refused
        create --bundle= c                  > refused
        create --unknown c                  > refused
        create -dbb c                       > refused
        create -bundle b c                  > refused
        create ''                           > refused
        restore one two three               > refused
        ",
    );
}

#[test]
fn everything_that_is_said_is_kept() {
    let line = "--debug --log l --log-format json --systemd-cgroup \
                run --pid-file p --preserve-fds 0x10 --detach --keep c";
    let call = parse(Family::Runc, &words(line)).unwrap();
    let create = Create {
        id: "c".into(),
        bundle: None,
        config: None,
        pid_file: Some("p".into()),
        preserve_fds: Some(16),
    };
    let run = |detach, keep| {
        let create = create.clone();
        Verb::Run(Run {
            create,
            detach,
            keep,
        })
    };
    let want = Call {
        root: None,
        log: Some("l".into()),
        log_format: Some(LogFormat::Json),
        debug: true,
        systemd_cgroup: true,
        no_cgroup: false,
        verb: run(true, true),
    };
    assert_eq!(call, want);

    let line = "--log-level=debug --log=file:l --log-format=json --cgroup-manager=systemd \
                run --pid-file=p --preserve-fds=16x --detach --keep c";
    assert_eq!(parse(Family::Crun, &words(line)).unwrap(), want);

    let line = "--debug --debug=false --log l --log-format text \
                run --pid-file p --preserve-fds 020 -d -d=false c";
    let call = parse(Family::Runc, &words(line)).unwrap();
    assert!(!call.debug && !call.systemd_cgroup);
    assert_eq!(call.log_format, Some(LogFormat::Text));
    assert_eq!(call.verb, run(false, false));

    let line = "--log=journald:c --systemd-cgroup --cgroup-manager cgroupfs create -f cfg c";
    let call = parse(Family::Crun, &words(line)).unwrap();
    assert_eq!((call.log, call.systemd_cgroup), (None, false));
    assert!(matches!(call.verb, Verb::Create(c) if c.config == Some("cfg".into())));
}

#[test]
fn finds_log_of_other_calls() {
    let call = parse(Family::Runc, &words("--root r --log l exec c true")).unwrap();
    assert_eq!(call.verb, Verb::Other);
    assert_eq!((call.root, call.log), (Some("r".into()), Some("l".into())));
}

#[test]
fn refusal_names_argument_and_hint() {
    let line = |family, args: &str| parse(family, &words(args)).unwrap_err().line();
    assert_eq!(
        line(Family::Runc, "--foo create c"),
        "cannot find the command: unknown option --foo; \
         hint: write it as --option=value, or call the low-level runtime directly"
    );
    assert_eq!(
        line(Family::Crun, "create c -b b"),
        "create: 3 arguments where crun wants the container's id; hint: runmig must know id and \
         bundle; correct the arguments, or call the low-level runtime directly"
    );
    assert_eq!(
        line(Family::Crun, "--rootless=1 create c"),
        "--rootless: versions of crun differ on what it means; \
         hint: name the state directory with --root=DIR"
    );
    assert!(line(Family::Runc, "run --foo=1 c").starts_with("run: unknown option --foo=1; hint"));
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
        let call = parse(family, &words(line)).unwrap();
        call.stands_in(family, Path::new("/cwd"))
    };
    assert_eq!(stands(Family::Runc, "create -b b c"), Path::new("/cwd"));
    assert_eq!(stands(Family::Crun, "create -b b c"), Path::new("/cwd/b"));
    assert_eq!(stands(Family::Crun, "restore -b /b c"), Path::new("/b"));
    assert_eq!(stands(Family::Crun, "run c"), Path::new("/cwd"));
    assert_eq!(stands(Family::Crun, "delete c"), Path::new("/cwd"));
}
