//! The whole path on a newer runc than the distribution's.

testkit::every_case!(NewRunc);
