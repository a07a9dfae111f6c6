//! The hooks by which a claim's CDI file marks a container in config.json. Neither an image nor a pod can put a hook
//! there. runmig finds the claims by them, attaches the container itself, and takes the hooks out.

use super::document::Document;
use super::hooks;
use runmig_lease::error::Result;
use runmig_lease::programs::CLAIM;
use runmig_lease::store::ClaimName;
use serde_json::Value;

const ATTACH: &str = "attach";
const DETACH: &str = "detach";

/// Returns whether these first arguments are those of a hook that attaches a container.
pub fn begins(args: &[String]) -> bool {
    args == [CLAIM, ATTACH]
}

/// Returns the device that a hook with these arguments attaches; none for other hooks.
pub fn device(args: &[String]) -> Option<ClaimName> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [CLAIM, ATTACH, "--claim", uid, "--device", device] => Some(ClaimName {
            uid: uid.to_owned(),
            device: device.to_owned(),
        }),
        _ => None,
    }
}

/// Removes the hooks of all claims.
pub fn take_out(document: &mut Document) -> Result<()> {
    let is_meant = |hook: &Value| hook.get("args").is_some_and(is_of_claim);
    hooks::remove(document, &hooks::STAGES, is_meant).map(drop)
}

fn is_of_claim(args: &Value) -> bool {
    let mut args = args
        .as_array()
        .into_iter()
        .flatten()
        .map_while(Value::as_str);
    args.next() == Some(CLAIM)
        && args
            .next()
            .is_some_and(|verb| [ATTACH, DETACH].contains(&verb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn takes_out_hooks_of_claims_alone() {
        let hook = |args: Value| json!({"path": "/opt/runmig-claim", "args": args});
        let other = hook(json!(["runmig-claim", "--help"]));
        let attach = hook(json!([
            "runmig-claim",
            "attach",
            "--claim",
            "u",
            "--device",
            "d"
        ]));
        let detach = hook(json!([
            "runmig-claim",
            "detach",
            "--claim",
            "u",
            "--device",
            "d"
        ]));
        let config = json!({"hooks": {
            "createRuntime": [attach], "poststop": [detach, other], "prestart": [],
        }});
        let mut document = Document::parse(config.to_string().as_bytes()).unwrap();
        take_out(&mut document).unwrap();
        // A list that was empty before is none of runmig's business.
        assert_eq!(
            document.root["hooks"],
            json!({"poststop": [other], "prestart": []})
        );
    }
}
