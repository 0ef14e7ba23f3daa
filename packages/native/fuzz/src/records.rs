//! Records that are nearly right.

use crate::columns::{Null, Wanted};
use crate::decoder::Form;
use crate::kinds;

/// The same numbers for the same seed (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below this one.
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most.max(1)
    }

    fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

fn field(name: &str, kind: &str, inner: Vec<Wanted>, null: Null) -> Wanted {
    let kind = kinds::named(kind, inner).expect("a kind");
    Wanted { names: vec![name.to_string(), format!("{name}2")], kind, null }
}

fn plain(kinds: &[&str], null: impl Fn(usize) -> Null) -> Vec<Wanted> {
    let found = kinds.iter().enumerate();
    found.map(|(place, kind)| field(&format!("c{place}"), kind, vec![], null(place))).collect()
}

/// Nested fields around these.
fn around(mut fields: Vec<Wanted>, key: &str, null: Null) -> Vec<Wanted> {
    let key = field("key", key, vec![], Null::Never);
    let inner = field("item", "struct", fields.clone(), null);
    fields.push(field("s", "struct", fields.clone(), null));
    fields.push(field("l", "list", vec![inner.clone()], null));
    fields.push(field("m", "map", vec![key, inner], Null::Never));
    fields
}

/// Columns of a table.
pub fn table() -> Vec<Wanted> {
    let kinds = [
        "boolean",
        "long",
        "double",
        "string",
        "base64",
        "fixed(3)",
        "uuid",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timestamp_ns",
        "timestamptz_ns",
        "decimal(9,2)",
        "decimal(38,10)",
        "other",
    ];
    let mut fields =
        around(plain(&kinds, |place| if place == 3 { Null::Never } else { Null::Plain }), "string", Null::Plain);
    for (place, key) in ["long", "date", "uuid"].iter().enumerate() {
        let entry = vec![field("key", key, vec![], Null::Never), field("value", "long", vec![], Null::Plain)];
        fields.push(field(&format!("m{place}"), "map", entry, Null::Plain));
    }
    fields
}

/// Fields of a schema of Connect or Avro.
pub fn declared() -> Vec<Wanted> {
    let kinds = [
        "boolean",
        "int8",
        "int16",
        "int32",
        "int64",
        "float",
        "double",
        "string",
        "bytes",
        "uuid",
        "days",
        "millis_of_day",
        "micros_of_day",
        "millis(utc)",
        "micros()",
        "nanos(utc)",
        "unscaled(9,2)",
        "unscaled(38,0)",
        "unscaled(12,3,8)",
        "fixed(3)",
    ];
    let null = |place| [Null::Never, Null::Branch(0), Null::Branch(1)][place % 3];
    let mut fields = plain(&kinds, null);
    let symbols = ["A", "B"].map(|symbol| field(symbol, "string", vec![], Null::Never));
    fields.push(field("e", "choice", symbols.to_vec(), Null::Never));
    around(fields, "string", Null::Branch(0))
}

/// A record of many fields, damaged in some places.
pub fn record(random: &mut Random, form: &Form) -> Vec<u8> {
    let mut text = match form {
        Form::Json(_) => object(random, 0).into_bytes(),
        Form::Avro => (0..random.below(200)).flat_map(|_| bytes(random)).collect(),
    };
    for _ in 0..random.below(4).saturating_sub(1) {
        damage(random, &mut text);
    }
    text
}

fn damage(random: &mut Random, text: &mut Vec<u8>) {
    let (at, to) = (random.below(text.len() + 1), random.below(text.len() + 1));
    match random.below(5) {
        0 => text.truncate(at),
        1 if at < text.len() => text[at] = random.below(256) as u8,
        2 => text.insert(at, random.of(&[b"\"", b"\\", b"{", b"[", b",", b"0", b"\x80", b"\xff"])[0]),
        3 if at < to => drop(text.drain(at..to)),
        _ if at < to => {
            let part = text[at..to].to_vec();
            text.extend(part);
        }
        _ => (),
    }
}

/// Bytes that mean something to Avro.
fn bytes(random: &mut Random) -> Vec<u8> {
    let texts: [&[u8]; 12] = [
        b"\0",
        b"\x01",
        b"\x02",
        b"\x04",
        b"\x06abc",
        b"\x086ba7",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xfe\xff\xff\xff\x0f",
        b"H6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
        b"\x04\xc3\xa9",
        b"\x04\xc3\x28",
    ];
    match random.below(8) {
        0 => vec![random.below(256) as u8],
        1..=5 => vec![random.below(4) as u8],
        _ => random.of(&texts).to_vec(),
    }
}

fn object(random: &mut Random, depth: usize) -> String {
    let names = [
        "c0",
        "c1",
        "c2",
        "c3",
        "c4",
        "c5",
        "c6",
        "c7",
        "c8",
        "c9",
        "c10",
        "c11",
        "c12",
        "c13",
        "c14",
        "c15",
        "c16",
        "c17",
        "c18",
        "c19",
        "s",
        "l",
        "m",
        "m0",
        "m1",
        "m2",
        "C1",
        "c1\\u0032",
        "gr\u{f6}\u{df}e",
        "1",
        "-5",
        "2026-01-03",
        "c32",
        "e",
    ];
    let start = random.below(names.len());
    let mut parts: Vec<String> = (0..random.below(12))
        .map(|place| {
            let name = if random.below(3) == 0 { random.of(&names) } else { names[(start + place) % names.len()] };
            format!("\"{name}\"{}{}", random.of(&[":", ":", ": ", " :\n"]), value(random, depth + 1))
        })
        .collect();
    if random.below(3) > 0 {
        parts.push("\"c3\":\"x\"".to_string());
    }
    format!("{{{}}}", parts.join(random.of(&[",", ",", " , "])))
}

fn value(random: &mut Random, depth: usize) -> String {
    let texts = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-1",
        "127",
        "128",
        "32768",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "1.5",
        "-0.0",
        "1.005",
        "99999999.995",
        "1e400",
        "1e5",
        "0.1",
        "1767225600000",
        "9223372036854775",
        "86399999",
        "86400000",
        "20000",
        "2932897",
        "\"\"",
        "\"x\"",
        "\"7\"",
        "\"AAEC\"",
        "\"AAECAw==\"",
        "\"AAECAw\"",
        "\"gA==\"",
        "\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"",
        "\"2026-01-03\"",
        "\"12:30:15.123456789\"",
        "\"2026-01-03T04:05:06.123456789Z\"",
        "\"2026-01-03 04:05:06-05:30\"",
        "\"0001-01-01T00:00:00+01:00\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\u00e9\\n\"",
        "\"\u{e9}plain text of some length\"",
        "[]",
        "{}",
        "[null]",
        "12345678901234567890123456789012345678.5",
        "0.00000000000000000000000000000000000001",
        "\"99999999.99\"",
        "\"1677-09-21T00:12:43.145224191Z\"",
    ];
    match random.below(if depth < 6 { 14 } else { 10 }) {
        0..10 => random.of(&texts).to_string(),
        10 | 11 => object(random, depth),
        _ => {
            let items: Vec<String> = (0..random.below(4)).map(|_| value(random, depth + 1)).collect();
            format!("[{}]", items.join(","))
        }
    }
}
