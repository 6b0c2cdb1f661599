//! Inputs that nobody meant: changes of what real clients sent and of a store's
//! files. Nothing panics, everything ends, memory stays bounded. See
//! `fuzz/README.md`.

#[path = "fuzz/alloc.rs"]
mod alloc;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/run.rs"]
mod run;
#[path = "fuzz/store.rs"]
mod store;
#[path = "fuzz/targets.rs"]
mod targets;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

#[test]
fn frames_headers_and_requests() {
    run::fuzz(&targets::FRAME);
}

#[test]
fn message_records() {
    run::fuzz(&targets::RECORD);
}

#[test]
fn batch_bodies() {
    run::fuzz(&targets::BATCH);
}

#[test]
fn json_bodies() {
    run::fuzz(&targets::JSON);
}

#[test]
fn compressed_registrations() {
    run::fuzz(&targets::REGISTER);
}

#[test]
fn stores_with_changed_files() {
    store::fuzz_files();
}

#[test]
fn configuration_files_and_their_backups() {
    store::fuzz_config();
}
