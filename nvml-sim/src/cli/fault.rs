use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{Failure, open};
use crate::abi;
use crate::engine::Code;
use crate::fault::{self, Moment, Outcome, Rule};

/// Sets a rule for calls of a function, beside those that are set already.
#[derive(Args)]
#[command(group = ArgGroup::new("outcome").args(["returns", "kill", "status"]))]
pub struct Fault {
    dir: PathBuf,
    /// The function, or `*` for any
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "clear"])]
    call: Option<String>,
    /// Only its Nth call from now on, over all processes
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"],
          value_parser = clap::value_parser!(u64).range(1..))]
    nth: Option<u64>,
    /// From its Nth call on [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// Up to its Nth call [default: every one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    /// It does nothing and returns this code: a number, or a name such as IN_USE
    #[arg(long, value_name = "CODE", value_parser = code)]
    returns: Option<Code>,
    /// With --returns: it does what it does and returns the code all the same
    #[arg(long, requires = "returns")]
    after: bool,
    /// The calling process is killed
    #[arg(long, value_name = "MOMENT", value_enum)]
    kill: Option<Moment>,
    /// nvmlDeviceSetMigMode does nothing, returns success and gives out this activation status
    #[arg(long, value_name = "CODE", value_parser = code)]
    status: Option<Code>,
    /// It takes so long: `500ms`, `2s`
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    takes: Option<u64>,
    /// List the rules and how many calls each has seen
    #[arg(long, conflicts_with_all = ["call", "clear"])]
    list: bool,
    /// Remove all rules
    #[arg(long, conflicts_with = "call")]
    clear: bool,
}

fn code(text: &str) -> Result<Code, String> {
    if text == "0" || text.eq_ignore_ascii_case("success") {
        return Ok(Code(0));
    }
    Code::parse(text).ok_or_else(|| {
        let names: Vec<_> = Code::ALL.iter().map(|(name, _)| *name).collect();
        format!("not a number and none of {}", names.join(", "))
    })
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        _ => return Err("a number and ms or s is wanted".into()),
    };
    let number = number.parse::<u64>().map_err(|e| e.to_string())?;
    number.checked_mul(factor).ok_or_else(|| "too long".into())
}

impl Fault {
    pub fn run(self) -> Result<(), Failure> {
        open(&self.dir)?;
        if self.clear {
            return Ok(fault::clear(&self.dir)?);
        }
        let Some(call) = self.call else {
            for rule in fault::list(&self.dir)? {
                println!("{}", serde_json::to_string(&rule)?);
            }
            return Ok(());
        };
        let outcome = match (self.returns, self.kill, self.status) {
            (Some(code), _, _) if self.after => Some(Outcome::ReturnAfter(code.0)),
            (Some(code), _, _) => Some(Outcome::Return(code.0)),
            (_, Some(moment), _) => Some(Outcome::Kill(moment)),
            (_, _, Some(code)) => Some(Outcome::ActivationStatus(code.0)),
            _ if self.takes.is_none() => {
                return Err("one of --returns, --kill, --status and --takes is wanted".into());
            }
            _ => None,
        };
        if call != "*" && !abi::functions().any(|name| name == call) {
            return Err(format!("no function {call:?}").into());
        }
        let from = self.nth.or(self.from).unwrap_or(1);
        let to = self.nth.or(self.to);
        if to.is_some_and(|to| to < from) {
            return Err("--to comes before --from".into());
        }
        let rule = Rule {
            from,
            to,
            takes_ms: self.takes.unwrap_or(0),
            outcome,
            ..Rule::every(&call)
        };
        Ok(fault::add(&self.dir, rule)?)
    }
}
