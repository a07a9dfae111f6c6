//! The registration: the kubelet asks for the plugin behind a socket, and tells whether it uses it.

use super::messages::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use super::services::registration_server::Registration as Service;
use std::path::Path;
use tonic::{Request, Response, Status};

/// The kind of plugin that the kubelet knows.
const KIND: &str = "DRAPlugin";
/// The service of the plugin's socket, with its version.
const SERVICE: &str = "v1.DRAPlugin";

pub(super) struct Registration {
    endpoint: String,
}

impl Registration {
    /// Describes the plugin that listens on a socket.
    pub(super) fn new(socket: &Path) -> Registration {
        Registration {
            endpoint: socket.to_string_lossy().into_owned(),
        }
    }
}

#[tonic::async_trait]
impl Service for Registration {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            kind: KIND.to_owned(),
            name: crate::driver::NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![SERVICE.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("the kubelet uses this driver");
        } else {
            tracing::error!("the kubelet refuses this driver: {}", status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
