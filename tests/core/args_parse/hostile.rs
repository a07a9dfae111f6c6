//! Arguments made to confuse the parser.

use proptest::prelude::*;
use runmig::runtime::args::{Call, Family, How, Verb, parse};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// Bytes, words that mean something, and these cut and joined.
fn argument() -> impl Strategy<Value = OsString> {
    const WORDS: &str = "create run restore delete update -r --root --log -b --bundle -- - --r = -d --no-pivot \
                         --preserve-fds -9 0x + _ \u{e9}";
    let word = || prop::sample::select(WORDS.split(' ').collect::<Vec<_>>());
    let bytes = || prop::collection::vec(any::<u8>(), 0..8);
    prop_oneof![
        3 => word().prop_map(OsString::from),
        1 => bytes().prop_map(OsString::from_vec),
        1 => (word(), bytes(), word())
            .prop_map(|(a, b, c)| OsString::from_vec([a.as_bytes(), &b, c.as_bytes()].concat())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..Default::default() })]

    #[test]
    fn nothing_makes_it_panic(
        first in prop::sample::select(vec!["create", "run", "restore", "update", "--root"]),
        rest in prop::collection::vec(argument(), 0..12),
    ) {
        let args = [vec![OsString::from(first)], rest].concat();
        for family in [Family::Runc, Family::Crun] {
            let call = parse(family, &args);
            let word = |w: &str| args.iter().any(|a| a == w);
            if let Verb::Unclear(unclear) = &call.verb {
                prop_assert!(word(unclear.command), "{call:?}");
            }
            if let Call { verb: Verb::Make(create), .. } = &call {
                prop_assert!(args.contains(&create.id));
                let verb = match create.how {
                    How::Create => "create",
                    How::Run { .. } => "run",
                    How::Restore => "restore",
                };
                prop_assert!(word(verb), "{call:?}");
            }
            if let Call { verb: Verb::Update(update), .. } = &call {
                prop_assert!(word("update") && args.last() == Some(&update.id));
                // The one option more that it is for wins, and the rest is read as before.
                let mut more = args.clone();
                more.insert(update.options_end, "--resources=ours".into());
                let again = parse(family, &more);
                let Verb::Update(again) = again.verb else {
                    panic!("{again:?}");
                };
                prop_assert_eq!(again.resources.to_str(), Some("ours"));
                prop_assert_eq!(&again.id, &update.id);
            }
        }
    }
}

#[test]
fn bounds_time_of_many_arguments() {
    let start = std::time::Instant::now();
    for repeated in ["-b", "--no-pivot", "c", "--", "-bb", "--unknown"] {
        let mut args = vec![OsString::from("create")];
        args.resize(100_000, OsString::from(OsStr::new(repeated)));
        for family in [Family::Runc, Family::Crun] {
            let _ = parse(family, &args);
        }
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
