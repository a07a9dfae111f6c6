pub mod engine {}
