//! `migctl configure`, held against the engines themselves: what they say of their configuration
//! before and after differs in our handler and in nothing else, and `--remove` leaves what was there.

mod containerd;
mod docker;
mod drop_ins;
mod files;
mod place;
