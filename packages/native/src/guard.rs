//! Turns panics into errors at the boundary to Python.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `run`; a panic becomes an error with its message.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|said| {
        let text = said.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| said.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}
