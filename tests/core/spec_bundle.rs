//! config.json in its bundle: whose bytes are where after which steps, and after a kill between any.

use runmig::spec::Peek;
use runmig::spec::bundle::Bundle;
use runmig_lease::Author;
use runmig_lease::error::Error;
use runmig_lease::model::{LeaseId, NvidiaNumbers};
use testkit::prelude::*;

const ORIGINAL: &str = "{\n\t\"ociVersion\": \"1.0.2\"\n}\n";

fn author(lease: &str) -> Author {
    Author {
        lease: LeaseId::new(lease),
        ..Author::default()
    }
}

fn edit_of(lease: &str) -> String {
    format!(
        r#"{{"ociVersion":"1.0.2","hooks":{{"poststop":[{{"path":"/h","args":["runmig-hook","--lease","{lease}"]}}]}}}}"#
    )
}

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("config.json"), ORIGINAL).unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn bundle(&self) -> Bundle {
        Bundle::open(self.dir.path()).unwrap()
    }

    fn write(&self, config: impl AsRef<[u8]>) {
        fs::write(self.path("config.json"), config).unwrap();
    }

    fn config(&self) -> String {
        fs::read_to_string(self.path("config.json")).unwrap()
    }

    fn original(&self) -> (String, Option<String>) {
        let found = { self.bundle() }.original(&NvidiaNumbers::default(), None);
        let author = self.bundle().author().unwrap();
        let lease = author.map(|author| author.lease.to_string());
        (String::from_utf8(found.unwrap()).unwrap(), lease)
    }

    fn install(&self, lease: &str) {
        let (original, edit) = (self.original().0, edit_of(lease));
        let installed =
            { self.bundle() }.install(author(lease), original.as_bytes(), edit.as_bytes());
        installed.unwrap();
    }

    #[track_caller]
    fn restores(&self, lease: &str) {
        self.bundle().restore(&LeaseId::new(lease)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        names_in(self.dir.path())
    }

    fn error(&self) -> String {
        let found = { self.bundle() }.original(&NvidiaNumbers::default(), None);
        self.shown(&found.unwrap_err())
    }

    /// A line of an error, with the bundle as /b.
    fn shown(&self, e: &Error) -> String {
        e.line().replace(self.dir.path().to_str().unwrap(), "/b")
    }
}

#[test]
fn restores_original_with_mode_and_owner() {
    let place = Place::new();
    let config = place.path("config.json");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    let root = nix::unistd::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(&config, Some(12), Some(34)).unwrap();
    }
    let before = fs::metadata(&config).unwrap();
    let same = |after: fs::Metadata| {
        assert_eq!(after.mode(), before.mode());
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    };
    place.install("a");
    assert_eq!(place.config(), edit_of("a"));
    same(fs::metadata(&config).unwrap());
    assert_eq!(place.names(), ["config.json", "config.json.runmig"]);
    let sidecar = fs::metadata(place.path("config.json.runmig")).unwrap();
    assert_eq!(sidecar.mode() & 0o777, 0o600);

    place.restores("a");
    assert_eq!(place.config(), ORIGINAL);
    same(fs::metadata(&config).unwrap());
    assert_eq!(place.names(), ["config.json"]);
    place.restores("a");
    assert_eq!(place.config(), ORIGINAL);
}

#[test]
fn finds_original_after_any_create() {
    let place = Place::new();
    assert_eq!(place.original(), (ORIGINAL.into(), None));
    place.install("a");
    assert_eq!(place.original(), (ORIGINAL.into(), Some("a".into())));
    // a second create over the first, which was never released
    place.install("b");
    assert_eq!(place.config(), edit_of("b"));
    assert_eq!(place.original(), (ORIGINAL.into(), Some("b".into())));
    // the late hook of the first
    place.restores("a");
    assert_eq!(place.config(), edit_of("b"));
    place.restores("b");
    assert_eq!(place.config(), ORIGINAL);
}

