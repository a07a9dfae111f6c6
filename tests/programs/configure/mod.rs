//! `migctl configure`, held against the engines themselves: what they say of their configuration
//! before and after differs in our handler and in nothing else, and `--remove` leaves what was there.

mod cdi;
mod containerd;
mod devices;
mod docker;
mod drop_ins;
mod files;
mod links;
mod needed;
mod overruled;
mod place;
mod rancher;
mod request;
