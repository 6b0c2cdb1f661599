//! What is wrong costs its sender an error or the connection, and nobody else anything.

mod common;

#[path = "bad_input/crowds.rs"]
mod crowds;
#[path = "bad_input/fields.rs"]
mod fields;
#[path = "bad_input/frames.rs"]
mod frames;
#[path = "bad_input/names.rs"]
mod names;
#[path = "bad_input/sizes.rs"]
mod sizes;