/// The look was before the bundle's lock.
#[test]
fn believes_no_stale_look() {
    let place = Place::new();
    let look = |seen: &str| {
        let found = { place.bundle() }.original(&NvidiaNumbers::default(), Some(seen.as_bytes()));
        String::from_utf8(found.unwrap()).unwrap()
    };
    assert_eq!(look("{}"), ORIGINAL);
    place.write(edit_of("a"));
    assert_eq!(look(ORIGINAL), r#"{"ociVersion":"1.0.2"}"#);
    place.write(ORIGINAL);
    place.install("a");
    assert_eq!(look(&edit_of("a")), ORIGINAL);
}

#[test]
fn survives_kill_before_edit() {
    let place = Place::new();
    place.install("a");
    place.write(ORIGINAL);
    assert_eq!(place.original().0, ORIGINAL);
    place.restores("a");
    assert_eq!(place.names(), ["config.json"]);

    // the same over an earlier edit
    place.install("a");
    place.install("b");
    place.write(edit_of("a"));
    assert_eq!(place.original(), (ORIGINAL.into(), Some("b".into())));
    place.restores("b");
    assert_eq!(place.config(), ORIGINAL);
}

#[test]
fn survives_kill_before_sidecar_removal() {
    let place = Place::new();
    place.install("a");
    let sidecar = fs::read(place.path("config.json.runmig")).unwrap();
    place.restores("a");
    fs::write(place.path("config.json.runmig"), sidecar).unwrap();
    place.restores("a");
    assert_eq!(place.config(), ORIGINAL);
    assert_eq!(place.names(), ["config.json"]);
}

#[test]
fn leaves_changes_of_others() {
    let place = Place::new();
    place.install("a");
    let regenerated = r#"{"ociVersion":"1.1.0"}"#;
    place.write(regenerated);
    assert_eq!(place.original().0, regenerated);
    place.restores("a");
    assert_eq!(place.config(), regenerated);
    assert_eq!(place.names(), ["config.json"]);

    // with an edit of ours in it, but of another lease
    place.install("a");
    let changed = edit_of("b").replace("1.0.2", "1.2.0");
    place.write(&changed);
    assert_eq!(place.original().0, r#"{"ociVersion":"1.2.0"}"#);
    place.restores("a");
    assert_eq!(place.config(), changed);
}

/// An edit taken out for one reader would stay for another.
#[test]
fn strips_nothing_that_readers_differ_in() {
    let place = Place::new();
    for (key, words) in [
        ("\"Hooks\":{},", "Hooks is hooks to some"),
        ("\"hooks\":{},", "hooks occurs twice"),
        ("\"linux\":{\"Devices\":[]},", "linux.Devices is devices"),
    ] {
        let edit = edit_of("b").replacen('{', &format!("{{{key}"), 1);
        place.write(&edit);
        assert!(place.error().contains(words), "{}", place.error());
        assert_eq!(place.config(), edit);
    }
}

/// As nvidia-container-runtime leaves it: other bytes, more in it, and the hook of the lease.
#[test]
fn restores_original_of_rewritten_edit() {
    let place = Place::new();
    let several = "\"--lease\", \"z\", \"--lease\", \"a\"";
    for hook in ["\"--lease\", \"a\"", several] {
        place.install("a");
        let rewritten = format!(
            r#"{{ "hooks": {{ "poststop": [{{ "args": ["cat"] }}, {{ "args": ["runmig-hook", {hook}] }}] }},
                 "process": {{ "env": ["NVIDIA_VISIBLE_DEVICES=void"] }}, "ociVersion": "1.0.2" }}"#
        );
        place.write(&rewritten);
        assert_eq!(place.original(), (ORIGINAL.into(), Some("a".into())));
        place.restores("b");
        assert_eq!(place.config(), rewritten);
        place.restores("a");
        assert_eq!(place.config(), ORIGINAL);
        assert_eq!(place.names(), ["config.json"]);
    }
    // The id alone, where a hook of ours does not name it, is anybody's text.
    place.install("a");
    let text = r#"{"hooks":{"poststop":[{"args":["sh","--lease","a"]},{"args":["runmig-hook","--lease","b","a"]}]}}"#;
    place.write(text);
    place.restores("a");
    assert_eq!(place.config(), text);
}

