//! The section `request` of the configuration of a link `runmig-NAME`: the request of each container that has none itself.

use crate::error::{Error, Result};
use crate::request::{self, COMPUTE, GPU, SHARE, SLICE, WAIT};
use serde::Deserialize;
use serde_json::Value;

/// The values of a request, as the annotations of the same names have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requested {
    slice: Option<Value>,
    share: Option<Value>,
    gpu: Option<Value>,
    compute: Option<Value>,
    wait: Option<Value>,
    /// Says whether a container may have no other request, and not `none` either.
    pub fixed: bool,
}

impl Requested {
    fn annotations(&self) -> impl Iterator<Item = (String, String)> {
        let all = [
            (SLICE, &self.slice),
            (SHARE, &self.share),
            (GPU, &self.gpu),
            (COMPUTE, &self.compute),
            (WAIT, &self.wait),
        ];
        let given = { all.into_iter() }.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        // A number is as good as its digits in quotes.
        let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        given.map(move |(key, value)| (key.to_owned(), text(value)))
    }

    /// Adds the request to the annotations of a container, unless it asks itself. `is_claimed`: it has a claim of Kubernetes.
    /// `debugs`: it joins the processes of another container of its pod.
    ///
    /// # Errors
    /// It asks itself, and the request is fixed. The error names the key.
    pub fn add_to(
        &self,
        annotations: &mut Vec<(String, String)>,
        is_claimed: bool,
        debugs: bool,
    ) -> Result<()> {
        let who = request::identity(annotations)?;
        if who.sandbox {
            return Ok(());
        }
        let claim = is_claimed.then(|| "a ResourceClaim".to_owned());
        let own = claim.or(request::own_key(annotations)?);
        let has = |key: &str| annotations.iter().any(|(own, _)| own == key);
        let other = own.as_deref().or(has(COMPUTE).then_some(COMPUTE));
        if let (Some(key), true) = (other, self.fixed) {
            return Err(
                Error::new(format!("the container has its own request, {key}"))
                    .hint("remove that request, or use a runtime without a fixed one"),
            );
        }
        let is_drawn = who.container_name.as_deref().is_some_and(is_ephemeral);
        let ephemeral = !self.fixed && who.pod_key.is_some() && (debugs || is_drawn);
        if own.is_none() && !ephemeral {
            let more: Vec<_> = self.annotations().filter(|(key, _)| !has(key)).collect();
            annotations.extend(more);
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        let of_file = |e: Error| {
            let line = e.line().replace("annotation runmig.dev/", "request.");
            Error::new(line.replace("runmig.dev/", "request."))
        };
        let annotations: Vec<_> = self.annotations().collect();
        match request::parse(&annotations).map_err(of_file)? {
            Some(_) => Ok(()),
            None => Err(Error::new("[request] asks for nothing")
                .hint("give it slice = \"1g.10gb\", share = \"8Gi\" or gpu = 1")),
        }
    }
}

/// Returns whether `kubectl debug` generated the name of a container: `debugger-x7k2p`. The kubelet tells an engine no more than
/// the name of an ephemeral container, and its target if it has one.
fn is_ephemeral(name: &str) -> bool {
    // Without letters and digits that make words or look alike, as Kubernetes draws names.
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    let drawn = name.strip_prefix("debugger-");
    drawn.is_some_and(|drawn| drawn.len() == 5 && drawn.chars().all(|c| LETTERS.contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::request::{Wanted, written};

    const POD: (&str, &str) = ("io.kubernetes.pod.uid", "u");
    const WEB: (&str, &str) = ("io.kubernetes.container.name", "web");

    /// Returns the request that a container with these annotations has under `[request]`, in words.
    fn asked(text: &str, own: &[(&str, &str)]) -> Result<String> {
        asked_of(text, own, false)
    }

    fn asked_of(text: &str, own: &[(&str, &str)], debugs: bool) -> Result<String> {
        let config = Config::parse(&format!("[request]\n{text}"))?;
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let mut all: Vec<_> = own.iter().map(owned).collect();
        { config.request.unwrap() }.add_to(&mut all, false, debugs)?;
        let Some(request) = request::parse(&all)? else {
            return Ok("none".to_owned());
        };
        let wanted = match request.wanted {
            Wanted::Slices(slices) => {
                format!("{} {}", written(&slices.alternatives), slices.min_compute)
            }
            Wanted::Share(sizes) => format!("share {}", sizes[0]),
            Wanted::Seat(seat) => format!("seat {}", seat.sizes[0]),
            Wanted::Gpus(gpus) => format!("gpu {gpus}"),
        };
        Ok(format!("{wanted} {:?}", request.wait))
    }

    #[test]
    fn containers_own_request_wins() {
        const FILE: &str = "slice = \"1g.10gb\"\nwait = \"30s\"";
        let own = |own: &[(&str, &str)]| asked(FILE, own).unwrap();
        assert_eq!(own(&[]), "1g.10gb 0 Some(30s)");
        assert_eq!(own(&[(SLICE, "2g.20gb")]), "2g.20gb 0 None");
        assert_eq!(own(&[(SHARE, "4Gi")]), "share 4Gi None");
        assert_eq!(own(&[(GPU, "1")]), "gpu 1 None");
        assert_eq!(own(&[(SLICE, "none")]), "none");
        assert_eq!(own(&[(GPU, " none ")]), "none");
        // A wait alone refines it.
        assert_eq!(own(&[(WAIT, "5s")]), "1g.10gb 0 Some(5s)");
        // A key by name is the named container's alone.
        let named = ("slice.runmig.dev/web", "3g.40gb");
        assert_eq!(own(&[named, WEB]), "3g.40gb 0 None");
        let other = ("share.runmig.dev/db", "none");
        assert_eq!(own(&[other, WEB]), "1g.10gb 0 Some(30s)");
        assert_eq!(own(&[("share.runmig.dev/web", "none"), WEB]), "none");
        for key in [
            "io.kubernetes.cri.container-type",
            "io.kubernetes.cri-o.ContainerType",
        ] {
            assert_eq!(own(&[(key, "sandbox")]), "none");
        }
        for (name, is_ephemeral) in [
            ("debugger-x7k2p", true),
            ("debugger-x7k2", false),
            ("debugger-alone", false),
            ("debugger", false),
            ("my-debugger-x7k2p", false),
        ] {
            let named = ("io.kubernetes.container.name", name);
            let got = own(&[POD, named]);
            assert_eq!(got == "none", is_ephemeral, "{name}: {got}");
            assert_ne!(own(&[named]), "none", "it is in no pod");
            let fixed = asked(&format!("{FILE}\nfixed = true"), &[POD, named]);
            assert_ne!(fixed.unwrap(), "none");
        }
        let debugs = |own| asked_of(FILE, own, true).unwrap();
        assert_eq!(debugs(&[POD, WEB]), "none");
        assert_ne!(debugs(&[WEB]), "none", "it is in no pod");
        let named = ("io.kubernetes.container.name", "debugger-x7k2p");
        assert_eq!(own(&[POD, named, (SLICE, "2g.20gb")]), "2g.20gb 0 None");
        let least = asked("slice = \"10Gi\"\ncompute = 1", &[(COMPUTE, "2")]);
        assert_eq!(least.unwrap(), "10Gi 2 None");
        let line = |own| asked("share = \"8Gi\"", own).unwrap_err().line();
        assert!(line(&[(COMPUTE, "2")]).contains("counts compute slices"));
        assert!(line(&[("runmig.dev/slcie", "1g.10gb")]).contains("write runmig.dev/slice"));
    }

    #[test]
    fn fixed_request_refuses_others() {
        for own in [
            (SLICE, "2g.20gb"),
            (SLICE, "1g.10gb"),
            (SHARE, "none"),
            (GPU, "1"),
            (COMPUTE, "2"),
            ("gpu.runmig.dev/web", "none"),
        ] {
            let line = asked("slice = \"1g.10gb\"\nfixed = true", &[own, WEB]);
            let line = line.unwrap_err().line();
            let wanted = format!("the container has its own request, {}; hint: remove", own.0);
            assert!(line.starts_with(&wanted), "{line}");
        }
        let asked = |own: &[(&str, &str)]| asked("gpu = 1\nfixed = true", own).unwrap();
        let other = ("slice.runmig.dev/db", "1g.10gb");
        assert_eq!(asked(&[]), "gpu 1 None");
        assert_eq!(asked(&[WEB, other]), "gpu 1 None");
        assert_eq!(asked(&[(WAIT, "1s")]), "gpu 1 Some(1s)");
        let sandbox = ("io.kubernetes.cri.container-type", "sandbox");
        assert_eq!(asked(&[sandbox, (SLICE, "2g.20gb")]), "none");
    }

    #[test]
    fn names_what_is_wrong() {
        for (text, words) in rows! {
            "slise = \"1g.10gb\"" => "line 2: unknown key slise; hint: write slice";
            "scope = \"pod\"" => "line 2: unknown key scope";
            "slice = \"mig-1g.10gb\"" => "request.slice: \"mig-1g.10gb\" is neither";
            "share = 8" => "request.share: \"8\" is an amount without";
            "gpu = \"all\"" => "request.gpu: ";
            "slice = \"1g.10gb\"\nwait = 30" => "request.wait: \"30\" has no unit; hint: write 30s";
            "wait = \"30s\"" => "request.wait needs request.slice";
            "slice = \"1g.10gb\"\ngpu = 1" =>
                "request.slice cannot stand beside request.gpu: one container gets one kind of GPU; hint: take one \
                 of them away";
            "share = \"8Gi\"\ngpu = 1" => "request.share cannot stand beside request.gpu";
            "share = \"8Gi\"\ncompute = 2" =>
                "request.compute counts compute slices, and request.share asks for a share";
            "slice = \"none\"" => "[request] asks for nothing; hint: give it";
            "" => "[request] asks for nothing";
            "slice = true" => "request.slice: \"true\" is neither";
            "fixed = \"yes\"" => "line 2: fixed = \"yes\" is neither true nor false";
        } {
            let line = asked(text, &[]).unwrap_err().line();
            assert!(line.starts_with(words), "{text}: {line}");
        }
        assert!(asked("slice = \"1g.10gb,20Gi\"\nshare = \"4Gi\"", &[]).is_ok());
    }

    #[test]
    fn rules_for_all_hold_for_links() {
        let dir = tempfile::tempdir().unwrap();
        let (link, common) = (dir.path().join("1g.toml"), dir.path().join("config.toml"));
        let write = |file, text: &str| std::fs::write(file, text).unwrap();
        write(&link, "[request]\nslice = \"1g.10gb\"");
        assert_eq!(
            Config::read(&link).unwrap().policy,
            Config::default().policy
        );
        write(
            &common,
            "adopt = true\n[policy]\nkinds = [\"share\"]\nexclude_gpus = [0]",
        );
        let read = || Config::read(&link).unwrap();
        assert!(read().adopt && read().policy.kinds.is_some());
        assert_eq!(read().file.as_deref(), Some(link.as_path()));
        // A section of its own takes the whole section's place.
        write(
            &link,
            "adopt = false\n[policy]\nexclude_gpus = [1]\n[request]\ngpu = 1",
        );
        assert!(!read().adopt && read().policy.kinds.is_none());
        // Without a request a file stands for itself.
        write(&link, "");
        assert!(!read().adopt);
        let line = |file| Config::read(file).unwrap_err().line();
        write(&link, "[request]\ngpu = 1");
        write(&common, "adop = true");
        assert!(line(&link).contains("config.toml: line 1: unknown key adop"));
        write(&common, "[request]\ngpu = 1");
        for file in [&link, &common] {
            assert!(line(file).contains("[request] is not for the configuration of runmig itself"));
        }
    }
}
