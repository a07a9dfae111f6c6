//! The whole path on a newer runc than the distribution's.

mod support;

every_case!(NewRunc);
