//! The pages of docs/recipes: each file and each command in them, as it stands there.

use testkit::devices::write;
use testkit::docker::Docker;
use testkit::prelude::*;
use testkit::runtimes::{built, cache, script};
use testkit::{docker, podman};

/// The image that the pages name.
const THEIRS: &str = "debian";

struct Page {
    /// The files, by name.
    files: Vec<(String, String)>,
    /// The commands, each with the output that stands below it.
    commands: Vec<(String, String)>,
}

fn page(name: &str) -> Page {
    let file = testkit::repository().join("docs/recipes").join(name);
    let text = fs::read_to_string(file).unwrap();
    let mut page = Page {
        files: Vec::new(),
        commands: Vec::new(),
    };
    let mut block = None;
    for line in text.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(info)) => block = Some((info.to_owned(), String::new())),
            (Some(_), Some(_)) => {
                let (info, text) = block.take().unwrap();
                match info.split_once(' ') {
                    Some((_, name)) => page.files.push((name.to_owned(), text)),
                    None => page.commands.extend(commands(&info, &text)),
                }
            }
            (Some((_, text)), None) => text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(!page.commands.is_empty(), "{name}");
    page
}

fn commands(info: &str, text: &str) -> Vec<(String, String)> {
    assert_eq!(info, "console", "{text}");
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => output.extend([line, "\n"]),
            (None, None) => panic!("{line}: output of no command"),
        }
    }
    all
}

/// Runs a page with these programs first on the PATH, and an image in place of that of the page.
fn follow(setup: &Setup, name: &str, image: &str, programs: &Path, environment: &[(&str, &str)]) {
    let page = page(name);
    let work = setup.path("recipe");
    fs::create_dir(&work).unwrap();
    let ours = |text: &str| {
        let words = [
            format!(" {THEIRS} "),
            format!(": {THEIRS}\n"),
            format!("\"{THEIRS}\""),
        ];
        words.iter().fold(text.to_owned(), |text, word| {
            text.replace(word.as_str(), &word.replace(THEIRS, image))
        })
    };
    for (file, text) in &page.files {
        fs::write(work.join(file), ours(text)).unwrap();
    }
    for (command, output) in &page.commands {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(ours(command)).current_dir(&work);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
        shell.env("PATH", path).envs(environment.iter().copied());
        let said = said(&mut shell);
        assert_eq!(&said.stdout, output, "{command}\n{}", said.stderr);
        assert!(said.status.success(), "{command}\n{}", said.stderr);
        until("all is back", || setup.leases().is_empty());
        setup.nothing_is_left();
    }
}

/// Returns a program of the clients that Python has. None where they are not installed.
fn python(name: &str) -> Option<PathBuf> {
    let program = cache()?.join("clients/bin").join(name);
    if !program.exists() {
        skip_until_full("the clients in Python are not there; run scripts/setup full");
        return None;
    }
    Some(program)
}

#[test]
fn docker_and_its_clients() {
    let client = |name: &str| {
        let found = built("docker-cli", name);
        if found.is_none() {
            skip_until_full("docker's client is not there; run scripts/setup full");
        }
        found
    };
    let (Some(cli), Some(compose), Some(python)) = (
        client("docker"),
        client("docker-compose"),
        python("python3"),
    ) else {
        return;
    };
    docker::with(false, |setup, docker: &mut Docker| {
        write(setup, &docker.path("cdi"));
        let programs = setup.path("programs");
        let plugins = programs.join("config/cli-plugins");
        fs::create_dir_all(&plugins).unwrap();
        symlink(&cli, programs.join("docker")).unwrap();
        script(
            &programs.join("python3"),
            &format!("exec {} \"$@\"", python.display()),
        );
        symlink(&compose, plugins.join("docker-compose")).unwrap();
        let host = format!("unix://{}", docker.path("docker.sock").display());
        let config = programs.join("config").display().to_string();
        let environment = [("DOCKER_HOST", host.as_str()), ("DOCKER_CONFIG", &config)];
        follow(setup, "docker.md", "runmig:e2e", &programs, &environment);
    });
}

#[test]
fn podman_and_its_clients() {
    let Some(compose) = python("podman-compose") else {
        return;
    };
    podman::on_each(Setup::of, |setup, podman| {
        // kube play of podman 4 drops devices.
        if !podman.name().starts_with("podman 5") {
            return;
        }
        let folder = setup.path("cdi");
        write(setup, &folder);
        podman.import(podman::IMAGE, &["CMD [\"sleep\", \"1000\"]"]);
        let programs = setup.path("programs");
        fs::create_dir(&programs).unwrap();
        let command = podman.command(&["--cdi-spec-dir"]);
        let mut words = vec![format!("exec {}", command.get_program().display())];
        words.extend(command.get_args().map(|arg| arg.display().to_string()));
        words.push(folder.display().to_string());
        script(
            &programs.join("podman"),
            &format!("{} \"$@\"", words.join(" ")),
        );
        symlink(&compose, programs.join("podman-compose")).unwrap();
        let envs: Vec<(String, String)> = { command.get_envs() }
            .filter_map(|(key, value)| {
                Some((key.to_str()?.to_owned(), value?.to_str()?.to_owned()))
            })
            .collect();
        let envs: Vec<(&str, &str)> = envs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        follow(setup, "podman.md", podman::IMAGE, &programs, &envs);
    });
}
