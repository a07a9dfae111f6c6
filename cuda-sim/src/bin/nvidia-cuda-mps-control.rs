fn main() -> std::process::ExitCode {
    cuda_sim::mps::main()
}
