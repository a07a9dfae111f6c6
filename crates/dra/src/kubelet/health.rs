//! The health of devices with claims, as a stream that the kubelet keeps open.

use super::messages::{self, DeviceIdentifier, WatchRequest, WatchResponse};
use super::services::d_r_a_resource_health_server::DRAResourceHealth;
use crate::health::{DeviceHealth, Health};
use crate::report::Healths;
use futures::Stream;
use futures::stream::unfold;
use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};
use tonic::{Request, Response, Status};

/// The time after which the kubelet counts a health as unknown: that of three looks.
const TIMEOUT: i64 = 90;

/// The service.
pub(super) struct Watch {
    pub(super) healths: Healths,
}

#[tonic::async_trait]
impl DRAResourceHealth for Watch {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let mut healths = self.healths.clone();
        // The last look is the first message.
        healths.mark_changed();
        Ok(Response::new(Box::pin(unfold(healths, next))))
    }
}

async fn next(mut healths: Healths) -> Option<(Result<WatchResponse, Status>, Healths)> {
    loop {
        healths.changed().await.ok()?;
        let response = healths.borrow_and_update().as_deref().map(response);
        if let Some(response) = response {
            return Some((Ok(response), healths));
        }
    }
}

fn response(healths: &[DeviceHealth]) -> WatchResponse {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let now = now.and_then(|now| i64::try_from(now.as_secs()).ok());
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
            last_updated_time: now.unwrap_or_default(),
            health_check_timeout_seconds: TIMEOUT,
            message: message.to_owned(),
        }
    };
    WatchResponse {
        devices: healths.iter().map(device).collect(),
    }
}
