//! The kubelet's side of the driver: it registers at the kubelet and answers its calls.
//!
//! The kubelet watches a folder for sockets, dials one that appears, and asks for the plugin behind it. The answer names
//! a second socket, on which the kubelet calls the services. Both sockets belong to root alone.

mod health;
pub mod messages;
mod plugin;
mod registration;
mod sockets;

/// The services, made by `build.rs`.
#[allow(unreachable_pub, clippy::all)]
pub mod services {
    include!(concat!(
        env!("OUT_DIR"),
        "/pluginregistration.Registration.rs"
    ));
    include!(concat!(
        env!("OUT_DIR"),
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin.rs"
    ));
    include!(concat!(env!("OUT_DIR"), "/v1alpha1.DRAResourceHealth.rs"));
}

use crate::prepare::Claims;
use crate::report::Healths;
use runmig_lease::error::{Context, Result};
use services::d_r_a_plugin_server::DRAPluginServer;
use services::d_r_a_resource_health_server::DRAResourceHealthServer;
use services::registration_server::RegistrationServer;
use sockets::{Opening, Socket};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tonic::transport::Server;

/// The sockets of this driver below the kubelet's directory. Both are removed at the end.
pub(crate) struct Sockets {
    registration: Socket,
    plugin: Socket,
}

impl Sockets {
    /// Listens on both sockets. The kubelet sees the socket for the registration last.
    ///
    /// The sockets of another process of this driver stay: the kubelet calls the process that registered last, and after
    /// its end the one before. So a process beside another has its id in the names.
    pub(crate) async fn open(kubelet_dir: &Path) -> Result<Sockets> {
        let driver = crate::driver::NAME;
        let plugins = kubelet_dir.join("plugins").join(driver);
        let registry = kubelet_dir.join("plugins_registry");
        let opening = Opening::begin(&plugins).await?;
        opening.remove_dead(&plugins, is_plugin).await?;
        opening.remove_dead(&registry, is_registration).await?;
        let is_alone = !sockets::is_live(&plugins.join("dra.sock")).await
            && !sockets::is_live(&registry.join(format!("{driver}@reg.sock"))).await;
        let ours = match is_alone {
            true => String::new(),
            false => format!("-{}", std::process::id()),
        };
        let plugin = Socket::listen(&plugins, &format!("dra{ours}.sock"))?;
        // The kubelet sends the path as HTTP/2's authority, with a percent sign for each slash. The http crate takes a
        // percent sign only before an "@", so the name of the file has one.
        let registration = Socket::listen(&registry, &format!("{driver}{ours}@reg.sock"))?;
        Ok(Sockets {
            registration,
            plugin,
        })
    }

    /// Answers the kubelet's calls. Once `ending` says so it takes no more, answers those at work, and returns.
    pub(crate) async fn serve(
        &mut self,
        claims: Arc<Claims>,
        healths: Healths,
        ending: watch::Receiver<bool>,
    ) -> Result<()> {
        let end = || {
            let mut ending = ending.clone();
            async move { drop(ending.wait_for(|is_ending| *is_ending).await) }
        };
        let registration = registration::Registration::new(self.plugin.path());
        let registering = Server::builder()
            .add_service(RegistrationServer::new(registration))
            .serve_with_incoming_shutdown(self.registration.connections()?, end());
        let serving = Server::builder()
            .add_service(DRAPluginServer::new(plugin::Plugin { claims }))
            .add_service(DRAResourceHealthServer::new(health::Watch { healths }))
            .serve_with_incoming_shutdown(self.plugin.connections()?, end());
        let ended = tokio::try_join!(registering, serving);
        ended.context(|| "serve the kubelet").map(drop)
    }
}

/// Returns whether a file in the driver's own folder is a socket for the kubelet's calls.
fn is_plugin(name: &str) -> bool {
    name.starts_with("dra") && name.ends_with(".sock")
}

/// Returns whether a file in the kubelet's folder is a registration of this driver.
fn is_registration(name: &str) -> bool {
    let ours =
        { name.strip_prefix(crate::driver::NAME) }.and_then(|rest| rest.strip_suffix("@reg.sock"));
    ours.is_some_and(|ours| ours.is_empty() || ours.starts_with('-'))
}
