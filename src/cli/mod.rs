//! `migctl`, with a file for each verb. It exits with 0, with 1 after a failure, and with 2 after a wrong
//! call.

mod command;
mod completion;
mod configure;
mod cordon;
mod dcgm;
mod doctor;
mod draw;
mod driver;
mod events;
mod explain;
mod filter;
mod gc;
mod gpus;
mod inspect;
mod json;
mod layouts;
mod list;
mod metrics;
mod mig_on;
mod output;
mod release;
mod shares;
mod top;
mod watch;
mod world;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::ArgValueCompleter;
use output::{Format, Output};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use runmig_lease::policy::GpuName;
use runmig_lease::process;
use std::path::PathBuf;
use std::time::Duration;

/// Show which container has which MIG slice, and release the slices of dead containers.
#[derive(Parser)]
#[command(
    name = "migctl",
    version,
    arg_required_else_help = true,
    after_help = "`migctl VERB --help` shows the options and examples of a verb."
)]
struct Arguments {
    /// The configuration to use [default: /etc/runmig/config.toml]
    #[arg(long, global = true, value_name = "FILE", env = "RUNMIG_CONFIG", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The format of the output: table or json
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    output: Output,
    /// The longest wait for the driver, for verbs that only look; engines have twice as long
    #[arg(long, global = true, value_name = "TIME", default_value = "8s", value_parser = driver::parse_limit)]
    timeout: Duration,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Register runmig with a container engine, or remove the registration
    #[command(after_help = "\
Examples:
  migctl configure podman --dry-run    shows the changes as a diff
  migctl configure containerd          registers runmig, and prints the command to restart containerd
  migctl configure crio --remove       removes the registration
  migctl configure docker --name 1g --request slice=1g.10gb
                                       makes the runtime runmig-1g, whose containers get a slice")]
    Configure(Late<configure::Options>),
    /// Check all that an allocation needs, and name each repair
    #[command(after_help = "\
Examples:
  migctl doctor                                checks the machine, and names a repair for each failure
  migctl doctor --wait 60s --quiet             waits until nothing fails, as in a unit")]
    Doctor(Late<doctor::Options>),
    /// Print the completion code for a shell
    #[command(after_help = completion::HELP)]
    Completion { shell: clap_complete::Shell },
    /// Show the GPUs, their MIG mode, and the profiles with free and total instances; an idle slice is not free
    Gpus(Late<gpus::Options>),
    /// Show which container has which slice, share or GPU, and the queue
    List(Late<list::Options>),
    /// Show GPUs, queue and leases on one page, drawn again at each change
    #[command(after_help = "\
Examples:
  migctl top                            shows GPUs, queue and leases until q is pressed
  migctl top --sort used --kind share   shows the shares, those that use most first
  migctl top --once                     prints one page")]
    Top(Late<top::Options>),
    /// Show the booked memory of each GPU, or all of one lease
    Inspect(Late<inspect::Options>),
    /// Say whether a request would find room, where and why, or why not, and which restarts make room
    Explain(Late<explain::Asked>),
    /// Print what happened to creates, leases and instances
    #[command(after_help = "\
Examples:
  migctl events --since 1h                        prints what happened in the last hour
  migctl events --follow -o json                  prints events as they come, for programs")]
    Events(Late<events::Options>),
    /// Print the state of the machine for Prometheus
    #[command(after_help = "\
Examples:
  migctl metrics                                    prints one exposition for Prometheus
  migctl metrics --no-driver                        prints the ledger alone
  migctl metrics --textfile FILE.prom               writes a file for node_exporter")]
    Metrics(Late<metrics::Options>),
    /// Release the slice of a container that is gone
    #[command(after_help = "\
Examples:
  migctl release 4f2a9c1d03be   releases the slice of a container that is gone")]
    Release {
        /// The container's name or id, its first 12 characters or more, or the lease's id; for a claim its name or uid
        #[arg(required_unless_present = "claims", value_parser = filter::not_empty, add = ArgValueCompleter::new(completion::holders))]
        id: Option<String>,
        /// End the leases of all claims of Kubernetes, after its driver runmig-dra has ended
        #[arg(long, conflicts_with = "id")]
        claims: bool,
    },
    /// Release every slice whose container is gone, and restore the limits of shares
    #[command(after_help = "\
Examples:
  migctl gc --dry-run   names the leases of dead containers
  migctl gc             releases them
  migctl gc --repair    replaces a damaged ledger")]
    Gc {
        /// Only print what it would do, and why
        #[arg(long)]
        dry_run: bool,
        /// Replace a damaged ledger by the generation before and the leases of living containers; destroy nothing
        #[arg(long, conflicts_with = "dry_run")]
        repair: bool,
    },
    /// Let a GPU give nothing new; what is on it stays
    #[command(after_help = "\
Examples:
  migctl cordon 0 --reason fan   lets GPU 0 give nothing new, also after a reboot")]
    Cordon(Late<cordon::Options>),
    /// Let a cordoned or drained GPU give again
    #[command(after_help = "\
Examples:
  migctl uncordon 0   lets GPU 0 give again")]
    Uncordon {
        /// The GPU, by its index or its UUID
        gpu: GpuName,
    },
    /// Cordon a GPU, and name what is on it, or wait for its end with --wait
    #[command(after_help = "\
Examples:
  migctl drain 0              lets GPU 0 give nothing new, and names what is on it
  migctl drain 0 --wait=10m   waits for the end of that, for ten minutes at most")]
    Drain {
        #[command(flatten)]
        of: cordon::Options,
        /// Wait until the GPU is free, or for this time at most, as --wait=10m
        #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1year",
              value_parser = humantime::parse_duration)]
        wait: Option<Duration>,
    },
    /// Work beside dcgm-exporter
    #[command(after_help = "\
