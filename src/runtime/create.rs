//! A create, from the annotation to the running low-level runtime.

use super::args::{Create, Family, Restore};
use super::spawn::{self, Inherited, Meanwhile};
use super::{Front, args};
use crate::config::DriverFiles as Choice;
use crate::error::{Context, Error, Result};
use crate::gpu::nodes::{self, Nodes};
use crate::lease::{Leases, Patience, Returned};
use crate::request::{self, Request};
use crate::spec::bundle::Bundle;
use crate::spec::{self, DriverFiles, Grant, HookCommand, Host, cdi};
use crate::store::{Holder, Key, Lease};
use crate::trust;
use std::path::{Path, PathBuf};

/// Engines wait for a delete, so for our hook: long enough for a driver that takes its time.
const HOOK_TIMEOUT_S: u32 = 30;
/// Where the node's CDI specifications are, the later ones winning.
const CDI_DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Whether the low-level runtime ends when the container is there, or with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    Until,
    While,
}

pub fn create(front: &Front<'_>, create: &Create, stays: Stays) -> Result<i32> {
    let bundle_path = bundle_path(create.bundle.as_deref())?;
    let bundle = Bundle::open(&bundle_path)?;
    let seen = spec::peek(&bundle.read()?)?;
    let ours = seen.annotations.keys().any(|key| request::is_ours(key));
    if !ours && !seen.marked {
        return Err(front.runtime.exec(front.args));
    }
    let annotations: Vec<(String, String)> = seen.annotations.into_iter().collect();
    match request::parse(&annotations)? {
        Some(asked) => {
            Slicing::new(front, create, &bundle_path, bundle)?.run(&asked, &annotations, stays)
        }
        None if seen.marked => {
            // An earlier create of ours put a slice into this bundle, and now it asks for none.
            put_back(front, &bundle)?;
            drop(bundle);
            Err(front.runtime.exec(front.args))
        }
        None => Err(front.runtime.exec(front.args)),
    }
}

/// A process that is restored expects the device it was saved with: what it asks for cannot be given.
pub fn restore(front: &Front<'_>, restore: &Restore) -> Result<i32> {
    let bundle = Bundle::open(&bundle_path(restore.bundle.as_deref())?)?;
    let seen = spec::peek(&bundle.read()?)?;
    let annotations: Vec<(String, String)> = seen.annotations.into_iter().collect();
    if seen.marked || request::parse(&annotations)?.is_some() {
        return Err(Error::new(format!(
            "container {} asks for a GPU slice and cannot be restored: CUDA keeps state on the GPU it \
             was saved on",
            restore.id
        ))
        .hint("create it anew"));
    }
    drop(bundle);
    Err(front.runtime.exec(front.args))
}

fn bundle_path(given: Option<&Path>) -> Result<PathBuf> {
    let path = given.unwrap_or(Path::new("."));
    std::fs::canonicalize(path).context(|| format!("find bundle {}", path.display()))
}

/// The original back into a bundle whose container asks for nothing any more.
fn put_back(front: &Front<'_>, bundle: &Bundle) -> Result<()> {
    let numbers = Nodes::read(&front.config.driver.root)
        .map(|nodes| nodes.numbers().clone())
        .unwrap_or_default();
    bundle.lock()?;
    bundle.put_back(&numbers)
}

struct Slicing<'a> {
    front: &'a Front<'a>,
    create: &'a Create,
    bundle_path: &'a Path,
    bundle: Bundle,
    inherited: Inherited,
    leases: Leases<'a>,
    nodes: Nodes,
}

impl<'a> Slicing<'a> {
    fn new(
        front: &'a Front<'a>,
        create: &'a Create,
        bundle_path: &'a Path,
        bundle: Bundle,
    ) -> Result<Self> {
        // Before the library is opened: what it opens is not the container's. The bundle is ours.
        let inherited = Inherited::now(&[&bundle])?;
        if !trust::is_host_root() {
            return Err(Error::new("a slice can only be made by root on the host, and this is a user (or root of a user namespace)")
                .hint("run the engine as root"));
        }
        bundle.lock()?;
        let leases = Leases::open(front.config)?;
        crate::log::start(front.config);
        let nodes = Nodes::read(&front.config.driver.root).context(|| {
            format!(
                "read the driver's device numbers below {}",
                front.config.driver.root.display()
            )
        })?;
        Ok(Slicing {
            front,
            create,
            bundle_path,
            bundle,
            inherited,
            leases,
            nodes,
        })
    }

    fn run(self, asked: &Request, annotations: &[(String, String)], stays: Stays) -> Result<i32> {
        let original = self.bundle.original(self.nodes.numbers())?.bytes;
        let driver = self.driver_files()?;
        let hook = self.hook_path()?;
        let cgroups = spec::cgroup_names(&original, &self.create.id)?;
        let holder = self.holder(request::identity(annotations)?)?;

        let lease = self.leases.acquire(holder, asked, cgroups)?;
        let made = self
            .edit(&lease, &original, &driver, hook)
            .and_then(|edited| {
                self.bundle.install(&lease.id, &original, &edited)?;
                self.hand_over(&lease, stays)
            });
        match made {
            Ok(ended) if ended.succeeded() && stays == Stays::Until => {
                // The container is there, whether or not that could be written down: without it the
                // lease counts as alive by the container's init and cgroup.
                if let Err(e) = self.leases.ready(&lease.id) {
                    tracing::warn!(lease = lease.id, "{}", e.line());
                }
                Ok(ended.imitate())
            }
            Ok(ended) => {
                // It failed and said why, or a foreground run is over and its hook may have run.
                match self.over(&lease) {
                    Ok(()) => {}
                    Err(e) if stays == Stays::While && ended.succeeded() => {
                        tracing::warn!(lease = lease.id, "{}", e.line());
                    }
                    Err(e) => {
                        super::report::error(&e, super::report::Log::of(self.front.call).as_ref())
                    }
                }
                Ok(ended.imitate())
            }
            Err(e) => Err(e.and(self.over(&lease).err())),
        }
    }

