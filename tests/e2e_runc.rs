//! The whole path on runc as the distribution has it.

mod support;

every_case!(Runc);
