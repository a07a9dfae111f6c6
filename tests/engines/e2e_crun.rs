//! The whole path on crun as the distribution has it.

testkit::every_case!(Crun);
