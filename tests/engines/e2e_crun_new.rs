//! The whole path on a newer crun than the distribution's.

testkit::every_case!(NewCrun);
