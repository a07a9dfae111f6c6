//! Makes the services that the kubelet calls, from their names. `src/kubelet/messages.rs` has the messages.

use tonic_build::manual::{Builder, Method, Service};

/// A method as a `.proto` file has it: its name in words, and the messages of question and answer.
type Call = [&'static str; 3];

const REGISTRATION: &[Call] = &[
    ["Get Info", "Empty", "PluginInfo"],
    ["Notify Registration Status", "RegistrationStatus", "Empty"],
];
const PLUGIN: &[Call] = &[
    ["Node Prepare Resources", "ClaimList", "PrepareResponse"],
    ["Node Unprepare Resources", "ClaimList", "UnprepareResponse"],
];
const HEALTH: &[Call] = &[["Node Watch Resources", "Empty", "stream WatchResponse"]];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A twentieth of the program would be addresses that the loader corrects, in their long form.
    println!("cargo::rustc-link-arg-bin=runmig-dra=-Wl,-z,pack-relative-relocs");
    // Tests call the services as the kubelet does.
    let clients = Builder::new().build_transport(false);
    clients.compile(&[
        service("pluginregistration", "Registration", REGISTRATION),
        service("k8s.io.kubelet.pkg.apis.dra.v1", "DRAPlugin", PLUGIN),
        service("v1alpha1", "DRAResourceHealth", HEALTH),
    ]);
}

fn service(package: &str, name: &str, calls: &[Call]) -> Service {
    let mut service = Service::builder().package(package).name(name);
    for call in calls {
        service = service.method(method(*call));
    }
    service.build()
}

fn method([words, question, answer]: Call) -> Method {
    let message = |message: &str| format!("crate::kubelet::messages::{message}");
    let method = Method::builder()
        .name(words.replace(' ', "_").to_lowercase())
        .route_name(words.replace(' ', ""))
        .input_type(message(question))
        .codec_path("tonic_prost::ProstCodec");
    match answer.strip_prefix("stream ") {
        Some(answer) => method.server_streaming().output_type(message(answer)),
        None => method.output_type(message(answer)),
    }
    .build()
}
