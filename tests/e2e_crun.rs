//! The whole path on crun as the distribution has it.

mod support;

every_case!(Crun);
