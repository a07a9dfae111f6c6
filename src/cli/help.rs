//! `migctl --help`: the verbs in groups, and an example for each.

use clap::Command;
use std::fmt::Write;

/// A verb with calls that show its use, each with its effect.
type Verb = (&'static str, &'static [(&'static str, &'static str)]);

/// The groups, in the order in which an administrator meets them.
const GROUPS: [(&str, &[Verb]); 4] = [
    (
        "Set up",
        &[
            (
                "configure",
                &[
                    (
                        "migctl configure podman --dry-run",
                        "shows the changes as a diff",
                    ),
                    (
                        "migctl configure containerd",
                        "registers runmig, and prints the command to restart containerd",
                    ),
                    ("migctl configure crio --remove", "removes the registration"),
                ],
            ),
            (
                "doctor",
                &[
                    (
                        "migctl doctor",
                        "checks the machine, and names a repair for each failure",
                    ),
                    (
                        "migctl doctor --wait 60s --skip kubernetes",
                        "waits until nothing fails, as in a unit",
                    ),
                ],
            ),
            (
                "completion",
                &[(
                    "source <(migctl completion bash)",
                    "completes in this shell",
                )],
            ),
        ],
    ),
    (
        "See",
        &[
            (
                "gpus",
                &[("migctl gpus", "draws each GPU with its instances")],
            ),
            (
                "list",
                &[
                    ("migctl list", "prints a row for each lease"),
                    (
                        "migctl list -o json | jq '.items[].migUUID'",
                        "prints the UUID of each slice",
                    ),
                    (
                        "migctl list --watch --namespace team-a",
                        "prints the leases of a namespace at each change",
                    ),
                ],
            ),
            (
                "top",
                &[
                    (
                        "migctl top",
                        "shows GPUs, queue and leases until q is pressed",
                    ),
                    (
                        "migctl top --sort used --kind share",
                        "shows the shares, those that use most first",
                    ),
                    ("migctl top --once", "prints one page"),
                ],
            ),
            (
                "inspect",
                &[(
                    "migctl inspect --detail",
                    "prints the booked memory of each container",
                )],
            ),
            (
                "explain",
                &[
                    (
                        "migctl explain 3g.40gb",
                        "says where a slice would go, or why it finds no room",
                    ),
                    (
                        "migctl explain --share 8Gi --namespace team-a",
                        "asks for a share, under the rules of a namespace",
                    ),
                ],
            ),
            (
                "events",
                &[
                    (
                        "migctl events --since 1h --type refused",
                        "says why creates found no room in the last hour",
                    ),
                    (
                        "migctl events --last 0 --follow",
                        "prints events as they come",
                    ),
                    (
                        "migctl events --container train -o json",
                        "prints the history of a container for programs",
                    ),
                ],
            ),
            (
                "metrics",
                &[
                    ("migctl metrics", "prints one exposition, in OpenMetrics"),
                    (
                        "migctl metrics --format prometheus --no-driver",
                        "prints the ledger alone, in the older format",
                    ),
                    (
                        "migctl metrics --textfile /var/lib/prometheus/node-exporter/runmig.prom",
                        "writes a file for node_exporter",
                    ),
                ],
            ),
        ],
    ),
    (
        "Act",
        &[
            (
                "dcgm",
                &[(
                    "migctl dcgm reload --if-changed",
                    "tells dcgm-exporter of instances that came or went",
                )],
            ),
            (
                "release",
                &[(
                    "migctl release 4f2a9c1d03be",
                    "releases the slice of a container that is gone",
                )],
            ),
            (
                "gc",
                &[
                    ("migctl gc --dry-run", "names the leases of dead containers"),
                    ("migctl gc", "releases them"),
                ],
            ),
            (
                "defrag",
                &[(
                    "migctl defrag --plan 7g.80gb",
                    "names the containers to restart for a whole GPU",
                )],
            ),
        ],
    ),
    (
        "Layouts, in files of mig-parted",
        &[
            (
                "apply",
                &[
                    (
                        "migctl apply --dry-run -f layouts.yaml -c all-1g.10gb",
                        "prints the changes to this layout",
                    ),
                    (
                        "migctl apply -f layouts.yaml -c all-1g.10gb",
                        "makes them, unless a lease is in the way",
                    ),
                    (
                        "migctl apply --wait 10m -f layouts.yaml -c all-1g.10gb",
                        "waits for leases in the way",
                    ),
                ],
            ),
            (
                "assert",
                &[
                    (
                        "migctl assert -f layouts.yaml -c all-1g.10gb",
                        "says whether the machine has this layout",
                    ),
                    (
                        "migctl assert -a -f layouts.yaml -c all-1g.10gb",
                        "checks the file alone",
                    ),
                ],
            ),
            (
                "export",
                &[(
                    "migctl export -l today",
                    "prints the layout of the machine under a name",
                )],
            ),
            (
                "checkpoint",
                &[(
                    "migctl checkpoint -f /var/lib/mig.json",
                    "saves modes, instances and places",
                )],
            ),
            (
                "restore",
                &[(
                    "migctl restore -f /var/lib/mig.json",
                    "brings instances back to their places",
                )],
            ),
            (
                "generate-config",
                &[(
                    "migctl generate-config -f layouts.yaml",
                    "writes a layout for each profile at its maximum count",
                )],
            ),
        ],
    ),
];

