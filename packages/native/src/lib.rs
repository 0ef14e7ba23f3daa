//! Decoders that fill Arrow columns, each of which refuses what it does not read exactly as calving's reference does; and
//! a consumer that gives records as columns.

mod columns;
mod consumer;
mod json;
mod librdkafka;
mod numbers;
mod python;
mod times;
