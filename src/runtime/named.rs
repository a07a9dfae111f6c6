//! The request of the runtime itself, by which a container asks that has no request of its own: `[request]` in the
//! configuration of a link `runmig-NAME`.

use super::Front;
use runmig_lease::error::{Context, Result};
use runmig_lease::request::{self, Request};

/// Returns the request of a container, from its annotations or from the configuration. `is_claimed`: it has a claim of
/// Kubernetes. `name`: podman's name of it.
///
/// # Errors
/// A wrong request, and one beside a fixed request of the configuration.
pub fn request(
    front: &Front<'_>,
    annotations: Vec<(String, String)>,
    is_claimed: bool,
    name: Option<&str>,
) -> Result<Option<Request>> {
    let config = front.config;
    let Some(of_runtime) = &config.request else {
        return request::parse(&annotations);
    };
    let file = config.file.clone().unwrap_or_default();
    let what = || format!("give the container the request of {}", file.display());
    let mut all = annotations.clone();
    of_runtime.add_to(&mut all, is_claimed).context(what)?;
    if all == annotations || name.is_some_and(is_of_podman) {
        return request::parse(&annotations);
    }
    request::parse(&all).context(what)
}

/// Says whether a name is that of a container by which podman holds a pod together, and which runs nothing of the user's:
/// 12 digits of the pod's id with `-infra`, or of a file of Kubernetes with `-service`.
pub(super) fn is_of_podman(name: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let id = name
        .strip_suffix("-infra")
        .or(name.strip_suffix("-service"));
    id.is_some_and(|id| id.len() == 12 && id.chars().all(is_hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_podmans_own_containers() {
        for own in ["d7842cd4f705-infra", "0123456789ab-service"] {
            assert!(is_of_podman(own), "{own}");
        }
        for users in [
            "infra",
            "-infra",
            "d7842cd4f70-infra",
            "D7842CD4F705-infra",
            "d7842cd4f705-web",
        ] {
            assert!(!is_of_podman(users), "{users}");
        }
    }
}
