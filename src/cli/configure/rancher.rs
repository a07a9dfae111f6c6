//! The containerd of k3s and RKE2. They write its main file anew at each start, from a template that need not be TOML. The
//! main file imports a folder, where runmig's drop-in goes.

use super::containerd::{self, SAYS, drop_in_text, version};
use super::engine::Found;
use super::{Plan, Task, table};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths::{self, inside};
use std::path::{Path, PathBuf};

/// The folder of containerd's files below the data folder.
const FILES: &str = "agent/etc/containerd";
const DATA: [&str; 2] = ["/var/lib/rancher/k3s", "/var/lib/rancher/rke2"];

pub struct Rancher {
    /// The file that containerd reads: `config.toml`, or `config-v3.toml` for containerd 2.
    main: PathBuf,
}

/// Returns the main file of k3s or RKE2 on a machine that has no other containerd.
pub fn main(root: &Path) -> Option<PathBuf> {
    let is_there = |path: &PathBuf| inside(root, path).exists();
    if is_there(&super::containerd::CONFIG.into()) {
        return None;
    }
    let folder = { DATA.map(|data| Path::new(data).join(FILES)).into_iter() }.find(is_there)?;
    let old = ["config.toml", "config.toml.tmpl"].map(|name| folder.join(name));
    let new = ["config-v3.toml", "config-v3.toml.tmpl"].map(|name| folder.join(name));
    let is_old = old.iter().any(is_there) && !new.iter().any(is_there);
    let [main, _] = if is_old { old } else { new };
    Some(main)
}

/// Returns the folders of drop-ins.
pub fn drop_ins() -> impl Iterator<Item = PathBuf> {
    const NAMES: [&str; 2] = ["config-v3.toml.d", "config.toml.d"];
    let of = |data| NAMES.map(|name| Path::new(data).join(FILES).join(name));
    DATA.into_iter().flat_map(of)
}

impl Rancher {
    /// `file`: the main file, or its template.
    pub fn of(file: &Path) -> Option<Rancher> {
        let is_template = file.extension().is_some_and(|e| e == "tmpl");
        let main = match is_template {
            true => file.with_extension(""),
            false => file.to_owned(),
        };
        let folder = file.parent()?;
        (is_template || folder.ends_with(FILES)).then_some(Rancher { main })
    }

    pub fn plan(&self, task: &Task<'_>) -> Result<Plan> {
        let (engine, shown) = (self.engine(task)?, self.main.display());
        let text = task.read(&self.main)?;
        let is_v3 = self.main.ends_with("config-v3.toml");
        let newest = (2, if is_v3 { 0 } else { u32::MAX });
        let version = match &text {
            None if !is_v3 => 2,
            text => version(text.as_deref(), &engine, engine.version.unwrap_or(newest))
                .context(|| format!("read {shown}"))?,
        };
        if !task.remove && version < 3 && engine.version.is_none_or(|(major, _)| major < 2) {
            return Err(Error::new(format!(
                "cannot add a drop-in to {shown}: containerd 1 takes the CRI plugin from one file alone"
            ))
            .hint(format!(
                "append the tables of containerd/runmig-v2.toml in runmig's share folder to {shown}.tmpl, or name a containerd 2 with --executable"
            )));
        }
        let folder = PathBuf::from(format!("{shown}.d"));
        let drop_in = task.drop_in_or(folder.join(format!("{}.toml", task.name)));
        self.check_template(task, &folder, &drop_in)?;
        let effective = table::parse(text.as_deref().unwrap_or_default())
            .context(|| format!("read {shown}"))?;
        let wanted = (!task.remove).then(|| drop_in_text(task, &effective, version, None));
        let mut changes = vec![task.own_file(&drop_in, wanted)?];
        changes.retain(|change| change.before.is_some() || change.after.is_some());
        let mut files = containerd::imported(task, &changes, &self.main)?;
        let is_read = files.contains(&drop_in);
        if !is_read {
            files.push(drop_in);
        }
        let plan = Plan::new(engine.name, changes, Some(self.restart(task)));
        let mut plan = plan.read_back(task, Ok(files), &SAYS);
        if !is_read && text.is_some() && !task.remove {
            plan.notes.push(format!(
                "{shown} does not import {} yet; if it does not after a restart, update {}",
                folder.display(),
                self.product()
            ));
        }
        Ok(plan)
    }

    /// Checks that the main file that a template gives will import the drop-in's folder.
    fn check_template(&self, task: &Task<'_>, folder: &Path, drop_in: &Path) -> Result<()> {
        let template = PathBuf::from(format!("{}.tmpl", self.main.display()));
        let text = task.read(&template)?.unwrap_or_default();
        let folder = folder.display().to_string();
        // A comment of Go reaches no file.
        let mut text = text.replace("{{- /*", "{{/*");
        while let Some((head, rest)) = text.split_once("{{/*") {
            text = head.to_owned() + rest.split_once("*/").map_or("", |(_, rest)| rest);
        }
        // k3s's own template has the import. Go quotes by backquotes too.
        let words: String = text.replace('`', "\"").split_whitespace().collect();
        let is_own = text.is_empty() || words.contains("template\"base\"");
        let imports =
            |word: &str| containerd::import_matches(&containerd::beside(&self.main, word), drop_in);
        let is_imported =
            |line: &str| line.contains(&folder) || line.split(['"', '\'']).any(imports);
        let is_imported =
            { text.lines().filter_map(|line| line.split('#').next()) }.any(is_imported);
        if task.remove || is_own || is_imported {
            return Ok(());
        }
        Err(Error::new(format!(
            "cannot add a drop-in: template {} neither takes over the base nor imports {folder}",
            template.display()
        ))
        .hint(format!(
            "begin it with {{{{ template \"base\" . }}}}, or add imports = [\"{folder}/*.toml\"]"
        )))
    }

    /// Returns the containerd of the data folder, whose version tells how it joins files.
    fn engine(&self, task: &Task<'_>) -> Result<Found> {
        let data = self.main.ancestors().nth(4).unwrap_or(Path::new("/"));
        let folders = paths::entries(&task.on_disk(&data.join("data")));
        let mut programs = folders.map(|folder| folder.join("bin/containerd"));
        let program = programs.find(|program| program.is_file());
        let name = format!("containerd of {}", self.product());
        match task.executable.map(Path::to_owned).or(program) {
            Some(program) => Found::at(&name, program),
            None => Ok(Found::without_version(&name, "containerd".into())),
        }
    }

    fn product(&self) -> &'static str {
        let mut parts = self.main.components();
        match parts.any(|part| part.as_os_str() == "rke2") {
            true => "RKE2",
            false => "k3s",
        }
    }

    fn restart(&self, task: &Task<'_>) -> &'static str {
        let wanted = |unit: &str| {
            let link = format!("/etc/systemd/system/multi-user.target.wants/{unit}.service");
            task.on_disk(link.as_ref()).symlink_metadata().is_ok()
        };
        match self.product() {
            "RKE2" if wanted("rke2-agent") => "systemctl restart rke2-agent",
            "RKE2" => "systemctl restart rke2-server",
            _ if wanted("k3s-agent") => "systemctl restart k3s-agent",
            _ => "systemctl restart k3s",
        }
    }
}
