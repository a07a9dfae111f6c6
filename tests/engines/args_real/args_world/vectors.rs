//! Arguments made of pieces: what each family has, and what it stumbles over.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use runmig::runtime::args::Family;

/// Pieces between bars, each of words; `''` is an empty word.
fn split(text: &'static str) -> Vec<Vec<&'static str>> {
    let words = |piece: &'static str| piece.split_whitespace();
    let word = |word| if word == "''" { "" } else { word };
    let piece = |piece| words(piece).map(word).collect();
    text.split('|').map(piece).collect()
}

/// Options before a command, options after it, and what is odd.
fn pieces(family: Family) -> [Vec<Vec<&'static str>>; 3] {
    let pieces = match family {
        Family::Runc => [
            "--root one | -root two | --root=@/one | -root=two | --log l1 | --log=@/l2 | --log create | \
             --log-format json | --log-format=text | --debug | -debug=false | --debug=T | --rootless auto | \
             --rootless=false | --systemd-cgroup=0 | --help=false | -v=false | --criu run",
            "-b one | --b=two | --bundle two | -bundle=@/one | --bundle= | --no-pivot | -no-pivot=false | \
             --no-new-keyring=TRUE | --pid-file p | --pid-file=one | --preserve-fds 0 | --preserve-fds=0x0 | -h=false",
            "-- | - | -b - | -b -- | -b create | -b | ---b one | --bund one | -bone | --root one | -d | -h | \
             --bogus | --bogus=1 | -x | -b=one --bundle=two | create | ''",
        ],
        Family::Crun => [
            "--root one | --roo two | --root=@/two | --r=one | --log l1 | --log=file:@/l2 | --log run | \
             --log-format json | --log-f=text | --debug | --deb | --cgroup-manager cgroupfs | --cg=disabled | \
             --program-name create",
            "-b one | -btwo | --bundle two | --bund @/one | --b=one | -f cfg | -fcfg | --config=@/cfg | --no-pivot | \
             --no-p | --no-new | --pid-file p | --pid=p | --preserve-fds 0 | --pres=0x | --console s",
            "-- | - | -b - | -b -- | -b create | -b | --no | --con=cfg | --bundle= | --no-pivot=1 | -bundle one | \
             -db one | --rootl one | -d | --help | --bogus | -x | -vb | create | ''",
        ],
    };
    pieces.map(split)
}

/// All words that could be taken for a path.
pub fn words(family: Family) -> impl Iterator<Item = &'static str> {
    let all = pieces(family).concat().concat();
    all.into_iter().chain(["c1", "c2", "create", "-x", "-"])
}

/// Options before, a command, options and an id after it, with something odd put in here and there.
pub fn of(family: Family) -> impl Strategy<Value = Vec<String>> {
    let [global, local, noise] = pieces(family);
    let ids = split("c1 | c2 | create | - | -- -x");
    let commands = split("create | create | create | run | run | restore");
    let odd = prop::collection::vec((select(noise), any::<Index>()), 1..=2);
    (
        prop::collection::vec(select(global), 0..=3),
        select(commands),
        prop::collection::vec(select(local), 0..=3),
        select(ids),
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
