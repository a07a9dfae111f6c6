//! Names the processes of containers that bypass MPS.

use super::finding::{Finding, Outcome};
use crate::context::LeaseContext;
use crate::error::{Context, Error, Result, printable};
use crate::gpu::Queries;
use crate::inventory::AroundMps;
use crate::store::{Entry, Held, LeaseState};

/// The most processes that a remark names.
const MOST_NAMED: usize = 8;

/// Looks for processes that bypass MPS in the containers of these leases, and says so in their outcomes.
pub(super) fn look_for(context: &LeaseContext<'_>, findings: &mut [Finding], dry_run: bool) {
    let (driver, mut look) = (context.driver(), AroundMps::new());
    for finding in findings {
        let living = matches!(finding.outcome, Outcome::Kept(_) | Outcome::Failed(_));
        let Entry::Held(held) = &finding.entry else {
            continue;
        };
        if !living || held.instance.resource.daemon().is_none() {
            continue;
        }
        match of_lease(context, held, (&driver, &mut look), dry_run) {
            Ok(None) => {}
            Ok(Some(told)) => finding.remark(&told),
            Err(e) => finding.fail(e),
        }
    }
}

fn of_lease(
    context: &LeaseContext<'_>,
    held: &Held,
    (driver, look): (&impl Queries, &mut AroundMps),
    dry_run: bool,
) -> Result<Option<String>> {
    // A restart in the same collection changed the record.
    let now = context.store.held_now(held)?;
    let Some(held) = now.filter(|now| now.lease.state == LeaseState::Ready) else {
        return Ok(None);
    };
    let container = printable(held.lease.holder.name());
    let found = look.of(driver, &held).map_err(Error::from);
    let found =
        found.context(|| format!("list the processes without MPS of container {container}"))?;
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Ok(None);
    }
    let told = named(&found);
    if !dry_run {
        tracing::warn!(lease = held.lease.id.as_str(), container, "{told}");
    }
    Ok(Some(told))
}

/// Says that these processes bypass MPS.
fn named(pids: &[u32]) -> String {
    let shown: Vec<String> = { pids.iter() }
        .take(MOST_NAMED)
        .map(u32::to_string)
        .collect();
    let several = match shown.as_slice() {
        [pid] => return format!("process {pid} bypasses MPS and has no memory limit"),
        all if pids.len() > MOST_NAMED => {
            format!("{} and {} more", all.join(", "), pids.len() - MOST_NAMED)
        }
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
        [] => return String::new(),
    };
    format!("processes {several} bypass MPS and have no memory limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_few_processes() {
        let limit = "bypass MPS and have no memory limit";
        assert_eq!(
            named(&[7]),
            "process 7 bypasses MPS and has no memory limit"
        );
        assert_eq!(named(&[7, 8, 9]), format!("processes 7, 8 and 9 {limit}"));
        let many: Vec<u32> = (1..=10).collect();
        assert_eq!(
            named(&many),
            format!("processes 1, 2, 3, 4, 5, 6, 7, 8 and 2 more {limit}")
        );
    }
}
