//! Arguments made of pieces: what each family has, and what it stumbles over.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use runmig::runtime::args::Family;

type Pieces = &'static [&'static [&'static str]];

const RUNC_GLOBAL: Pieces = &[
    &["--root", "one"],
    &["-root", "two"],
    &["--root=@/one"],
    &["-root=two"],
    &["--log", "l1"],
    &["--log=@/l2"],
    &["--log", "create"],
    &["--log-format", "json"],
    &["--log-format=text"],
    &["--debug"],
    &["-debug=false"],
    &["--debug=T"],
    &["--rootless", "auto"],
    &["--rootless=false"],
    &["--systemd-cgroup=0"],
    &["--help=false"],
    &["-v=false"],
    &["--criu", "run"],
];

const RUNC_LOCAL: Pieces = &[
    &["-b", "one"],
    &["--b=two"],
    &["--bundle", "two"],
    &["-bundle=@/one"],
    &["--bundle="],
    &["--no-pivot"],
    &["-no-pivot=false"],
    &["--no-new-keyring=TRUE"],
    &["--pid-file", "p"],
    &["--pid-file=one"],
    &["--preserve-fds", "0"],
    &["--preserve-fds=0x0"],
    &["-h=false"],
];

const RUNC_NOISE: Pieces = &[
    &["--"],
    &["-"],
    &["-b", "-"],
    &["-b", "--"],
    &["-b", "create"],
    &["-b"],
    &["---b", "one"],
    &["--bund", "one"],
    &["-bone"],
    &["--root", "one"],
    &["-d"],
    &["-h"],
    &["--bogus"],
    &["--bogus=1"],
    &["-x"],
    &["-b=one", "--bundle=two"],
    &["create"],
    &[""],
];

const CRUN_GLOBAL: Pieces = &[
    &["--root", "one"],
    &["--roo", "two"],
    &["--root=@/two"],
    &["--r=one"],
    &["--log", "l1"],
    &["--log=file:@/l2"],
    &["--log", "run"],
    &["--log-format", "json"],
    &["--log-f=text"],
    &["--debug"],
    &["--deb"],
    &["--cgroup-manager", "cgroupfs"],
    &["--cg=disabled"],
    &["--program-name", "create"],
];

const CRUN_LOCAL: Pieces = &[
    &["-b", "one"],
    &["-btwo"],
    &["--bundle", "two"],
    &["--bund", "@/one"],
    &["--b=one"],
    &["-f", "cfg"],
    &["-fcfg"],
    &["--config=@/cfg"],
    &["--no-pivot"],
    &["--no-p"],
    &["--no-new"],
    &["--pid-file", "p"],
    &["--pid=p"],
    &["--preserve-fds", "0"],
    &["--pres=0x"],
    &["--console", "s"],
];

const CRUN_NOISE: Pieces = &[
    &["--"],
    &["-"],
    &["-b", "-"],
    &["-b", "--"],
    &["-b", "create"],
    &["-b"],
    &["--no"],
    &["--con=cfg"],
    &["--bundle="],
    &["--no-pivot=1"],
    &["-bundle", "one"],
    &["-db", "one"],
    &["--rootl", "one"],
    &["-d"],
    &["--help"],
    &["--bogus"],
    &["-x"],
    &["-vb"],
    &["create"],
    &[""],
];

fn pieces(family: Family) -> [Pieces; 3] {
    match family {
        Family::Runc => [RUNC_GLOBAL, RUNC_LOCAL, RUNC_NOISE],
        Family::Crun => [CRUN_GLOBAL, CRUN_LOCAL, CRUN_NOISE],
    }
}

/// All words that could be taken for a path.
pub fn words(family: Family) -> impl Iterator<Item = &'static str> {
    let all = pieces(family).concat().concat();
    all.into_iter().chain(["c1", "c2", "create", "-x", "-"])
}

/// Options before, a command, options and an id after it, with something odd put in here and there.
pub fn of(family: Family) -> impl Strategy<Value = Vec<String>> {
    let [global, local, noise] = pieces(family);
    let piece = |of: Pieces| select(of.to_vec());
    let ids: Pieces = &[&["c1"], &["c2"], &["create"], &["-"], &["--", "-x"]];
    let commands: Pieces = &[
        &["create"],
        &["create"],
        &["create"],
        &["run"],
        &["run"],
        &["restore"],
    ];
    let odd = prop::collection::vec((piece(noise), any::<Index>()), 1..=2);
    (
        prop::collection::vec(piece(global), 0..=3),
        piece(commands),
        prop::collection::vec(piece(local), 0..=3),
        piece(ids),
        // the id's place: most often the last
        prop_oneof![5 => Just(3), 1 => Just(0)],
        prop_oneof![1 => Just(vec![]), 1 => odd],
    )
        .prop_map(|(mut all, command, mut local, id, at, odd)| {
            local.insert(at.min(local.len()), id);
            all.push(command);
            all.extend(local);
            for (piece, at) in odd {
                all.insert(at.index(all.len() + 1), piece);
            }
            all.concat().into_iter().map(str::to_owned).collect()
        })
}
