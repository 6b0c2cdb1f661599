//! What a request means: one file per family of requests.
