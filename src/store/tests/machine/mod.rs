//! A simulated machine: a disk in memory that loses power, a loop in virtual time.
//! Everything that happens in it is a function of a seed.

mod disk;
mod files;
mod inode;
mod world;

pub use disk::{Cut, Faults, Machine};
pub use world::{Outcome, World};
