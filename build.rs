//! Links the binary so that `src/uring_hook.rs` sees every ring that glommio makes, and every
//! time that one goes to sleep.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for function in ["io_uring_queue_init_params", "io_uring_wait_cqes"] {
        println!("cargo:rustc-link-arg-bin=ringmq=-Wl,--wrap={function}");
    }
}
