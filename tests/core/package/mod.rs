//! The packages that `scripts/package` makes: their content, their programs, their scripts.

mod folders;
mod roots;

use std::ffi::OsStr;
use testkit::packages::{self, PROGRAMS, package};
use testkit::prelude::*;

/// The newest C library that the programs may want.
const GLIBC: (u32, u32) = (2, 28);

/// Runs a script of a shell, whose `$0`, `$1` and so on are these.
#[track_caller]
fn run<S: AsRef<OsStr>>(script: &str, arguments: &[S]) -> String {
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", script]);
    let output = bash.args(arguments).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn unpacked() -> Option<TempDir> {
    let deb = package(".deb")?;
    let root = tempfile::tempdir().unwrap();
    let unpack = "dpkg-deb -x $0 $1; dpkg-deb -e $0 $1/DEBIAN";
    run(unpack, &[&*deb, root.path()]);
    Some(root)
}

#[test]
fn lintian_is_content() {
    let Some(deb) = package(".deb") else { return };
    let said = run("lintian --allow-root --tag-display-limit 0 $0", &[deb]);
    let is_complaint = |line: &&str| line.starts_with("E:") || line.starts_with("W:");
    let complaints: Vec<&str> = said.lines().filter(is_complaint).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn programs_run_on_old_systems() {
    let Some(root) = unpacked() else { return };
    for name in PROGRAMS {
        let program = root.path().join("usr/bin").join(name);
        let symbols = run("objdump -T $0", &[&program]);
        let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
            let word = rest
                .split(|c: char| !c.is_ascii_digit() && c != '.')
                .next()?;
            let mut numbers = word.split('.').map(|n| n.parse::<u32>().ok());
            Some((numbers.next()??, numbers.next()??))
        });
        let newest = versions.max();
        assert!(newest <= Some(GLIBC), "{name} wants glibc {newest:?}");
        // The front wants no loader.
        let headers = run("readelf --program-headers $0", &[&program]);
        assert_eq!(headers.contains("INTERP"), name != "runmig", "{name}");
        assert_eq!(newest.is_some(), name != "runmig", "{name}");
    }
    let said = run("$0/usr/bin/migctl --version", &[root.path()]);
    assert_eq!(said.trim(), concat!("migctl ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn only_the_timer_is_enabled() {
    let Some(root) = unpacked() else { return };
    let scripts = root.path().join("DEBIAN");
    for name in ["postinst", "prerm", "postrm"] {
        let text = fs::read_to_string(scripts.join(name)).unwrap();
        assert!(text.contains("runmig-gc.timer"), "{name}");
        assert!(!text.contains("runmig-gc.service"), "{name}");
    }
    let files = fs::read_to_string(scripts.join("conffiles")).unwrap();
    assert_eq!(files.trim(), "/etc/runmig/config.toml");
}

/// All packages have the same programs and files.
#[test]
fn packages_have_same_files() {
    let (Some(root), Some(tarball), Some(rpm)) = (unpacked(), package(".tar.gz"), package(".rpm"))
    else {
        return;
    };
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    run(
        "tar -C $0 -xzf $1; $0/*/install --prefix /usr --destdir $0/tar",
        &[work.path(), &tarball],
    );
    run(
        "mkdir $0; rpm --root $0 --initdb
        rpm --root $0 -i --nodeps --noscripts --ignorearch $1; rpm --root $0 -V --nodeps runmig",
        &[&at("rpm"), &rpm],
    );
    // Packages compress manual pages and have documents of their own.
    let plain = |root: &Path| -> BTreeSet<String> {
        let found = run("find $0 -type f -printf '%P\\n'", &[root]);
        let ours = found.lines().map(|file| file.trim_end_matches(".gz"));
        ours.filter(|file| {
            let others = [
                "DEBIAN/",
                "var/",
                "usr/share/lintian/",
                "usr/share/licenses/",
                "usr/lib/sysimage/",
                "root/.rpmdb/",
            ];
            !others.iter().any(|other| file.starts_with(other))
                && !file.ends_with("/copyright")
                && !file.ends_with("/changelog.Debian")
        })
        .map(str::to_owned)
        .collect()
    };
    let expected = plain(&at("tar"));
    let has_both =
        ["usr/bin/runmig", "usr/share/man/man1/migctl.1"].map(|at| expected.contains(at));
    assert_eq!(has_both, [true; 2]);
    assert_eq!(plain(root.path()), expected);
    assert_eq!(plain(&at("rpm")), expected);
    for name in PROGRAMS {
        let program = format!("usr/bin/{name}");
        let [a, b, c] = [root.path(), &at("tar"), &at("rpm")]
            .map(|root| fs::read(root.join(&program)).unwrap());
        assert!(a == b && b == c, "{name} differs between the packages");
    }
}

#[test]
fn verify_finds_a_changed_byte() {
    let Some(made) = packages::folder() else {
        return;
    };
    let work = tempfile::tempdir().unwrap();
    let copy = work.path().join("package");
    let key = work.path().join("key");
    let sums = copy.join("SHA256SUMS");
    run(
        "cp -r $0 $1; ssh-keygen -q -t ed25519 -N '' -f $2
        ssh-keygen -q -Y sign -f $2 -n runmig-package $3",
        &[&made, &copy, &key, &sums],
    );
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let signers = work.path().join("signers");
    fs::write(&signers, format!("packager {public}")).unwrap();
    let verify = || {
        let mut package = Command::new(testkit::repository().join("scripts/package"));
        package.args(["--verify", "--signers"]).arg(&signers);
        said(package.arg(&copy))
    };
    verify().ok();
    let deb = copy.join(package(".deb").unwrap().file_name().unwrap());
    let good = fs::read(&deb).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&deb, &bad).unwrap();
    verify().exits(1).warns("not as SHA256SUMS says");
    fs::write(&deb, &good).unwrap();
    // Checksums that somebody else wrote.
    let text = fs::read_to_string(&sums).unwrap();
    fs::write(&sums, format!("{text}\n")).unwrap();
    assert!(!verify().status.success());
}
