//! Decoders that fill Arrow columns, each of which refuses what it does not read exactly as calving's reference does; and
//! a consumer that gives records as columns.

mod avro;
mod columns;
mod consumer;
mod cursor;
mod decoder;
mod ends;
mod guard;
mod json;
mod keys;
mod kinds;
mod lanes;
mod librdkafka;
mod numbers;
mod outcome;
mod protobuf;
mod python;
mod shapes;
mod texts;
mod times;
mod variants;
