//! Random and damaged records for the decoders: `calving-native-fuzz SECONDS [SEED]`.
//!
//! What a decoder gives has to be a valid array, with a row for each record that it has not refused, and a record has to
//! be taken among others as it is alone. A panic is a fault as well, and so is what a sanitizer finds.

#[path = "../../src/avro.rs"]
mod avro;
#[path = "../../src/columns.rs"]
#[allow(dead_code)]
mod columns;
#[path = "../../src/cursor.rs"]
mod cursor;
#[path = "../../src/decoder.rs"]
mod decoder;
#[path = "../../src/ends.rs"]
mod ends;
#[path = "../../src/guard.rs"]
mod guard;
#[path = "../../src/json.rs"]
mod json;
#[path = "../../src/keys.rs"]
mod keys;
#[path = "../../src/kinds.rs"]
mod kinds;
#[path = "../../src/lanes.rs"]
mod lanes;
#[path = "../../src/numbers.rs"]
mod numbers;
#[path = "../../src/outcome.rs"]
mod outcome;
#[path = "../../src/protobuf.rs"]
#[allow(dead_code)]
mod protobuf;
#[path = "../../src/shapes.rs"]
mod shapes;
#[path = "../../src/texts.rs"]
mod texts;
#[path = "../../src/times.rs"]
mod times;
#[path = "../../src/variants.rs"]
mod variants;

mod records;

use std::time::{Duration, Instant};

use decoder::{Decoded, Decoder, Form};
use json::Unknown;
use records::Random;

/// No record here has more.
const CELLS: usize = 1_000_000;

/// Miri, which interprets every instruction, needs seconds for a record.
const BATCH: usize = if cfg!(miri) { 2 } else { 16 };

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (seconds, seed) = (arguments.next().unwrap_or(60), arguments.next().unwrap_or(1));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random::new(seed);
    let decoders = decoders();
    let (mut count, mut taken) = (0, 0);
    while Instant::now() < until {
        for decoder in &decoders {
            let batch: Vec<Vec<u8>> =
                (0..BATCH).map(|_| records::record(&mut random, &decoder.form, &decoder.fields)).collect();
            taken += check(decoder, &batch);
            count += batch.len();
        }
    }
    println!("{count} records, {taken} taken, nothing found (seed {seed})");
}

/// All kinds of columns, in each form and by each rule.
fn decoders() -> Vec<Decoder> {
    let rules = |unknown, fold| Form::Json(json::Rules { unknown, fold, nesting: 20 });
    vec![
        Decoder { form: rules(Unknown::Anything, false), fields: records::table(), cells: CELLS },
        Decoder { form: rules(Unknown::Null, false), fields: records::table(), cells: CELLS },
        Decoder { form: rules(Unknown::Anything, true), fields: records::table(), cells: CELLS },
        Decoder { form: rules(Unknown::Anything, false), fields: records::declared(false), cells: CELLS },
        Decoder { form: rules(Unknown::Refused, false), fields: records::whole(), cells: CELLS },
        Decoder { form: Form::Protobuf(records::message(2)), fields: records::messages(2), cells: CELLS },
        Decoder { form: Form::Avro, fields: records::declared(true), cells: CELLS },
    ]
}

/// How many of the records are taken.
fn check(decoder: &Decoder, batch: &[Vec<u8>]) -> usize {
    let found = decode(decoder, batch);
    let mut refused = found.refused.iter().peekable();
    for (place, record) in batch.iter().enumerate() {
        let alone = decode(decoder, std::slice::from_ref(record));
        let expected = refused.next_if(|&&at| at == place).is_some();
        assert_eq!(!alone.refused.is_empty(), expected, "alone it is another: {record:02x?}");
    }
    found.rows.len()
}

fn decode(decoder: &Decoder, batch: &[Vec<u8>]) -> Decoded {
    let framed: Vec<Vec<u8>> = batch.iter().map(|record| [b"<", &record[..], b">"].concat()).collect();
    let found = guard::caught(|| decoder.decode(framed.iter().map(Vec::as_slice), b"<", b">"))
        .unwrap_or_else(|said| panic!("{said}: {batch:02x?}"))
        .unwrap_or_else(|error| panic!("{error}: {batch:02x?}"));
    assert_eq!(found.rows.len() + found.refused.len(), batch.len());
    assert!(found.others.is_empty());
    check_shapes(decoder, &found);
    found.rows.validate_full().unwrap_or_else(|error| panic!("{error}: {batch:02x?}"));
    found
}

/// Of whole objects, and of those with tracked fields, each row has one shape.
fn check_shapes(decoder: &Decoder, found: &Decoded) {
    let is_whole = matches!(&decoder.form, Form::Json(rules) if rules.unknown == Unknown::Refused);
    let is_json = matches!(&decoder.form, Form::Json(_));
    let is_whole = is_whole || is_json && decoder.fields.iter().any(columns::Wanted::is_tracked);
    let mut rows: Vec<i32> = found.shapes.iter().flat_map(|shape| shape.rows.clone()).collect();
    rows.sort_unstable();
    assert!(rows.iter().copied().eq(0..if is_whole { found.rows.len() as i32 } else { 0 }));
    assert!(found.shapes.iter().all(|shape| shape.steps.iter().all(|&step| step >= shapes::NOTHING)));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_is_caught_with_what_it_says() {
        assert_eq!(super::guard::caught(|| 7), Ok(7));
        assert_eq!(super::guard::caught(|| -> u8 { panic!("so it is") }), Err("so it is".to_string()));
    }
}
