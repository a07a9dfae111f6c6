//! The format of mig-parted's hooks file, version 1.

use super::header::{check_version, unknown_key};
use super::node::Node;
use crate::error::{Context, Error, Result};
use std::path::{Path, PathBuf};

/// A moment of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before all.
    ApplyStart,
    /// Before the first MIG mode changes.
    PreApplyMode,
    /// Before the first instance changes.
    PreApplyConfig,
    /// At the end, also after a failure.
    ApplyExit,
}

impl Moment {
    const ALL: [Moment; 4] = [
        Moment::ApplyStart,
        Moment::PreApplyMode,
        Moment::PreApplyConfig,
        Moment::ApplyExit,
    ];

    /// Returns its key in the file.
    pub fn key(self) -> &'static str {
        match self {
            Moment::ApplyStart => "apply-start",
            Moment::PreApplyMode => "pre-apply-mode",
            Moment::PreApplyConfig => "pre-apply-config",
            Moment::ApplyExit => "apply-exit",
        }
    }
}

/// A command of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand {
    /// The moment.
    pub moment: Moment,
    /// The whole path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub envs: Vec<(String, String)>,
    /// Its working directory.
    pub workdir: Option<PathBuf>,
}

/// Parses a file. The commands of a moment keep their order.
pub(super) fn parse(text: &str) -> Result<Vec<HookCommand>> {
    let node = Node::parse(text)?;
    let keys = node.map()?;
    check_version(keys)?;
    let mut commands = Vec::new();
    for (key, value) in keys {
        match key.as_str() {
            "version" => {}
            "hooks" => {
                for (name, list) in value.map().context(|| "read hooks")? {
                    let moment = Moment::ALL.into_iter().find(|moment| moment.key() == *name);
                    let moment = moment.ok_or_else(|| unknown_key(name))?;
                    let what = || format!("read {name}");
                    for command in list.list().context(what)? {
                        commands.push(self::command(moment, command).context(what)?);
                    }
                }
            }
            other => return Err(unknown_key(other)),
        }
    }
    Ok(commands)
}

fn command(moment: Moment, node: &Node) -> Result<HookCommand> {
    let (mut program, mut args, mut envs, mut workdir) = (None, Vec::new(), Vec::new(), None);
    for (key, value) in node.map()? {
        let what = || format!("read {key}");
        match key.as_str() {
            "command" => program = Some(path(value).context(what)?),
            "args" => args = texts(value).context(what)?,
            "envs" => envs = variables(value).context(what)?,
            "workdir" => workdir = Some(path(value).context(what)?),
            other => return Err(unknown_key(other)),
        }
    }
    Ok(HookCommand {
        moment,
        program: program.ok_or_else(|| Error::new("it has no command"))?,
        args,
        envs,
        workdir,
    })
}

fn text_of(node: &Node) -> Result<&str> {
    match node {
        Node::Text(text) if !text.contains('\0') => Ok(text),
        Node::Text(_) => Err(Error::new("it has a NUL")),
        other => Err(Error::new(format!("it is {}, not a text", other.kind()))
            .hint("write the value in quotes")),
    }
}

/// Returns a whole path: a search would follow the environment.
fn path(node: &Node) -> Result<PathBuf> {
    let text = text_of(node)?;
    match Path::new(text).is_absolute() {
        true => Ok(PathBuf::from(text)),
        false => Err(Error::new(format!("{text:?} is no whole path"))
            .hint("write the path from the root, as /bin/bash")),
    }
}

fn texts(node: &Node) -> Result<Vec<String>> {
    match node {
        Node::Null => Ok(Vec::new()),
        list => list
            .list()?
            .iter()
            .map(|text| text_of(text).map(str::to_owned))
            .collect(),
    }
}

fn variables(node: &Node) -> Result<Vec<(String, String)>> {
    let one = |(name, value): &(String, Node)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Error::new(format!("{name:?} is no name of a variable")));
        }
        let value = text_of(value).context(|| format!("read {name}"))?;
        Ok((name.clone(), value.to_owned()))
    };
    match node {
        Node::Null => Ok(Vec::new()),
        map => map.map()?.iter().map(one).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mig-parted's own example.
    #[test]
    fn reads_example() {
        let text = "version: v1\nhooks:\n  apply-start:\n  - command: /bin/bash\n    \
                    args: [-x, -c, start]\n    envs: {A: \"1\"}\n    workdir: /etc\n  apply-exit:\n  \
                    - command: /bin/true\n";
        let commands = parse(text).unwrap();
        let moments: Vec<&str> = commands.iter().map(|c| c.moment.key()).collect();
        assert_eq!(moments, ["apply-start", "apply-exit"]);
        assert_eq!(commands[0].args, ["-x", "-c", "start"]);
        assert_eq!(commands[0].envs, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(commands[0].workdir.as_deref(), Some(Path::new("/etc")));
    }

    #[test]
    fn refuses_bad_files() {
        for (text, words) in [
            ("hooks: {}", "it has no version"),
            ("version: v2", "the unknown version \"v2\""),
            ("version: v1\nhook: {}", "the key \"hook\" is unknown"),
            (
                "version: v1\nhooks: {start: []}",
                "the key \"start\" is unknown",
            ),
            (
                "version: v1\nhooks: {apply-exit: [{}]}",
                "it has no command",
            ),
            (
                "version: v1\nhooks: {apply-exit: [{command: bash}]}",
                "\"bash\" is no whole path",
            ),
            (
                "version: v1\nhooks: {apply-exit: [{command: /bin/sh, args: [1]}]}",
                "it is a number, not a text",
            ),
            (
                "version: v1\nhooks: {apply-exit: [{command: /bin/sh, envs: {\"A=B\": x}}]}",
                "is no name of a variable",
            ),
        ] {
            let line = parse(text).unwrap_err().line();
            assert!(line.contains(words), "{text}: {line}");
        }
    }
}
