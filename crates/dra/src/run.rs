//! The process: options, configuration, and the services until a signal; or `runmig-dra show`. One process of a node
//! publishes, promises and sweeps. Another one serves the kubelet and waits for its turn.

use crate::cdi::Folder;
use crate::claim::ClaimName;
use crate::health::DeviceHealth;
use crate::kubelet::Sockets;
use crate::options::{self, Call, HELP, Options, hook};
use crate::prepare::{Claims, Node};
use crate::promise::promise;
use crate::publish::publish;
use crate::report::{Healths, News, report_news, report_slices, reports};
use crate::resource_slices::{self, Published};
use crate::rival::{self, Rivals};
use crate::room::{Room, follow};
use crate::sweep::{end_left, sweep};
use crate::{api, check, host, log, memory};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::{Lock, Store};
use runmig_lease::trust;
use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// The time that calls of the kubelet and work on claims get at the end of the process. The next process continues the
/// rest.
const END: Duration = Duration::from_secs(5);
/// The time after which a thread without work ends. Each has memory of its own.
const IDLE: Duration = Duration::from_millis(100);

/// Runs the driver with these arguments until a signal ends it.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let called = options::parse(args, std::env::var("NODE_NAME").ok());
    let ended = called.and_then(|call| match call {
        Call::Help => check::show(HELP),
        Call::InstallHook(folder) => host::install_hook(&folder),
        Call::Serve(options) => serve(&options),
        Call::Check(options) => {
            let config = configuration(&options)?;
            let findings = runtime()?.block_on(check::check(&options, &config));
            check::print(&findings, options.json)
        }
        Call::Show(options) => {
            // It changes nothing. The log names the GPUs that are left out.
            log::start(None);
            let (slices, _) = Room::once(configuration(&options)?, &options.node)?;
            let text = serde_saphyr::to_string_multiple(&slices);
            check::show(&text.context(|| "write the ResourceSlices as YAML")?)
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("runmig-dra: {}", e.line());
            ExitCode::FAILURE
        }
    }
}

/// Returns the configuration of runmig, with the library of the GPU driver where this process sees it.
fn configuration(options: &Options) -> Result<Config> {
    let mut config = Config::for_program(None)?;
    config.driver.library = host::library(&options.host_root, &config.driver.library)?;
    config.driver.host_root.clone_from(&options.host_root);
    Ok(config)
}

/// Returns a runtime on this thread. Work that blocks has threads of its own.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .thread_keep_alive(IDLE)
        .enable_all()
        .build()
        .context(|| "start the runtime")
}

fn serve(options: &Options) -> Result<()> {
    if !trust::is_host_root() {
        return Err(
            Error::new("cannot serve the kubelet: this process is not root on the host")
                .hint("run runmig-dra as root, outside of any user namespace"),
        );
    }
    let config = configuration(options)?;
    log::start(Some(&config));
    memory::share();
    let runtime = runtime()?;
    let ended = runtime.block_on(until_signal(options, config));
    let end = ended
        .as_ref()
        .map_or_else(|_| Instant::now() + END, |end| *end);
    runtime.shutdown_timeout(end.saturating_duration_since(Instant::now()));
    ended.map(drop)
}

/// Serves until a signal, and then answers the calls at work. Returns the time at which the process has to be over.
async fn until_signal(options: &Options, config: Config) -> Result<Instant> {
    let what = || "wait for signals";
    let mut terminate = signal(SignalKind::terminate()).context(what)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(what)?;
    let client = api::connect(options.kubeconfig.as_deref()).await?;
    let config = Arc::new(config);
    let (end_told, ending) = watch::channel(false);
    let (healths_told, healths) = watch::channel(None);
    let sockets = Sockets::open(&config.kubernetes.kubelet_dir).await?;
    let (reports, made, news) = reports();
    let node = Node {
        client,
        config: config.clone(),
        pool: resource_slices::pool(&options.node),
        cdi: Folder(options.cdi_dir.clone()),
        hook: hook(options)?,
        reports,
    };
    let claims = Arc::new(Claims::new(node, ending.clone()));
    let reported = healths.clone();
    let mut serving = pin!(sockets.serve(claims.clone(), healths, ending));
    let leading = async {
        let _lead = lead(config).await?;
        Err(work(claims, &options.node, healths_told, made, news, reported).await)
    };
    tokio::select! {
        ended = &mut serving => ended?,
        // Another process may lead from here on, and the streams of healths end.
        ended = leading => ended?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let end = Instant::now() + END;
    end_told.send_replace(true);
    let _ = tokio::time::timeout_at(end.into(), serving).await;
    Ok(end)
}

/// The work of the one process of a node that publishes, promises and sweeps. It has no end but an error.
async fn work(
    claims: Arc<Claims>,
    node: &str,
    healths_told: watch::Sender<Option<Vec<DeviceHealth>>>,
    made: mpsc::Receiver<ClaimName>,
    news: mpsc::Receiver<News>,
    healths: Healths,
) -> Error {
    let (client, config) = (&claims.node.client, &claims.node.config);
    let asked = Notify::new();
    let (mut looks, rivals) = Rivals::of(client, node);
    let (slices_told, wanted) = watch::channel(Vec::new());
    let (earlier_told, earlier) = oneshot::channel();
    let ask = async {
        rival::admitted(client, node).await;
        looks.look().await;
        let slices = api::slices_at_last(client, node).await;
        let _ = earlier_told.send(Published::of(&slices));
        looks.follow().await;
    };
    // The kubelet is served while the API server is away, and hears of healths.
    let look = async {
        let room = Room::new(config.clone(), node, rivals);
        tokio::select! {
            () = follow(room, slices_told, healths_told, earlier) => {}
            () = ask => {}
        }
    };
    let what = tokio::select! {
        () = promise(&claims, node, &asked) => "watch on the pods of the node",
        () = sweep(&claims, node, &asked) => "sweep",
        () = end_left(config.clone()) => "watch on the ledger",
        () = report_slices(client, config, node, made, healths) => "reports",
        () = report_news(client, node, news) => "reports",
        () = look => "look at the room of the node",
        () = publish(client.clone(), node, wanted) => "watch on ResourceSlices",
    };
    Error::new(format!("cannot go on: the {what} ended"))
}

/// Waits until this process may publish, which it may until it drops the lock or ends.
pub(crate) async fn lead(config: Arc<Config>) -> Result<Lock> {
    let store = Store::open(&config.state_dir, config.lock_timeout)?;
    let by = match store.try_lock_driver()? {
        Ok(lock) => return Ok(lock),
        Err(by) => by,
    };
    tracing::warn!(
        "another runmig-dra publishes for this node, {by}; this process serves the kubelet, and publishes when the other \
         ends"
    );
    // The kernel's wait has no end, so it has a thread that ends with the process.
    let (told, taken) = oneshot::channel();
    let waiter = std::thread::Builder::new().name("lead".to_owned());
    waiter
        .spawn(move || told.send(store.lock_driver()))
        .context(|| "wait for the other runmig-dra")?;
    let lock = taken.await;
    let lock =
        lock.map_err(|_| Error::new("cannot wait for the other runmig-dra: the wait failed"))??;
    tracing::info!("this process publishes for this node now");
    Ok(lock)
}