Examples:
  migctl dcgm reload --if-changed   tells dcgm-exporter of instances that came or went")]
    #[command(subcommand)]
    Dcgm(dcgm::Verb),
    /// Bring the GPUs to the MIG layout of a file, and leave every lease alone
    #[command(after_help = "\
Examples:
  migctl apply --dry-run -f layouts.yaml -c balanced    prints the changes to this layout
  migctl apply -f layouts.yaml -c balanced              makes them, unless a lease is in the way
  migctl apply --wait 10m -f layouts.yaml -c balanced   waits for leases in the way")]
    Apply(Late<layouts::ApplyArguments>),
    /// Say whether the MIG layout of a file is in place
    #[command(after_help = "\
Examples:
  migctl assert -f layouts.yaml -c balanced   says whether the machine has this layout")]
    Assert(Late<layouts::Source>),
    /// Print the MIG layout of the machine as a file
    #[command(after_help = "\
Examples:
  migctl export -l today   prints the layout of the machine under a name")]
    Export(Late<layouts::ExportArguments>),
    /// Print the version of migctl
    Version,
    /// Write the manual pages into a folder, for scripts/install
    #[command(hide = true)]
    Man { folder: PathBuf },
    /// Answer the questions of another migctl about the driver
    #[command(hide = true)]
    AskDriver(Late<driver::Asking>),
}

/// Options that clap builds only for the verb that is called. Otherwise each call builds those of all verbs.
struct Late<T>(T);

