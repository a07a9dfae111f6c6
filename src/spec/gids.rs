//! Edits `process.user.additionalGids`, for driver nodes that belong to a group.

use super::document::{Document, array, object};
use super::process;
use runmig_lease::error::Result;
use serde_json::Value;

pub fn put(document: &mut Document, gids: &[u32]) -> Result<()> {
    if gids.is_empty() {
        return Ok(());
    }
    let user = object(process(document)?, "user", "process.user")?;
    let list = array(user, "additionalGids", "process.user.additionalGids")?;
    for gid in gids {
        let gid = Value::from(*gid);
        if !list.contains(&gid) {
            list.push(gid);
        }
    }
    Ok(())
}
