//! The messages between the kubelet and its plugins: `pluginregistration` v1, `dra` v1, and `dra-health` v1alpha1.
//! The numbers are those of the kubelet's `.proto` files. Fields that runmig does not use are left out.

use prost::Message;
use std::collections::HashMap;

/// A message without a field.
pub type Empty = ();

/// The plugin behind a registration socket.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// The kind of plugin.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The socket of the plugin's services.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// The services, best first.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// The kubelet's verdict on a registration.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// Says whether the kubelet uses the plugin.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why it does not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// The name of a claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Claim {
    /// The namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// The uid, which a later claim of the same name does not have.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// The name in the namespace.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// The claims that pods need now, or need no more.
#[derive(Clone, PartialEq, Message)]
pub struct ClaimList {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// An answer for each claim.
#[derive(Clone, PartialEq, Message)]
pub struct PrepareResponse {
    /// The answers, by the uid of the claim.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, Prepared>,
}

/// The devices of a claim, or an error.
#[derive(Clone, PartialEq, Message)]
pub struct Prepared {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// The error; empty after a success.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device that is ready for the containers of a claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// The requests of the claim that the device serves.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// The pool of the device.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// The name of the device.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// The names by which the engine finds the edits of a container.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
}

/// An answer for each claim.
#[derive(Clone, PartialEq, Message)]
pub struct UnprepareResponse {
    /// The answers, by the uid of the claim.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, Unprepared>,
}

/// The end of a claim's devices.
#[derive(Clone, PartialEq, Message)]
pub struct Unprepared {
    /// The error; empty after a success.
    #[prost(string, tag = "1")]
    pub error: String,
}

/// The health of all devices that the driver watches.
#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<DeviceHealth>,
}

/// The health of a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceHealth {
    /// The device.
    #[prost(message, optional, tag = "1")]
    pub device: Option<DeviceIdentifier>,
    /// Its health: 0 for unknown, 1 for healthy, 2 for unhealthy.
    #[prost(int32, tag = "2")]
    pub health: i32,
    /// The time of the look, in seconds since 1970.
    #[prost(int64, tag = "3")]
    pub last_updated_time: i64,
    /// The time after which the kubelet counts the health as unknown, in seconds.
    #[prost(int64, tag = "4")]
    pub health_check_timeout_seconds: i64,
    /// The reason.
    #[prost(string, tag = "5")]
    pub message: String,
}

/// The name of a device in its pool.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceIdentifier {
    /// The pool.
    #[prost(string, tag = "1")]
    pub pool_name: String,
    /// The name.
    #[prost(string, tag = "2")]
    pub device_name: String,
}