    /// The low-level runtime may have been killed and its container live on: then it keeps its slice.
    fn over(&self, lease: &Lease) -> Result<()> {
        let patience = Patience::default();
        if let Returned::No(life) = self.leases.release_if_over(&lease.id, patience)? {
            tracing::warn!(lease = lease.id, "the container keeps its slice: {life}");
        }
        Ok(())
    }

    fn hand_over(&self, lease: &Lease, stays: Stays) -> Result<spawn::Ended> {
        let child = spawn::spawn(self.front.runtime, self.front.args, &self.inherited)?;
        if self.leases.started(&lease.id, child.process())?.is_none() {
            return Err(Error::new(
                "the lease was taken away while the container was made",
            ));
        }
        child.run(|| match stays {
            Stays::Until => Meanwhile::Done,
            Stays::While => match self.leases.ready_if_started(&lease.id) {
                Ok(false) => Meanwhile::AskAgain,
                Ok(true) => Meanwhile::Done,
                Err(e) => {
                    tracing::warn!(lease = lease.id, "{}", e.line());
                    Meanwhile::Done
                }
            },
        })
    }

    fn edit(
        &self,
        lease: &Lease,
        original: &[u8],
        driver: &DriverFiles,
        hook: PathBuf,
    ) -> Result<Vec<u8>> {
        let slice = &lease.slice;
        let (Some(gi), Some(ci), Some(uuid)) =
            (slice.gpu_instance, slice.compute_instance, &slice.mig_uuid)
        else {
            return Err(Error::new("the lease has no instance"));
        };
        let mut devices = self.nodes.base_nodes();
        devices.push(self.nodes.gpu_node(slice.gpu_minor));
        devices.extend(self.nodes.capability_nodes(slice.gpu_minor, gi, ci)?);
        if spec::uses_user_namespace(original)? {
            nodes::check_on_host(&devices)?;
        }
        let mut args = Vec::new();
        if let Some(file) = &self.front.config.file {
            args.extend(["--config".to_owned(), utf8(file)?]);
        }
        let grant = Grant {
            mig_uuid: uuid,
            nodes: &devices,
            hook: HookCommand {
                path: hook,
                lease: lease.id.clone(),
                args,
                env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
                timeout_s: HOOK_TIMEOUT_S,
            },
            driver,
            numbers: self.nodes.numbers(),
        };
        spec::edit(
            original,
            &grant,
            &Host::new(self.bundle_path, &self.front.config.driver.root),
        )
    }

    fn driver_files(&self) -> Result<DriverFiles> {
        let name = self
            .front
            .runtime
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let is_nvidia = name.starts_with("nvidia-container-runtime");
        let found = || cdi::read(&CDI_DIRS.map(Path::new));
        match self.front.config.driver_files {
            Choice::None | Choice::NvidiaRuntime => Ok(DriverFiles::default()),
            Choice::Auto if is_nvidia => Ok(DriverFiles::default()),
            Choice::Auto => Ok(found()?.unwrap_or_default()),
            Choice::Cdi => found()?.ok_or_else(|| {
                Error::new(format!(
                    "no CDI specification of nvidia.com/gpu in {}",
                    CDI_DIRS.join(" or ")
                ))
                .hint("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
            }),
        }
    }

    /// Beside us, wherever that is.
    fn hook_path(&self) -> Result<PathBuf> {
        let us = std::fs::read_link("/proc/self/exe").context(|| "find this program")?;
        let hook = us.with_file_name(spec::HOOK_NAME);
        trust::program(&hook).map_err(|e| {
            Error::new(format!("poststop hook {}", hook.display()))
                .hint("install runmig-hook beside runmig")
                .caused_by(e)
        })
    }

    fn holder(&self, who: request::Identity) -> Result<Holder> {
        Ok(Holder {
            key: key(self.front, &self.create.id)?,
            bundle: self.bundle_path.to_owned(),
            namespace: who.namespace,
            pod: who.pod,
            pod_uid: who.pod_uid,
            container_name: who.container_name,
        })
    }
}

/// The root as the low-level runtime would resolve it.
pub fn key(front: &Front<'_>, id: &str) -> Result<Key> {
    let family = Family::of(front.runtime.path());
    let root = match &front.call.root {
        Some(root) => root.clone(),
        None => {
            let environment = |name: &str| std::env::var_os(name);
            args::default_root(family, &environment, !trust::is_host_root())
        }
    };
    let absolute = std::path::absolute(&root).context(|| format!("resolve {}", root.display()))?;
    // It may not be there yet, and must be called the same before and after.
    let root = crate::paths::resolve(&absolute);
    Ok(Key {
        runtime: front.runtime.path().to_owned(),
        root,
        id: id.to_owned(),
    })
}

fn utf8(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::new(format!("path {} is not UTF-8", path.display())))
}
