//! The kubelet's calls: prepare and unprepare claims. Each claim has an answer of its own.

use super::messages::{
    self, Device, PrepareRequest, PrepareResponse, Prepared, UnprepareRequest, UnprepareResponse,
    Unprepared,
};
use super::services::d_r_a_plugin_server::DRAPlugin;
use crate::claim::ClaimName;
use crate::prepare::{Claims, Ready};
use futures::future::join_all;
use runmig_lease::error::{Error, Result};
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(super) struct Plugin {
    claims: Arc<Claims>,
}

impl Plugin {
    pub(super) fn new(claims: Arc<Claims>) -> Plugin {
        Plugin { claims }
    }
}

#[tonic::async_trait]
impl DRAPlugin for Plugin {
    async fn node_prepare_resources(
        &self,
        request: Request<PrepareRequest>,
    ) -> Result<Response<PrepareResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(name);
        let answers = claims.map(async |claim| {
            let ready = self.claims.prepare(&claim).await;
            (claim.uid, prepared(ready))
        });
        let claims = join_all(answers).await.into_iter().collect();
        Ok(Response::new(PrepareResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<UnprepareRequest>,
    ) -> Result<Response<UnprepareResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(name);
        let answers = claims.map(async |claim| {
            let error = told(self.claims.unprepare(&claim).await.err());
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

fn prepared(ready: Result<Vec<Ready>>) -> Prepared {
    match ready {
        Ok(ready) => Prepared {
            devices: ready.into_iter().map(device).collect(),
            error: String::new(),
        },
        Err(e) => Prepared {
            devices: Vec::new(),
            error: told(Some(e)),
        },
    }
}

fn device(ready: Ready) -> Device {
    Device {
        // A device of an alternative, `request/alternative`, is for the whole name.
        request_names: vec![ready.request],
        pool_name: ready.pool,
        device_name: ready.device,
        cdi_device_ids: vec![ready.cdi_id],
        share_id: None,
    }
}

/// Logs an error and returns its line. The kubelet shows the line as an event of the pod.
fn told(e: Option<Error>) -> String {
    e.map_or_else(String::new, |e| {
        let line = e.line();
        tracing::warn!("{line}");
        line
    })
}
