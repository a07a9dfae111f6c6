//! containerd: its configuration, and what this machine needs.

use super::cri::{Cri, Engine};
use super::images::{self, IMAGE};
use crate::prelude::*;

/// The handler as it is shipped, put where the file itself says that it belongs. To a configuration that
/// lists no runtimes, as Debian's does not, containerd 1 needs the lines that are marked as comments.
pub fn configure(cri: &Cri) {
    let shipped = |name: &str| cri.runtime.shipped(&format!("containerd-config/{name}"));
    let (drop_ins, cni) = (cri.path("conf.d"), cri.path("cni"));
    fs::create_dir_all(&drop_ins).unwrap();
    let (imports, more) = match cri.engine {
        Engine::Containerd1 => {
            let text = shipped("runmig-v2.toml").replace("\n#[plugins.", "\n[plugins.");
            let text = text.replace("\n#runtime_type", "\nruntime_type");
            let runc = "\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]";
            has(&text, runc);
            (String::new(), text)
        }
        _ => {
            fs::write(drop_ins.join("runmig.toml"), shipped("runmig.toml")).unwrap();
            let imports = format!("imports = [\"{}/*.toml\"]\n", drop_ins.display());
            (imports, String::new())
        }
    };
    let version = if more.is_empty() { 3 } else { 2 };
    let common = format!(
        "version = {version}\nroot = {:?}\nstate = {:?}\noom_score = 0\n{imports}\
         disabled_plugins = [\"io.containerd.internal.v1.opt\", \"io.containerd.nri.v1.nri\"]\n\
         [grpc]\naddress = {:?}\n",
        cri.path("root"),
        cri.path("state"),
        cri.socket()
    );
    // No CAP_SYS_RESOURCE, and no AppArmor that can be had.
    let machine = "disable_apparmor = true\nrestrict_oom_score_adj = true\n";
    let cdi = cri.path("cdi");
    let own = match cri.engine {
        Engine::Containerd1 => format!(
            "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"{IMAGE}\"\n{machine}\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = {cni:?}\n"
        ),
        _ => format!(
            "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = \"{IMAGE}\"\n\
             [plugins.'io.containerd.cri.v1.runtime']\n{machine}cdi_spec_dirs = [{cdi:?}]\n\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = {cni:?}\n"
        ),
    };
    cri.write("config.toml", &format!("{common}{own}{more}"));
}

/// containerd 2 always gives a sandbox a share of the processors.
pub fn without_processor_shares(setup: &Setup) {
    setup.edit_bundles(r#"s/"shares": *[0-9]*/"shares": null/"#);
}

pub fn command(cri: &Cri) -> Command {
    let mut command = cri.engine_command();
    command.arg("--config").arg(cri.path("config.toml"));
    command
}

pub fn import(cri: &Cri, image: &Path) {
    let image = image.to_str().unwrap();
    ctr(cri, &["--namespace=k8s.io", "images", "import", image]).ok();
}

pub fn ctr(cri: &Cri, arguments: &[&str]) -> Said {
    let mut ctr = Command::new(cri.beside("ctr"));
    ctr.arg("--address").arg(cri.socket()).args(arguments);
    said(&mut ctr)
}

/// Takes the socket of a shim away: one that was killed leaves it, in a folder that no
/// configuration moves.
pub fn forget_shim(cri: &Cri, namespace: &str, id: &str) {
    let name = format!("{}/{namespace}/{id}", cri.socket().display());
    let _ = fs::remove_file(Path::new("/run/containerd/s").join(images::hash(name.as_bytes())));
}
