//! Makes the services that the kubelet calls, from their names. `src/kubelet/messages.rs` has the messages.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A twentieth of the program would be addresses that the loader corrects, in their long form.
    println!("cargo::rustc-link-arg-bin=runmig-dra=-Wl,-z,pack-relative-relocs");
    let registration = Service::builder()
        .package("pluginregistration")
        .name("Registration")
        .method(method("GetInfo", "InfoRequest", "PluginInfo").build())
        .method(
            method(
                "NotifyRegistrationStatus",
                "RegistrationStatus",
                "RegistrationStatusResponse",
            )
            .build(),
        );
    let plugin = Service::builder()
        .package("k8s.io.kubelet.pkg.apis.dra.v1")
        .name("DRAPlugin")
        .method(method("NodePrepareResources", "PrepareRequest", "PrepareResponse").build())
        .method(
            method(
                "NodeUnprepareResources",
                "UnprepareRequest",
                "UnprepareResponse",
            )
            .build(),
        );
    let health = Service::builder()
        .package("v1alpha1")
        .name("DRAResourceHealth")
        .method(
            method("NodeWatchResources", "WatchRequest", "WatchResponse")
                .server_streaming()
                .build(),
        );
    // Tests call the services as the kubelet does.
    let clients = Builder::new().build_transport(false);
    clients.compile(&[registration.build(), plugin.build(), health.build()]);
}

fn method(name: &str, request: &str, answer: &str) -> tonic_build::manual::MethodBuilder {
    let message = |message: &str| format!("crate::kubelet::messages::{message}");
    Method::builder()
        .name(snake_case(name))
        .route_name(name)
        .input_type(message(request))
        .output_type(message(answer))
        .codec_path("tonic_prost::ProstCodec")
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}
