//! The whole path on a newer crun than the distribution's.

mod support;

every_case!(NewCrun);