/// Returns the command with its verbs in groups, and the examples below the help of each verb.
pub fn dress(command: Command) -> Command {
    let list = verbs(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\nOptions:\n{{options}}{{after-help}}"
    );
    let verbs = GROUPS.iter().flat_map(|(_, verbs)| *verbs);
    verbs.fold(command.help_template(template), |command, verb| {
        command.mut_subcommand(verb.0, |its| with_examples(its, verb))
    })
}

fn verbs(command: &Command) -> String {
    let mut list = String::new();
    for (group, verbs) in GROUPS {
        let _ = writeln!(list, "\n{group}:");
        for (name, _) in verbs {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {name:<16}{about}");
        }
    }
    let _ = writeln!(
        list,
        "\n`migctl VERB --help` shows the options and examples of a verb."
    );
    list
}

fn with_examples(verb: Command, (_, examples): &Verb) -> Command {
    let mut help = verb
        .get_after_help()
        .map(|text| format!("{text}\n\n"))
        .unwrap_or_default();
    help.push_str("Examples:");
    let width = examples.iter().map(|(call, _)| call.len()).max();
    for (call, effect) in *examples {
        let _ = write!(
            help,
            "\n  {call:width$}   {effect}",
            width = width.unwrap_or_default()
        );
    }
    verb.after_help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;
    use clap::CommandFactory;

    #[test]
    fn each_verb_has_group_and_example() {
        let command = dress(Arguments::command());
        let shown = command.clone().render_long_help().to_string();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name();
            let line = format!("\n  {name} ");
            assert!(shown.contains(&line), "no group has {name}:\n{shown}");
            let help = verb.clone().render_long_help().to_string();
            assert!(
                help.contains("Examples:\n"),
                "{name} has no example:\n{help}"
            );
        }
    }

    /// A call that shows the use of a verb is one that migctl accepts.
    #[test]
    fn examples_are_valid_calls() {
        for (call, _) in GROUPS
            .iter()
            .flat_map(|(_, verbs)| *verbs)
            .flat_map(|(_, e)| *e)
        {
            let migctl = call.trim_start_matches("source <(").trim_end_matches(')');
            let words = migctl.split(" | ").next().unwrap().split(' ');
            let parsed = dress(Arguments::command()).try_get_matches_from(words);
            assert!(parsed.is_ok(), "{call}: {}", parsed.unwrap_err());
        }
    }
}
