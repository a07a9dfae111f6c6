//! `migctl inspect`: a `NodeBooking`.

use serde::Serialize;

/// The memory of the node's GPUs, and its booked part.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBooking<'a> {
    /// The memory in bytes that all GPUs give out, as far as the driver tells.
    pub total_bytes: u64,
    /// The booked memory in bytes.
    pub booked_bytes: u64,
    /// The GPUs.
    pub items: Vec<GpuBookingItem<'a>>,
}

/// The memory of a GPU, and its booked part.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuBookingItem<'a> {
    /// The index in NVML, counted from 0.
    pub index: u32,
    /// The UUID: `GPU-…`.
    pub uuid: &'a str,
    /// The product name.
    pub name: String,
    /// The use, as in `migctl gpus`.
    pub r#use: &'static str,
    /// The memory in bytes that the GPU gives out; null where the driver does not tell.
    pub total_bytes: Option<u64>,
    /// The booked memory in bytes: shares, slices, or all for a whole GPU.
    pub booked_bytes: u64,
    /// The leases on the GPU.
    pub leases: Vec<BookingItem<'a>>,
}

/// The memory that a lease books.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BookingItem<'a> {
    /// The id of the lease.
    pub id: &'a str,
    /// The container's id as the engine gave it.
    pub container: &'a str,
    /// The booked memory in bytes. Containers of a pod that share a slice or GPU show all of it each.
    pub booked_bytes: u64,
}
