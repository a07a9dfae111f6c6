//! Folders that are full, gone, or others.

use crate::world_matrix::enter::{Inside, mounts};
use crate::world_matrix::node::Node;
use testkit::faults::operations::ID;
use testkit::prelude::*;

/// Nothing more can be written to the ledger's file system.
pub fn full(node: &Node) -> Inside {
    let file = node.state().join("filler");
    let mut filler = fs::File::create(&file).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    Inside::default().and_leave(move || fs::remove_file(file).unwrap())
}

/// No more files can be made there.
pub fn without_inodes(node: &Node) -> Inside {
    let dir = node.state().join("files");
    fs::create_dir(&dir).unwrap();
    let mut files = (0..).map(|n| dir.join(n.to_string()));
    while fs::File::create(files.next().unwrap()).is_ok() {}
    Inside::default().and_leave(move || fs::remove_dir_all(dir).unwrap())
}

pub fn read_only(node: &Node, folder: &str) -> Inside {
    let folder = format!("$NODE/{folder}");
    let script = format!("mount --rbind {folder} {folder}\nmount -o remount,bind,ro {folder}");
    mounts(node, &script)
}

/// Nor is a ledger below, as an earlier operation in that world leaves one.
pub fn unmounted_anew(node: &Node) -> Inside {
    let mut clear = Command::new("unshare");
    let script = "umount \"$0\" && rm -rf \"$0\"/*";
    said(
        clear
            .args(["--mount", "sh", "-ec", script])
            .arg(node.state()),
    )
    .ok();
    mounts(node, "umount $NODE/state").with_own_ledger()
}

/// Something else under the state directory's name.
pub fn replaced(node: &Node, script: &str) -> Inside {
    let script = format!(
        "mount -t tmpfs node /mnt\n\
         for folder in root bundles machine place; do\n\
         [ -e $NODE/$folder ] || continue\n\
         mkdir /mnt/$folder; mount --rbind $NODE/$folder /mnt/$folder\n\
         done\n\
         cp $NODE/config.toml /mnt\n\
         mount --rbind /mnt $NODE\n\
         cd $NODE\n\
         {script}"
    );
    mounts(node, &script)
}

/// A root folder that has no `/proc`.
pub const WITHOUT_PROC: &str = r#"mount -t tmpfs root /mnt
for path in /*; do
    name=${path#/}
    case $name in proc | mnt | lost+found) continue ;; esac
    if [ -L "$path" ]; then
        cp -P "$path" "/mnt/$name"
    elif [ -d "$path" ]; then
        mkdir "/mnt/$name"
        mount --rbind "$path" "/mnt/$name"
    fi
done
set -- chroot /mnt "$@""#;

/// `/etc` has our configuration and nothing else, and the environment names none.
pub const ONLY_ETC: &str = r#"mount -t tmpfs etc /mnt
mkdir /mnt/runmig
cp "$NODE/config.toml" /mnt/runmig
cp -r /etc/ld.so.* /mnt
mount --bind /mnt /etc
set -- env -i "$@""#;

pub fn bundle_moved(node: &Node) -> Inside {
    let here = node.path("bundles").join(ID);
    let there = node.path("moved");
    // Not every operation has one.
    let moved = fs::rename(&here, &there).is_ok();
    let back = move || {
        if moved {
            fs::rename(there, here).unwrap();
        }
    };
    Inside::default().and_leave(back).without_bundle()
}

/// As engines do it, before or after the container's end; a new one comes later.
pub fn bundle_removed(node: &Node) -> Inside {
    let here = node.path("bundles").join(ID);
    let kept = node.path("kept");
    if !here.exists() {
        return Inside::default();
    }
    copied(&here, &kept);
    fs::remove_dir_all(&here).unwrap();
    let record = node.root().join(ID);
    Inside::default().and_leave(move || {
        // The rest of this test looks for what a container that lives was given.
        if !record.exists() {
            fs::copy(kept.join("original"), kept.join("config.json")).unwrap();
            let _ = fs::remove_file(kept.join("config.json.runmig"));
        }
        fs::rename(kept, here).unwrap();
    })
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    said(Command::new("cp").arg("-a").arg(from.join(".")).arg(to)).ok();
}

/// From the first operation on.
pub fn bundle_elsewhere(node: &Node) -> Inside {
    let here = node.bundle(ID);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if !mounts.contains(&format!("bundles/{ID} ")) {
        let aside = node.path("aside");
        copied(&here, &aside);
        node.mount(&["-t", "tmpfs", "bundle"], &format!("bundles/{ID}"));
        copied(&aside, &here);
        fs::remove_dir_all(&aside).unwrap();
    }
    Inside::default()
}
