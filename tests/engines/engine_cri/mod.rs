//! The engines of Kubernetes, containerd and CRI-O, from crictl's command line to the slice in the
//! container.

mod engine;
mod life;
mod requests;

use testkit::cri::{Cri, Engine};
use testkit::images::STAYS;
use testkit::prelude::*;

/// Makes a test of every function, for every engine.
#[macro_export]
macro_rules! on_every_engine {
    ($($name:ident),+ $(,)?) => {
        $crate::on_every_engine! { @ containerd_1 Containerd1, with: $($name),+ }
        $crate::on_every_engine! { @ containerd_2 Containerd2, with: $($name),+ }
        $crate::on_every_engine! { @ cri_o Crio, with: $($name),+ }
    };
    (@ $module:ident $engine:ident, $with:ident: $($name:ident),+) => {
        mod $module {
            $(#[test]
            fn $name() {
                $crate::engine_cri::$with(testkit::cri::Engine::$engine, super::$name);
            })+
        }
    };
}

/// On Debian's runc.
fn with(engine: Engine, test: fn(&mut Cri)) {
    with_low(Low::Runc, engine, test);
}

/// One GPU, so that a request for all of it finds no room as long as anybody has a slice.
fn with_low(low: Low, engine: Engine, test: fn(&mut Cri)) {
    on_machine(low, Machine::new("A100-80GB", 1), "", engine, test);
}

fn on_machine(low: Low, machine: Machine, config: &str, engine: Engine, test: fn(&mut Cri)) {
    let setup = Setup::on(low, machine);
    setup.configure(config);
    let Some(mut cri) = Cri::start(engine, &setup) else {
        return;
    };
    test(&mut cri);
    cri.remove_all();
    setup.nothing_is_left();
}

/// Records a passed case for the table in docs/tested-engines.md.
fn passed(cri: &Cri, case: &str) {
    table::passed(&cri.name(), case);
}

/// A container that prints what it has, and stays.
fn shows() -> String {
    stays(SHOW)
}

fn stays(script: &str) -> String {
    format!("{script}; {STAYS}")
}
