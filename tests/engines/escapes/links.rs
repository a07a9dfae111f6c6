//! A rootfs full of links: what is made for the container is made in it, or not at all.

use crate::escapes::on_each;
use testkit::prelude::*;

/// Every file below it, with the fields that a change would alter.
fn look(dir: &Path, into: &mut Vec<(PathBuf, u64, i64, u32)>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    // runc 1.1 follows the image's /dev when it makes these links, with us or without.
    let of_runc = ["core", "fd", "ptmx", "stderr", "stdin", "stdout"];
    let is_of_runc = |entry: &fs::DirEntry| of_runc.iter().any(|name| entry.file_name() == *name);
    for entry in entries.flatten().filter(|entry| !is_of_runc(entry)) {
        let meta = entry.path().symlink_metadata().unwrap();
        into.push((entry.path(), meta.size(), meta.ctime_nsec(), meta.mode()));
        if meta.is_dir() {
            look(&entry.path(), into);
        }
    }
    into.sort();
}

fn replace(rootfs: &Path, path: &str, to: &str) {
    let at = rootfs.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    let _ = fs::remove_dir_all(&at);
    symlink(to, &at).unwrap();
}

/// Runs it, whatever comes of that; no host file changed and no node of NVIDIA's is there.
fn touches_nothing(setup: &Setup, bundle: &Bundle, victim: &Path) -> Said {
    let look = || {
        let mut found = Vec::new();
        look(victim, &mut found);
        let hosts = ["/", "/dev", "/etc"].map(|dir| {
            let mut names = names_in(Path::new(dir));
            names.retain(|name| name.contains("nvidia"));
            names
        });
        let passwd = fs::metadata("/etc/passwd").unwrap();
        (found, hosts, passwd.ctime_nsec(), passwd.mode())
    };
    let before = look();
    let said = setup.try_run(bundle);
    assert_eq!(look(), before, "{said:?}");
    setup.nothing_is_left();
    said
}

#[test]
fn out_of_the_rootfs() {
    on_each(|setup| {
        let victim = setup.path("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("file"), "the host's").unwrap();
        fs::create_dir(victim.join("nvidia-caps")).unwrap();
        let dir = victim.display().to_string();
        let file = format!("{dir}/file");
        let up = format!("../../../../../../../..{dir}");
        let worlds: [&[(&str, &str)]; 5] = [
            &[("dev", &dir)],
            &[("dev", &up)],
            &[
                ("dev/nvidia0", "/etc/passwd"),
                ("dev/nvidiactl", &file),
                ("dev/nvidia-caps", &dir),
            ],
            &[("dev/nvidia-caps", &up), ("dev/nvidia-uvm", "nvidia0")],
            &[("proc", &dir), ("sys", "/")],
        ];
        for links in worlds {
            for own_dev in [true, false] {
                let bundle = setup.asking("1g.10gb", "true");
                for (path, to) in links {
                    replace(&bundle.path.join("rootfs"), path, to);
                }
                bundle.edit(|config| {
                    config["root"]["readonly"] = json!(false);
                    if !own_dev {
                        // Then the links of the image's /dev are what nodes are made at.
                        let mounts = config["mounts"].as_array_mut().unwrap();
                        mounts.retain(|m| !m["destination"].as_str().unwrap().starts_with("/dev"));
                    }
                });
                let said = touches_nothing(setup, &bundle, &victim);
                if !own_dev {
                    assert!(said.refused().contains("mounts nothing at /dev"));
                }
            }
        }
    });
}
