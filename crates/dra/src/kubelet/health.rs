//! The health of devices. The driver tells none yet: without the service the kubelet dials every five seconds.

use super::messages::{WatchRequest, WatchResponse};
use super::services::d_r_a_resource_health_server::DRAResourceHealth;
use tokio_stream::Pending;
use tonic::{Request, Response, Status};

pub(super) struct Health;

#[tonic::async_trait]
impl DRAResourceHealth for Health {
    type NodeWatchResourcesStream = Pending<Result<WatchResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(tokio_stream::pending()))
    }
}
