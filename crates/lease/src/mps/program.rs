//! Finds NVIDIA's control program, and its option for a server of several users.

use super::running;
use crate::error::{Context, Error, Result};
use crate::trust;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const NAME: &str = "nvidia-cuda-mps-control";

/// NVIDIA's control program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(super) path: PathBuf,
    /// The option by which one server serves several users. Without it, a container's second user would wait
    /// for the first one.
    pub(super) multi_user: String,
}

/// Returns the configured control program, else the one in the usual places: below the driver's root, and on the
/// machine.
///
/// # Errors
/// It does not answer. If there is none, if users other than root can change it, or if it has no server for several
/// users, the inner error says so.
pub(crate) fn find(configured: Option<&Path>, driver_root: &Path) -> Result<Result<Program>> {
    let path = match place(configured, driver_root) {
        Ok(path) => path,
        Err(unfit) => return Ok(Err(unfit)),
    };
    let mut help = Command::new(&path);
    help.env_clear().arg("-h");
    let what = || format!("use control program {}", path.display());
    let answer = match running::run(help, "", Instant::now() + running::TIME) {
        Err(e) if running::is_not_executable(&e) => return Ok(Err(e).context(what)),
        answer => answer.context(what)?,
    };
    Ok(match multi_user(&answer.text) {
        Some(multi_user) => Ok(Program { path, multi_user }),
        None => Err(Error::new(format!(
            "control program {} has no server for several users, as that of driver 580 has",
            path.display()
        ))),
    })
}

/// Returns the path of the same program, without running it.
///
/// # Errors
/// There is none, or users other than root can change it.
pub(crate) fn place(configured: Option<&Path>, driver_root: &Path) -> Result<PathBuf> {
    let usual = [
        driver_root.join("usr/bin").join(NAME),
        Path::new("/usr/bin").join(NAME),
    ];
    let found = match configured {
        Some(path) => path,
        None => { usual.iter() }.find(|path| path.exists()).ok_or_else(|| {
            Error::new(format!(
                "there is no control program {}",
                usual[0].display()
            ))
        })?,
    };
    let name = || format!("use control program {}", found.display());
    let (path, _) = trust::program(found).context(name)?;
    Ok(path)
}

/// Returns the option that the help text shows, the short one if it shows both. Its spelling differs between
/// versions: `-M,--multiuser-server`, `-m,--multiuser`.
fn multi_user(help: &str) -> Option<String> {
    let is_it = |word: &&str| word.contains("--multiuser");
    let word = help.split_whitespace().find(is_it)?;
    let is_option = |c: char| c.is_ascii_alphabetic() || c == '-';
    let options = word.split(|c| !is_option(c)).filter(|o| o.len() > 1);
    let mut options = options.filter(|option| option.starts_with('-'));
    options.next().map(str::to_owned)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::process::program;

    #[test]
    fn reads_option_from_help() {
        for (help, option) in [
            (
                " -f  foreground\n -M,--multiuser-server  several",
                Some("-M"),
            ),
            ("   -m,--multiuser            Enable", Some("-m")),
            ("[--multiuser-server] start", Some("--multiuser-server")),
            (" -d background\n -f foreground", None),
            ("", None),
        ] {
            assert_eq!(multi_user(help).as_deref(), option, "{help}");
        }
    }

    pub(in crate::mps) fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("program");
        program::install(&path, text);
        path
    }

    #[test]
    fn tells_an_unfit_program_from_one_that_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let found = |text: &str| find(Some(&script(dir.path(), text)), Path::new("/nowhere"));
        let of_several = "#!/bin/sh\necho ' -m,--multiuser  several'";
        assert_eq!(found(of_several).unwrap().unwrap().multi_user, "-m");
        for (text, why) in rows! {
            "#!/bin/sh\necho -f" => "has no server for several users";
            "#!/nowhere" => "No such file or directory";
        } {
            let line = found(text).unwrap().unwrap_err().line();
            assert!(line.contains(why), "{line}");
        }
        let program = script(dir.path(), of_several);
        let _open = std::fs::File::options().write(true).open(&program).unwrap();
        assert!(find(Some(&program), Path::new("/nowhere")).is_err());
    }
}
