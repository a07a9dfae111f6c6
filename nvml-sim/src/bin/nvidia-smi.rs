fn main() -> std::process::ExitCode {
    nvml_sim::cli::smi::main()
}
