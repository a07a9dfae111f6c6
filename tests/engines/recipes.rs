//! The pages of docs/recipes, but for the commands of root in them, which `tests/node/readme.rs` runs.

use testkit::devices::write;
use testkit::docker::Docker;
use testkit::prelude::*;
use testkit::runtimes::cache;
use testkit::{docker, pages, podman};

/// The image that the pages name.
const THEIRS: &str = "debian";

/// Runs the `$` commands of a page with these programs first on the PATH, and an image in place of that of the page.
fn follow(setup: &Setup, name: &str, image: &str, programs: &Path, environment: &[(&str, &str)]) {
    let page = pages::read(&format!("docs/recipes/{name}"));
    let work = setup.path("recipe");
    fs::create_dir(&work).unwrap();
    let ours = |text: &str| {
        let around = [(" ", " "), (": ", "\n"), ("\"", "\"")];
        around.iter().fold(text.to_owned(), |text, (begin, end)| {
            text.replace(
                &format!("{begin}{THEIRS}{end}"),
                &format!("{begin}{image}{end}"),
            )
        })
    };
    for (file, text) in &page.files {
        fs::write(work.join(file), ours(text)).unwrap();
    }
    for shown in page.commands.iter().filter(|shown| !shown.is_roots) {
        let (command, output) = (&shown.command, &shown.output);
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
    let (cli, compose) = (client("docker"), client("docker-compose"));
    let (Some(cli), Some(compose), Some(python)) = (cli, compose, python("python3")) else {
        return;
    };
    docker::with(false, |setup, docker: &mut Docker| {
        write(setup, &docker.path("cdi"));
        let programs = setup.path("programs");
        let plugins = programs.join("config/cli-plugins");
        fs::create_dir_all(&plugins).unwrap();
        symlink(&cli, programs.join("docker")).unwrap();
        let body = format!("exec {} \"$@\"", python.display());
        script(&programs.join("python3"), &body);
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
        let body = format!("{} \"$@\"", words.join(" "));
        script(&programs.join("podman"), &body);
        symlink(&compose, programs.join("podman-compose")).unwrap();
        let envs: Vec<(&str, &str)> = { command.get_envs() }
            .filter_map(|(key, value)| Some((key.to_str()?, value?.to_str()?)))
            .collect();
        follow(setup, "podman.md", podman::IMAGE, &programs, &envs);
    });
}

/// Routes nothing, so the Hub needs no proxy. Servers may be asked for by a service of the test alone. None has a network and
/// none ever answers, since the containers hold no notebook server: the Hub would stop each at once.
const HUB: &str = r#"
from dockerspawner import DockerSpawner
from jupyterhub.proxy import Proxy


async def nowhere(self):
    return "127.0.0.1", 1


DockerSpawner.get_ip_and_port = nowhere


class Nowhere(Proxy):
    async def start(self):
        pass

    async def stop(self):
        pass

    async def add_route(self, routespec, target, data):
        pass

    async def delete_route(self, routespec):
        pass

    async def get_all_routes(self):
        return {}


load_subconfig("jupyterhub_config.py")
c.JupyterHub.proxy_class = Nowhere
c.JupyterHub.hub_bind_url = "http+unix://hub.sock"
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.authenticator_class = "null"
c.JupyterHub.services = [{"name": "test", "api_token": "secret-of-the-test"}]
c.JupyterHub.load_roles = [
    {"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers"]}
]
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
c.DockerSpawner.image = "runmig:e2e"
c.DockerSpawner.cmd = ["sleep", "1000"]
c.DockerSpawner.network_name = "none"
c.Spawner.start_timeout = 3600
c.Spawner.http_timeout = 3600
"#;

#[test]
fn jupyterhub_gives_each_user_a_slice() {
    let Some(hub) = python("jupyterhub") else {
        return;
    };
    docker::with(false, |setup, docker: &mut Docker| {
        write(setup, &docker.path("cdi"));
        let work = setup.path("recipe");
        fs::create_dir(&work).unwrap();
        let page = pages::read("docs/recipes/jupyterhub.md");
        let [(name, text)] = page.files.as_slice() else {
            panic!("one file");
        };
        fs::write(work.join(name), text).unwrap();
        let socket = work.join("hub.sock");
        let encoded = socket.display().to_string().replace('/', "%2F");
        fs::write(work.join("test.py"), HUB.replace("hub.sock", &encoded)).unwrap();
        let mut command = Command::new(&hub);
        command.args(["--config", "test.py"]).current_dir(&work);
        let host = format!("unix://{}", docker.path("docker.sock").display());
        let hub = going(command.env("DOCKER_HOST", host).stdin(Stdio::null()));
        let ask = |method: &str, path: &str| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail-with-body"]);
            curl.args(["--request", method, "--unix-socket"])
                .arg(&socket);
            curl.args(["--header", "Authorization: token secret-of-the-test"]);
            said(curl.arg(format!("http://hub/hub/api{path}")))
        };
        until("the Hub answers", || ask("GET", "/").status.success());
        for user in ["ada", "grace"] {
            ask("POST", &format!("/users/{user}")).ok();
            ask("POST", &format!("/users/{user}/server")).ok();
        }
        until("each has a slice", || {
            let leases = setup.leases();
            leases.len() == 2 && leases.iter().all(|lease| lease["state"] == "ready")
        });
        let mut seen = BTreeSet::new();
        for lease in setup.leases() {
            assert_eq!(lease["profile"], "1g.10gb");
            let id = lease["container"].as_str().unwrap();
            let saw = nodes(&docker.exec(id, SHOW));
            let caps = saw.keys().filter(|node| node.starts_with("nvidia-caps/"));
            assert_eq!(caps.count(), 2, "{saw:?}");
            let container = docker.ask("GET", &format!("/containers/{id}/json"), &Value::Null);
            seen.insert(container.ok().json()["Name"].as_str().unwrap().to_owned());
        }
        let names = ["/jupyter-ada", "/jupyter-grace"].map(str::to_owned);
        assert_eq!(seen, names.into());
        // As systemd ends it: the Hub stops its servers.
        hub.signal(nix::sys::signal::Signal::SIGTERM);
        hub.end();
        until("all is back", || setup.leases().is_empty());
        setup.nothing_is_left();
    });
}
