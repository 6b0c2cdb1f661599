//! Links the binary so that `src/uring_hook.rs` sees every ring that glommio makes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bin=ringmq=-Wl,--wrap=io_uring_queue_init_params");
}
