//! The kubelet's calls: prepare and unprepare claims. Each claim has an answer of its own.

use super::messages::{
    self, Device, PrepareRequest, PrepareResponse, Prepared, UnprepareRequest, UnprepareResponse,
    Unprepared,
};
use super::services::d_r_a_plugin_server::DRAPlugin;
use crate::cdi;
use crate::claim::{Allocation, ClaimName};
use crate::prepare::Claims;
use futures::future::join_all;
use runmig_lease::error::{Error, Result};
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(super) struct Plugin {
    pub(super) claims: Arc<Claims>,
}

#[tonic::async_trait]
impl DRAPlugin for Plugin {
    async fn node_prepare_resources(
        &self,
        request: Request<PrepareRequest>,
    ) -> Result<Response<PrepareResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(name);
        let answers = claims.map(async |claim| {
            let devices = self.claims.prepare(&claim).await;
            let answer = prepared(&claim.uid, devices);
            (claim.uid, answer)
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

fn prepared(uid: &str, devices: Result<Vec<Allocation>>) -> Prepared {
    match devices {
        Ok(devices) => Prepared {
            devices: devices.into_iter().map(|of| device(uid, of)).collect(),
            error: String::new(),
        },
        Err(e) => Prepared {
            devices: Vec::new(),
            error: told(Some(e)),
        },
    }
}

fn device(uid: &str, of: Allocation) -> Device {
    Device {
        // A device of an alternative, `request/alternative`, is for the whole name.
        request_names: vec![of.request],
        pool_name: of.pool,
        cdi_device_ids: vec![cdi::id(uid, &of.device)],
        device_name: of.device,
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
