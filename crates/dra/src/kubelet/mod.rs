//! The kubelet's side of the driver: it registers at the kubelet and answers its calls.
//!
//! The kubelet watches a folder for sockets, dials one that appears, and asks for the plugin behind it. The answer names
//! a second socket, on which the kubelet calls the services. Both sockets belong to root alone.

pub mod messages;
mod sockets;

use crate::cdi;
use crate::claim::ClaimName;
use crate::health::{DeviceHealth, Health};
use crate::prepare::Claims;
use crate::report::Healths;
use futures::Stream;
use futures::future::join_all;
use futures::stream::unfold;
use k8s_openapi::jiff::Timestamp;
use messages::{
    ClaimList, Device, DeviceIdentifier, Empty, PluginInfo, PrepareResponse, Prepared,
    RegistrationStatus, UnprepareResponse, Unprepared, WatchResponse,
};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::Claim;
use services::d_r_a_plugin_server::{DRAPlugin, DRAPluginServer};
use services::d_r_a_resource_health_server::{DRAResourceHealth, DRAResourceHealthServer};
use services::registration_server::{Registration as Service, RegistrationServer};
use sockets::Socket;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

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

/// The sockets of this driver below the kubelet's directory, with their connections. Both are removed at the end.
pub(crate) struct Sockets {
    registration: (Socket, UnixListenerStream),
    plugin: (Socket, UnixListenerStream),
}

impl Sockets {
    /// Listens on both sockets. The kubelet sees the socket for the registration last.
    ///
    /// The sockets of another process of this driver stay: the kubelet calls the process that registered last, and after
    /// its end the one before. So a process beside another has its id in the names.
    pub(crate) async fn open(kubelet_dir: &Path) -> Result<Sockets> {
        let driver = runmig_lease::programs::DRIVER;
        let plugins = kubelet_dir.join("plugins").join(driver);
        let registry = kubelet_dir.join("plugins_registry");
        let _turn = sockets::turn(&plugins).await?;
        let is_plugin = |name: &str| name.starts_with("dra") && name.ends_with(".sock");
        sockets::remove_dead(&plugins, is_plugin).await?;
        sockets::remove_dead(&registry, is_registration).await?;
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
        self,
        claims: Arc<Claims>,
        healths: Healths,
        ending: watch::Receiver<bool>,
    ) -> Result<()> {
        let end = || {
            let mut ending = ending.clone();
            async move { drop(ending.wait_for(|is_ending| *is_ending).await) }
        };
        let (plugin, calls) = self.plugin;
        let (_registration, questions) = self.registration;
        let registration = Registration {
            endpoint: plugin.path.to_string_lossy().into_owned(),
        };
        let registering = Server::builder()
            .add_service(RegistrationServer::new(registration))
            .serve_with_incoming_shutdown(questions, end());
        let serving = Server::builder()
            .add_service(DRAPluginServer::new(Plugin(claims)))
            .add_service(DRAResourceHealthServer::new(Watch(healths)))
            .serve_with_incoming_shutdown(calls, end());
        let ended = tokio::try_join!(registering, serving);
        ended.context(|| "serve the kubelet").map(drop)
    }
}

/// Returns whether a file in the kubelet's folder is a registration of this driver.
fn is_registration(name: &str) -> bool {
    let ours = { name.strip_prefix(runmig_lease::programs::DRIVER) }
        .and_then(|rest| rest.strip_suffix("@reg.sock"));
    ours.is_some_and(|ours| ours.is_empty() || ours.starts_with('-'))
}

/// The time after which the kubelet counts a health as unknown: that of three looks.
const TIMEOUT: i64 = 90;

/// The health of devices with claims, as a stream that the kubelet keeps open.
struct Watch(Healths);

#[tonic::async_trait]
impl DRAResourceHealth for Watch {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let mut healths = self.0.clone();
        // The last look is the first message.
        healths.mark_changed();
        Ok(Response::new(Box::pin(unfold(healths, next))))
    }
}

async fn next(mut healths: Healths) -> Option<(Result<WatchResponse, Status>, Healths)> {
    healths.changed().await.ok()?;
    let look = healths.wait_for(Option::is_some).await.ok()?;
    let response = look.as_deref().map(response)?;
    drop(look);
    Some((Ok(response), healths))
}

fn response(healths: &[DeviceHealth]) -> WatchResponse {
    let now = Timestamp::now().as_second();
    let device = |device: &DeviceHealth| {
        let (health, message) = match &device.health {
            Health::Unknown => (0, ""),
            Health::Healthy => (1, ""),
            Health::Unhealthy(illness) => (2, illness.why.as_str()),
        };
        messages::DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: device.claim.pool.clone(),
                device_name: device.claim.device.clone(),
            }),
            health,
            last_updated_time: now,
            health_check_timeout_seconds: TIMEOUT,
            message: message.to_owned(),
        }
    };
    WatchResponse {
        devices: healths.iter().map(device).collect(),
    }
}

/// The kubelet's calls: prepare and unprepare claims. Each claim has an answer of its own.
struct Plugin(Arc<Claims>);

#[tonic::async_trait]
impl DRAPlugin for Plugin {
    async fn node_prepare_resources(
        &self,
        request: Request<ClaimList>,
    ) -> Result<Response<PrepareResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(name);
        let answers = claims.map(async |claim| {
            let (devices, error) = match self.0.prepare(&claim).await {
                Ok(devices) => (devices.into_iter().map(device).collect(), String::new()),
                Err(e) => (Vec::new(), told(&e)),
            };
            (claim.uid, Prepared { devices, error })
        });
        let claims = join_all(answers).await.into_iter().collect();
        Ok(Response::new(PrepareResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<ClaimList>,
    ) -> Result<Response<UnprepareResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(name);
        let answers = claims.map(async |claim| {
            let failure = self.0.unprepare(&claim).await.err();
            let error = failure.as_ref().map(told).unwrap_or_default();
            (claim.uid, Unprepared { error })
        });
        let claims = join_all(answers).await.into_iter().collect();
        Ok(Response::new(UnprepareResponse { claims }))
    }
}

fn name(claim: messages::Claim) -> ClaimName {
    ClaimName {
        namespace: claim.namespace,
        name: claim.name,
        uid: claim.uid,
    }
}

fn device(of: Claim) -> Device {
    Device {
        cdi_device_ids: vec![cdi::id(&of)],
        // A device of an alternative, `request/alternative`, is for the whole name.
        request_names: vec![of.request],
        pool_name: of.pool,
        device_name: of.device,
    }
}

/// Logs an error and returns its line. The kubelet shows the line as an event of the pod.
fn told(e: &Error) -> String {
    let line = e.line();
    tracing::warn!("{line}");
    line
}

/// The kubelet asks for the plugin behind a socket, and tells whether it uses it.
struct Registration {
    /// The plugin's socket.
    endpoint: String,
}

#[tonic::async_trait]
impl Service for Registration {
    async fn get_info(&self, _: Request<Empty>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            kind: "DRAPlugin".to_owned(),
            name: runmig_lease::programs::DRIVER.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["v1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<Empty>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("the kubelet uses this driver");
        } else {
            tracing::error!("the kubelet refuses this driver: {}", status.error);
        }
        Ok(Response::new(()))
    }
}
