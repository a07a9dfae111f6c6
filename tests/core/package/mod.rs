//! The packages that `scripts/package` makes: their content, their programs, their scripts.

mod folders;
mod roots;

use std::process::Output;
use testkit::packages::{self, PROGRAMS, package};
use testkit::prelude::*;

/// The newest C library that the programs may want.
const GLIBC: (u32, u32) = (2, 28);

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(arguments: &[&str]) -> Output {
    let script = repository().join("scripts/package");
    Command::new(script).args(arguments).output().unwrap()
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Returns the files below a folder, by their paths in it.
fn files(root: &Path) -> BTreeSet<String> {
    let found = run(
        "find",
        &[root.to_str().unwrap(), "-type", "f", "-printf", "%P\\n"],
    );
    found.lines().map(str::to_owned).collect()
}

fn unpacked() -> Option<tempfile::TempDir> {
    let deb = package(".deb")?;
    let root = tempfile::tempdir().unwrap();
    run("dpkg-deb", &["-x", deb.to_str()?, root.path().to_str()?]);
    run(
        "dpkg-deb",
        &["-e", deb.to_str()?, root.path().join("DEBIAN").to_str()?],
    );
    Some(root)
}

#[test]
fn lintian_is_content() {
    let Some(deb) = package(".deb") else { return };
    let said = run(
        "lintian",
        &[
            "--allow-root",
            "--tag-display-limit",
            "0",
            deb.to_str().unwrap(),
        ],
    );
    let complaints: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("E:") || line.starts_with("W:"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn programs_run_on_old_systems() {
    let Some(root) = unpacked() else { return };
    for name in PROGRAMS {
        let program = root.path().join("usr/bin").join(name);
        let symbols = run("objdump", &["-T", program.to_str().unwrap()]);
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
        let headers = run("readelf", &["--program-headers", program.to_str().unwrap()]);
        assert_eq!(headers.contains("INTERP"), name != "runmig", "{name}");
        assert_eq!(newest.is_some(), name != "runmig", "{name}");
    }
    let said = run(
        root.path().join("usr/bin/migctl").to_str().unwrap(),
        &["--version"],
    );
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
    assert_eq!(
        fs::read_to_string(scripts.join("conffiles"))
            .unwrap()
            .trim(),
        "/etc/runmig/config.toml"
    );
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
        "tar",
        &[
            "-C",
            work.path().to_str().unwrap(),
            "-xzf",
            tarball.to_str().unwrap(),
        ],
    );
    let folder = tarball
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .trim_end_matches(".tar.gz");
    let install = at(folder).join("install");
    run(
        install.to_str().unwrap(),
        &["--prefix", "/usr", "--destdir", at("tar").to_str().unwrap()],
    );
    let root_of_rpm = at("rpm").display().to_string();
    fs::create_dir(at("rpm")).unwrap();
    run("rpm", &["--root", &root_of_rpm, "--initdb"]);
    run(
        "rpm",
        &[
            "--root",
            &root_of_rpm,
            "-i",
            "--nodeps",
            "--noscripts",
            "--ignorearch",
            rpm.to_str().unwrap(),
        ],
    );
    run("rpm", &["--root", &root_of_rpm, "-V", "--nodeps", "runmig"]);
    // Packages compress manual pages and have documents of their own.
    let plain = |root: &Path| -> BTreeSet<String> {
        let ours = files(root)
            .into_iter()
            .map(|file| file.trim_end_matches(".gz").to_owned());
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
    run(
        "cp",
        &["-r", made.to_str().unwrap(), copy.to_str().unwrap()],
    );
    let key = work.path().join("key");
    run(
        "ssh-keygen",
        &["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()],
    );
    let sums = copy.join("SHA256SUMS");
    run(
        "ssh-keygen",
        &[
            "-q",
            "-Y",
            "sign",
            "-f",
            key.to_str().unwrap(),
            "-n",
            "runmig-package",
            sums.to_str().unwrap(),
        ],
    );
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let signers = work.path().join("signers");
    fs::write(&signers, format!("packager {public}")).unwrap();
    let verify = || {
        let ended = script(&[
            "--verify",
            "--signers",
            signers.to_str().unwrap(),
            copy.to_str().unwrap(),
        ]);
        (
            ended.status.success(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    let (is_right, said) = verify();
    assert!(is_right, "{said}");
    let deb = copy.join(package(".deb").unwrap().file_name().unwrap());
    let good = fs::read(&deb).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&deb, &bad).unwrap();
    let (is_right, said) = verify();
    assert!(
        !is_right && said.contains("not as SHA256SUMS says"),
        "{said}"
    );
    fs::write(&deb, &good).unwrap();
    // Checksums that somebody else wrote.
    let text = fs::read_to_string(&sums).unwrap();
    fs::write(&sums, format!("{text}\n")).unwrap();
    let (is_right, said) = verify();
    assert!(!is_right, "{said}");
}
