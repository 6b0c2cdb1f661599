//! The core against simulated nameservers and brokers.
