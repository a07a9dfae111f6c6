//! One turn at a time for each claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

/// The claims with work, by uid.
#[derive(Default)]
pub(super) struct Serial {
    claims: Mutex<HashMap<String, Arc<Turns<()>>>>,
}

impl Serial {
    /// Returns a claim's next turn, which lasts until its drop. Turns come in the order of these calls' first polls.
    pub(super) fn turn(&self, uid: &str) -> impl Future<Output = OwnedMutexGuard<()>> + use<> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the map has the turns of claims without work.
        claims.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = claims.entry(uid.to_owned()).or_default().clone();
        turns.lock_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn gives_turns_claim_by_claim() {
        let serial = Serial::default();
        let first = serial.turn("a").await;
        let mut second = Box::pin(serial.turn("a"));
        assert!((&mut second).now_or_never().is_none());
        drop(serial.turn("c").now_or_never().unwrap());
        let other = serial.turn("b").now_or_never();
        assert!(other.is_some());
        drop((first, other));
        drop(second.await);
        drop(serial.turn("c").await);
        assert_eq!(serial.claims.lock().unwrap().len(), 1);
    }
}
