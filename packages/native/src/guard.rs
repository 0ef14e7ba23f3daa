//! No panic goes further than here.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What it gives, or what it says when it panics.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|said| {
        let text = said.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| said.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}
