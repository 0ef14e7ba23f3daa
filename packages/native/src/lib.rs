//! Decoders that fill Arrow columns. Each refuses what it does not read exactly as calving's reference does.

mod columns;
mod json;
mod numbers;
mod python;
mod times;
