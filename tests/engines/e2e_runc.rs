//! The whole path on runc as the distribution has it.

testkit::every_case!(Runc);
