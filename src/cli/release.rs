//! `migctl release ID`: by hand what nobody else gave back.

use super::list;
use super::output::{self, Format};
use crate::config::Config;
use crate::error::{self, Error, Result};
use crate::lease::{Leases, Patience, Returned, sign_of_life};
use crate::store::{Damaged, Lease};

pub fn run(config: &Config, format: Format, id: &str) -> Result<i32> {
    let unknown = || {
        Error::new(format!(
            "no container or lease {}",
            crate::error::printable(id)
        ))
        .hint("migctl list shows them")
    };
    let leases = Leases::existing(config)?.ok_or_else(unknown)?;
    crate::log::start(config);
    let (all, _) = leases.store().list()?;
    let found: Vec<_> = all
        .into_iter()
        .filter(|l| {
            // An idle lease has a container called "".
            l.id == id
                || (l.holder.key.id == id && !id.is_empty())
                || (id.len() >= 12 && l.holder.key.id.starts_with(id))
        })
        .collect();
    match found.as_slice() {
        [] => {
            let damaged = leases.damaged()?;
            let is_it = |d: &&Damaged| d.claim.as_ref().is_some_and(|c| c.lease == id);
            let damaged = damaged.iter().find(is_it).ok_or_else(unknown)?;
            // Who names a lease that cannot be read has seen why it was kept.
            leases.release_damaged(damaged)?;
            match format {
                Format::Json => json(&leases, &[]),
                Format::Table => output::line("gave back what the damaged lease had"),
            }
            return Ok(0);
        }
        // One container's, which may have several slices.
        [first, rest @ ..] if rest.iter().all(|l| l.holder.key == first.holder.key) => {}
        many => {
            let ids: Vec<&str> = many.iter().map(|l| l.id.as_str()).collect();
            return Err(Error::new(format!(
                "{} leases are called {}",
                many.len(),
                crate::error::printable(id)
            ))
            .hint(format!("name one by its lease: {}", ids.join(", "))));
        }
    }
    let mut given_back = Vec::new();
    let failed = error::all(found.into_iter().map(|lease| {
        give_back(&leases, &lease)?;
        given_back.push(lease);
        Ok(())
    }));
    match format {
        Format::Json if given_back.is_empty() => {}
        Format::Json => json(&leases, &given_back),
        Format::Table => given_back.iter().for_each(tell),
    }
    failed.map(|()| 0)
}

fn json(leases: &Leases<'_>, given_back: &[Lease]) {
    list::json(given_back, &leases.store().waiting().unwrap_or_default());
}

fn give_back(leases: &Leases<'_>, lease: &Lease) -> Result<()> {
    match leases.release_unless(&lease.id, Patience::default(), sign_of_life)? {
        Returned::Yes => Ok(()),
        Returned::No(life) => Err(Error::new(format!(
            "container {} lives: {life}",
            crate::error::printable(&lease.holder.key.id)
        ))
        .hint("stop the container: its slice comes back by itself")),
    }
}

fn tell(lease: &Lease) {
    output::line(&format!(
        "gave back {} at {} on GPU {}{}",
        lease.slice.profile,
        lease.slice.placement,
        lease.slice.gpu_index,
        match lease.idle_since {
            Some(_) => ", which was idle".to_owned(),
            None => format!(
                " of container {}",
                crate::error::printable(&lease.holder.key.id)
            ),
        }
    ));
}
