//! The process: options, configuration, and the services until a signal.

use crate::cdi::Folder;
use crate::kubelet::Sockets;
use crate::lead::lead;
use crate::options::{self, Call, HELP, Options, hook};
use crate::prepare::{Claims, Node};
use crate::promise::promise;
use crate::publish::publish;
use crate::report::{report, reports};
use crate::room::{Room, Told, follow};
use crate::show::show;
use crate::sweep::{end_left, sweep};
use crate::{api, check, host, layout, log, rival, slices};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::trust;
use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot, watch};

/// The time that work on a claim gets at the end of the process. The next process continues the rest.
const END: Duration = Duration::from_secs(5);

/// Runs the driver with these arguments until a signal ends it.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let called = options::parse(args, std::env::var("NODE_NAME").ok());
    let ended = called.and_then(|call| match call {
        Call::Help => {
            print!("{HELP}");
            Ok(())
        }
        Call::InstallHook(folder) => host::install_hook(&folder).map(drop),
        Call::Serve(options) => serve(&options),
        Call::Check(options) => look_over(&options),
        Call::Show(options) => {
            log::start_on_stderr();
            print!("{}", show(&options, configuration(&options)?)?);
            Ok(())
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
    Ok(config)
}

/// Prints the findings of all checks.
fn look_over(options: &Options) -> Result<()> {
    let config = configuration(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context(|| "start the runtime")?;
    check::print(&runtime.block_on(check::check(options, &config)))
}

fn serve(options: &Options) -> Result<()> {
    if !trust::is_host_root() {
        return Err(
            Error::new("cannot serve the kubelet: this process is not root on the host")
                .hint("run runmig-dra as root, outside of any user namespace"),
        );
    }
    let config = configuration(options)?;
    log::start(&config);
    // Work that blocks has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context(|| "start the runtime")?;
    let ended = runtime.block_on(until_signal(options, config));
    runtime.shutdown_timeout(END);
    ended
}

async fn until_signal(options: &Options, config: Config) -> Result<()> {
    let what = || "wait for signals";
    let mut terminate = signal(SignalKind::terminate()).context(what)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(what)?;
    let client = api::connect(options.kubeconfig.as_deref()).await?;
    let config = Arc::new(config);
    let (slices_told, wanted) = watch::channel(Vec::new());
    let (healths_told, healths) = watch::channel(None);
    let told = Told {
        slices: slices_told,
        healths: healths_told,
    };
    let mut sockets = Sockets::open(&config.kubernetes.kubelet_dir).await?;
    let (reports, inbox) = reports();
    let claims = Arc::new(Claims::new(Node {
        client: client.clone(),
        config: config.clone(),
        pool: layout::pool(&options.node),
        cdi: Folder::new(&options.cdi_dir),
        hook: hook(options)?,
        reports,
    }));
    let asked = Arc::new(Notify::new());
    let mut serving = pin!(sockets.serve(claims.clone(), healths.clone()));
    let _lead = tokio::select! {
        ended = &mut serving => return ended,
        lead = lead(config.clone()) => lead?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let (rival_told, rivals) = watch::channel(None);
    let (earlier_told, earlier) = oneshot::channel();
    let ask = async {
        rival::admitted(&client, &options.node).await;
        rival::look(&client, &options.node, &rival_told, &mut None).await;
        let slices = api::slices_at_last(&client, &options.node).await;
        let _ = earlier_told.send(slices::earlier(&slices));
        rival::follow(&client, &options.node, &rival_told).await;
    };
    // The kubelet is served while the API server is away, and hears of healths.
    let look = async {
        let room = Room::new(config.clone(), &options.node);
        tokio::select! {
            () = follow(room.beside(rivals), told, earlier) => {}
            () = ask => {}
        }
    };
    tokio::select! {
        ended = serving => ended,
        () = promise(claims.clone(), &options.node, asked.clone()) => {
            Err(Error::new("the watch on the pods of the node ended"))
        }
        () = sweep(claims, &options.node, asked) => Err(Error::new("the sweep ended")),
        () = end_left(config.clone()) => Err(Error::new("the watch on the ledger ended")),
        () = report(client.clone(), config.clone(), &options.node, inbox, healths) => Err(Error::new("the reports ended")),
        () = look => Err(Error::new("the look at the room of the node ended")),
        () = publish(client.clone(), &options.node, wanted) => Err(Error::new("the watch on ResourceSlices ended")),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