impl<T: Args> Args for Late<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|verb| {
            // clap would put the doc comment of the options in its place.
            let about = verb.get_about().cloned().unwrap_or_default();
            T::augment_args(verb).about(about).long_about(None)
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Late<T> {
    fn from_arg_matches(matches: &ArgMatches) -> clap::error::Result<Self> {
        T::from_arg_matches(matches).map(Late)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> clap::error::Result<()> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Verb {
    /// Says whether the verb shows or changes leases.
    fn needs_ledger(&self) -> bool {
        use Verb::*;
        !matches!(
            self,
            Completion { .. } | Version | AskDriver(_) | Man { .. } | Configure(_) | Doctor(_)
        ) && !matches!(self, Metrics(Late(options)) if options.http)
    }
}

/// The options of all verbs, each with the verbs that it has no effect on.
const WITHOUT_EFFECT: [(&str, &[&str]); 3] = [
    ("output", &["top", "metrics", "completion", "version"]),
    ("config", &["configure", "completion", "version"]),
    (
        "timeout",
        &["apply", "completion", "events", "release", "version"],
    ),
];

/// Returns the command, with `--output` where it has more values.
fn parser() -> clap::Command {
    let output = || {
        let values = clap::builder::EnumValueParser::<Output>::new();
        let arg = clap::Arg::new("output")
            .short('o')
            .long("output")
            .value_name("OUTPUT")
            .value_parser(values);
        arg.help("The format of the output").default_value("table")
    };
    Arguments::command().mut_subcommand("list", |list| list.arg(output()))
}

/// Returns the command for help and errors. An option of all verbs stands where it has an effect.
fn command() -> clap::Command {
    let hide = |command: clap::Command, (option, verbs): &(&'static str, &[&str])| {
        let all = command.get_arguments();
        let hidden = { all.filter(|arg| arg.get_id() == option) }.map(|arg| arg.clone().hide(true));
        let hidden: Vec<clap::Arg> = hidden.collect();
        verbs.iter().fold(command, |command, verb| {
            command.mut_subcommand(verb, |verb| verb.args(&hidden))
        })
    };
    WITHOUT_EFFECT.iter().fold(parser(), hide)
}

pub fn main() -> i32 {
    process::survive_file_limit();
    process::wait_for_children();
    completion::answer(command);
    let parsed = parser().try_get_matches();
    let matches = parsed.unwrap_or_else(|_| command().get_matches());
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let verb = matches.subcommand_name().unwrap_or_default();
    for (option, verbs) in WITHOUT_EFFECT {
        let is_given = matches.value_source(option) == Some(ValueSource::CommandLine);
        if is_given && verbs.contains(&verb) {
            let why = format!("--{option} has no effect on migctl {verb}; leave it out");
            command().error(ErrorKind::ArgumentConflict, why).exit();
        }
    }
    match run(&arguments) {
        Ok(status) => status,
        Err(e) => {
            output::eprint(&e.line());
            1
        }
    }
}

fn run(arguments: &Arguments) -> Result<i32> {
    driver::set_limit(arguments.timeout);
    let config = || {
        let config = Config::named(arguments.config.as_deref())?;
        if arguments.verb.needs_ledger() {
            world::check_reader(&config)?;
        }
        Ok(config)
    };
    let is_list = matches!(arguments.verb, Verb::List(_));
    let format = match arguments.output {
        Output::Json => Format::Json,
        Output::Wide | Output::Name if !is_list => {
            let why = "the outputs wide and name are for migctl list; use --output table or json";
            command().error(ErrorKind::InvalidValue, why).exit()
        }
        _ => Format::Table,
    };
    match &arguments.verb {
        Verb::Gpus(Late(options)) => gpus::run(&config()?, format, options),
        Verb::Inspect(Late(options)) => inspect::run(&config()?, format, options),
        Verb::List(Late(options)) => list::run(&config()?, arguments.output, options),
        Verb::Top(Late(options)) => top::run(&config()?, options),
        Verb::Explain(Late(asked)) => explain::run(&config()?, format, asked),
        Verb::Release { id: Some(id), .. } => release::run(&config()?, format, id),
        Verb::Release { id: None, .. } => release::run_claims(&config()?, format),
        Verb::Gc { repair: true, .. } => gc::repair(&config()?, format),
        Verb::Gc { dry_run, .. } => gc::run(&config()?, format, *dry_run),
        Verb::Cordon(Late(options)) => cordon::cordon(&config()?, format, options),
        Verb::Uncordon { gpu } => cordon::uncordon(&config()?, format, gpu),
        Verb::Drain { of, wait } => cordon::drain(&config()?, format, of, *wait),
        Verb::Apply(Late(options)) => layouts::apply(&config()?, format, options),
        Verb::Assert(Late(source)) => layouts::assert(&config()?, format, source),
        Verb::Export(Late(options)) => layouts::export(&config()?, format, options),
        // This verb concerns the engine's configuration. runmig's own may not exist yet.
        Verb::Configure(Late(options)) => configure::run(options, format),
        Verb::Doctor(Late(options)) => doctor::run(&config, format, options),
        Verb::Dcgm(verb) => dcgm::run(&config()?, format, verb),
        Verb::Events(Late(options)) => events::run(&config()?, format, options),
        Verb::Metrics(Late(options)) => metrics::run(&config()?, options),
        Verb::Completion { shell } => completion::run(*shell),
        Verb::AskDriver(Late(asking)) => driver::answer_all(asking),
        Verb::Version => {
            output::line(concat!("migctl ", env!("CARGO_PKG_VERSION")));
            Ok(0)
        }
        Verb::Man { folder } => clap_mangen::generate_to(command(), folder)
            .context(|| format!("write manual pages into {}", folder.display()))
            .map(|()| 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_valid_calls() {
        let mut examples = 0;
        let mut command = command();
        // The options of most verbs are built late.
        command.build();
        for verb in command.get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string);
            for line in help.unwrap_or_default().lines() {
                let Some(call) = line.strip_prefix("  migctl ") else {
                    continue;
                };
                let call = call
                    .split("  ")
                    .next()
                    .unwrap()
                    .split(" | ")
                    .next()
                    .unwrap();
                let parsed = super::command().try_get_matches_from(
                    [&["migctl"][..], &call.split(' ').collect::<Vec<_>>()].concat(),
                );
                assert!(parsed.is_ok(), "{call}: {}", parsed.err().unwrap());
                examples += 1;
            }
        }
        assert!(examples > 20, "{examples}");
    }
}