/// Killed after the low-level runtime wrote the earlier edit anew, and before ours replaced it.
#[test]
fn keeps_original_across_rewritten_edit() {
    let place = Place::new();
    place.install("a");
    let rewritten = edit_of("a").replace("1.0.2", "1.2.0");
    place.write(&rewritten);
    place.install("b");
    place.write(&rewritten);
    assert_eq!(place.original(), (ORIGINAL.into(), Some("b".into())));
    place.restores("b");
    assert_eq!(place.config(), ORIGINAL);
}

#[test]
fn ignores_damaged_sidecar() {
    let place = Place::new();
    place.install("a");
    let whole = fs::read(place.path("config.json.runmig")).unwrap();
    for length in 0..whole.len() {
        fs::write(place.path("config.json.runmig"), &whole[..length]).unwrap();
        assert_eq!(place.original(), (r#"{"ociVersion":"1.0.2"}"#.into(), None));
        place.restores("a");
        assert_eq!(place.config(), edit_of("a"));
    }
    let newer = String::from_utf8(whole).unwrap();
    let newer = newer.replacen("\"version\":1", "\"version\":2", 1);
    fs::write(place.path("config.json.runmig"), newer).unwrap();
    assert_eq!(place.original().1, None);
}

#[test]
fn survives_vanishing_bundle() {
    let place = Place::new();
    place.install("a");
    fs::remove_file(place.path("config.json")).unwrap();
    place.restores("a");
    assert!(place.names().is_empty());
    let gone = Bundle::open(Path::new("/nonexistent/bundle")).unwrap_err();
    assert_eq!(
        gone.line(),
        "cannot open bundle /nonexistent/bundle: ENOENT: No such file or directory"
    );
}

#[test]
fn leftovers_of_the_killed_are_cleaned() {
    let place = Place::new();
    fs::write(place.path(".config.json.runmig-1-0"), "half").unwrap();
    fs::write(place.path(".config.json.swp"), "theirs").unwrap();
    place.install("a");
    assert_eq!(
        place.names(),
        [".config.json.swp", "config.json", "config.json.runmig"]
    );
}

#[test]
fn refuses_what_is_no_config() {
    let place = Place::new();
    let config = place.path("config.json");
    fs::File::create(&config)
        .unwrap()
        .set_len(17 << 20)
        .unwrap();
    assert_eq!(
        place.error(),
        "cannot read /b/config.json: longer than 16777216 bytes"
    );
    fs::remove_file(&config).unwrap();
    assert_eq!(place.error(), "cannot find config.json in bundle /b");
    let peeked = place.bundle().peek(false).unwrap_err();
    assert_eq!(place.shown(&peeked), place.error());
    nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        place.error(),
        "cannot read /b/config.json: not a regular file"
    );
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    ends_with(&place.error(), "config.json: not a regular file");
    fs::remove_dir(&config).unwrap();
    fs::write(place.path("elsewhere"), ORIGINAL).unwrap();
    symlink("elsewhere", &config).unwrap();
    assert_eq!(
        place.error(),
        "/b/config.json is a link; hint: a config.json that gets a slice is replaced, so it has to be a file"
    );
    // a container that asks for nothing may have one
    let seen = place.bundle().peek(false).unwrap();
    assert_eq!(seen.unmarked.as_deref(), Some(ORIGINAL.as_bytes()));
    let unmarked = None;
    assert_eq!(Peek { unmarked, ..seen }, Peek::default());
}

#[test]
fn follows_link_to_bundle() {
    let place = Place::new();
    let link = TempDir::new().unwrap();
    let link = link.path().join("link");
    symlink(place.dir.path(), &link).unwrap();
    let bundle = Bundle::open(&link).unwrap();
    bundle
        .install(author("a"), ORIGINAL.as_bytes(), edit_of("a").as_bytes())
        .unwrap();
    assert_eq!(place.config(), edit_of("a"));
}

#[test]
fn never_follows_linked_sidecar() {
    let place = Place::new();
    symlink("/etc/hostname", place.path("config.json.runmig")).unwrap();
    begins_with(&place.error(), "/b/config.json.runmig is a link");
}
