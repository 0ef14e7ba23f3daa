//! Records that are nearly right.

use crate::columns::{Kind, Null, Wanted};
use crate::protobuf::{Field, Form, How, Message, Scalar};
use crate::{decoder, kinds};

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
    Wanted { names: vec![name.to_string(), format!("{name}2")], kind, null, tracked: None }
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
        "time(us)",
        "timestamp(ms)",
        "timestamptz(us)",
        "timestamp_ns(s)",
        "timestamptz_ns(ns)",
        "decimal(9,2)",
        "decimal(38,10)",
        "variant",
        "other",
    ];
    let mut fields =
        around(plain(&kinds, |place| if place == 3 { Null::Never } else { Null::Plain }), "string", Null::Plain);
    for (place, key) in ["long", "date", "uuid"].iter().enumerate() {
        let entry = vec![field("key", key, vec![], Null::Never), field("value", "long", vec![], Null::Plain)];
        fields.push(field(&format!("m{place}"), "map", entry, Null::Plain));
    }
    track(&mut fields, &mut 0);
    fields
}

/// Every third field is tracked.
fn track(fields: &mut [Wanted], count: &mut i32) {
    for field in fields {
        *count += 1;
        field.tracked = (*count % 3 == 0).then_some(*count);
        match &mut field.kind {
            Kind::Struct(inner) => track(inner, count),
            Kind::List(item) => track(std::slice::from_mut(item), count),
            Kind::Map(entry) => track(&mut entry[1..], count),
            _ => (),
        }
    }
}

/// Fields of objects that are read whole.
pub fn whole() -> Vec<Wanted> {
    let kinds = ["boolean", "int64", "fraction", "exact_fraction", "string", "other"];
    let mut fields = plain(&kinds, |_| Null::Plain);
    let item = field("item", "struct", fields.clone(), Null::Plain);
    let inner = field("item", "list", vec![item.clone()], Null::Plain);
    fields.push(field("s", "struct", fields.clone(), Null::Plain));
    fields.push(field("e", "struct", vec![], Null::Plain));
    fields.push(field("l", "list", vec![item], Null::Plain));
    fields.push(field("ll", "list", vec![inner], Null::Plain));
    fields
}

/// Fields of a schema of Connect, or of Avro, which alone has symbols.
pub fn declared(with_symbols: bool) -> Vec<Wanted> {
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
    if with_symbols {
        let symbols = ["A", "B"].map(|symbol| field(symbol, "string", vec![], Null::Never));
        fields.push(field("e", "choice", symbols.to_vec(), Null::Never));
    }
    around(fields, "string", Null::Branch(0))
}

/// Forms of Protobuf, and the kinds of their columns.
const FORMS: [(&str, &str); 17] = [
    ("bool", "boolean"),
    ("varint", "int64"),
    ("varint", "uint32"),
    ("varint", "uint64"),
    ("int32", "int32"),
    ("zigzag", "int32"),
    ("fixed32", "uint32"),
    ("signed32", "int32"),
    ("fixed64", "int64"),
    ("float", "float"),
    ("double", "double"),
    ("bytes", "string"),
    ("bytes", "bytes"),
    ("enum", "string"),
    ("timestamp", "micros(utc)"),
    ("date", "days"),
    ("wrapped int32", "int32"),
];

fn symbols() -> Vec<(i32, String)> {
    vec![(0, "A".to_string()), (-1, "B".to_string())]
}

/// A message with fields of every form, of which every third repeats, and messages in it.
pub fn message(depth: usize) -> Message {
    let how = |place| [How::Optional, How::Plain, How::Repeated][place % 3];
    let mut fields: Vec<_> =
        FORMS.iter().enumerate().map(|(place, (form, _))| part(place, how(place), form, vec![])).collect();
    if depth > 0 {
        for how in [How::Optional, How::Repeated] {
            fields.push(Field { form: Form::Message(message(depth - 1)), ..part(fields.len(), how, "date", vec![]) });
        }
        let entry = vec![part(0, How::Plain, "bytes", vec![]), part(1, How::Plain, "int32", vec![])];
        fields.push(part(fields.len(), How::Map, "message", entry));
    }
    Message::new(fields)
}

fn part(place: usize, how: How, form: &str, inner: Vec<Field>) -> Field {
    let form = Form::named(form, inner, symbols()).expect("a form");
    Field { number: place as u32 + 1, how, form, choice: (place % 3 == 0 && place < 6).then_some(7) }
}

/// Its columns.
pub fn messages(depth: usize) -> Vec<Wanted> {
    let listed = |place: usize, column: Wanted| match place % 3 {
        2 => field("l", "list", vec![column], Null::Plain),
        _ => column,
    };
    let of = |kind| field("c", kind, vec![], Null::Plain);
    let mut fields: Vec<_> = FORMS.iter().enumerate().map(|(place, (_, kind))| listed(place, of(kind))).collect();
    if depth > 0 {
        let inner = || field("s", "struct", messages(depth - 1), Null::Plain);
        fields.push(inner());
        fields.push(field("l", "list", vec![inner()], Null::Plain));
        fields.push(field("m", "map", vec![of("string"), of("int32")], Null::Plain));
    }
    fields
}

/// A message as its fields' bytes, some of them twice.
fn fields_of(random: &mut Random, message: &Message, found: &mut Vec<u8>) {
    for part in &message.fields {
        for _ in 0..random.below(3).min(1 + random.below(20) / 19) {
            let mut bytes = vec![];
            let wire = value_of(random, &part.form, &mut bytes);
            varint(u64::from(part.number << 3 | wire), found);
            if wire == 2 {
                varint(bytes.len() as u64, found);
            }
            found.extend(bytes);
        }
    }
}

/// A value's wire type; of one with a count, without that.
fn value_of(random: &mut Random, form: &Form, found: &mut Vec<u8>) -> u32 {
    match form {
        Form::Message(message) => fields_of(random, message, found),
        Form::Scalar(Scalar::Bytes) => found.extend(random.of(&["", "a", "\u{e9}", "plain text"]).as_bytes()),
        Form::Scalar(Scalar::Fixed32 | Scalar::Signed32 | Scalar::Float) => {
            found.extend(1.5_f32.to_le_bytes());
            return 5;
        }
        Form::Scalar(Scalar::Fixed64 | Scalar::Double) => {
            found.extend(1.5_f64.to_le_bytes());
            return 1;
        }
        Form::Scalar(_) => {
            varint([0, 1, 1, u64::MAX][random.below(4)], found);
            return 0;
        }
        _ => (1..4).for_each(|number| {
            varint(number << 3, found);
            varint(1 + random.below(11) as u64, found);
        }),
    }
    2
}

fn varint(mut bits: u64, found: &mut Vec<u8>) {
    while bits > 0x7f {
        found.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    found.push(bits as u8);
}

/// A record of these fields, now and then with values that do not fit, or damaged in some places.
pub fn record(random: &mut Random, form: &decoder::Form, fields: &[Wanted]) -> Vec<u8> {
    let odd = if random.below(2) == 0 { 0 } else { 60 };
    let mut text = match form {
        decoder::Form::Json(_) => object(random, fields, odd).into_bytes(),
        decoder::Form::Protobuf(message) => {
            let mut found = vec![];
            fields_of(random, message, &mut found);
            found
        }
        decoder::Form::Avro => {
            let mut found = vec![];
            fields.iter().for_each(|field| bytes(random, field, &mut found));
            found
        }
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
        2 => text.insert(at, b"\"\\{[,0\x80\xff"[random.below(8)]),
        3 if at < to => drop(text.drain(at..to)),
        _ if at < to => {
            let part = text[at..to].to_vec();
            text.extend(part);
        }
        _ => (),
    }
}

/// The lowest bit is the sign, and each byte has seven.
fn long(number: i64, found: &mut Vec<u8>) {
    varint(((number << 1) ^ (number >> 63)) as u64, found);
}

fn counted(text: &[u8], found: &mut Vec<u8>) {
    long(text.len() as i64, found);
    found.extend(text);
}

/// A field as Avro has it.
fn bytes(random: &mut Random, field: &Wanted, found: &mut Vec<u8>) {
    if let Null::Branch(null) = field.null {
        let is_null = random.below(4) == 0;
        long(if is_null { null } else { 1 - null }, found);
        if is_null {
            return;
        }
    }
    match &field.kind {
        Kind::Boolean => found.push(random.below(2) as u8),
        Kind::Whole { least, most, .. } => long([*least, *most, 0, 1][random.below(4)], found),
        Kind::Float => found.extend([1.5_f32, -0.0, f32::INFINITY][random.below(3)].to_le_bytes()),
        Kind::Double => found.extend([1.5_f64, -0.0, f64::MAX][random.below(3)].to_le_bytes()),
        Kind::Text => counted(random.of(&["", "a", "\u{e9}", "plain text of some length"]).as_bytes(), found),
        Kind::Choice(of) => long(random.below(of.len()) as i64, found),
        Kind::Uuid => counted(b"6ba7b810-9dad-11d1-80b4-00c04fd430c8", found),
        Kind::Unscaled { bytes: Some(size), .. } => found.extend(vec![[0, 0xff][random.below(2)]; *size]),
        Kind::Fixed(size) => found.extend(vec![7; *size]),
        Kind::Struct(fields) => fields.iter().for_each(|field| bytes(random, field, found)),
        Kind::List(item) => blocks(random, found, |random, found, _| bytes(random, item, found)),
        Kind::Map(entry) => blocks(random, found, |random, found, number| {
            counted(number.to_string().as_bytes(), found);
            bytes(random, &entry[1], found);
        }),
        _ => counted([&b"\0"[..], b"\x7f\x01", b"\xff\xff"][random.below(3)], found),
    }
}

fn blocks(random: &mut Random, found: &mut Vec<u8>, mut item: impl FnMut(&mut Random, &mut Vec<u8>, usize)) {
    let count = random.below(3);
    if count > 0 {
        let sized = random.below(3) == 0;
        long(if sized { -(count as i64) } else { count as i64 }, found);
        if sized {
            long(7, found);
        }
        (0..count).for_each(|number| item(random, found, number));
    }
    found.push(0);
}

/// Fields as an object. One value of `odd` is an odd one, if that is not zero.
fn object(random: &mut Random, fields: &[Wanted], odd: usize) -> String {
    let mut parts = vec![];
    for field in fields {
        if field.null == Null::Never || random.below(4) > 0 {
            let name = &field.names[usize::from(random.below(20) == 0)];
            let name = if odd > 0 && random.below(odd) == 0 { name.to_uppercase() } else { name.clone() };
            let colon = random.of(&[":", ":", ": ", " :\n"]);
            parts.push(format!("\"{name}\"{colon}{}", value(random, field, odd)));
        }
    }
    if odd > 0 && random.below(4) == 0 {
        let name = random.of(&["new", "c1\\u0032", "gr\u{f6}\u{df}e", "c1"]);
        let part = format!("\"{name}\":{}", random.of(&ODD));
        parts.insert(random.below(parts.len()), part);
    }
    format!("{{{}}}", parts.join(random.of(&[",", ",", " , "])))
}

fn value(random: &mut Random, field: &Wanted, odd: usize) -> String {
    if odd > 0 && random.below(odd) == 0 {
        return random.of(&ODD).to_string();
    }
    if field.null != Null::Never && random.below(6) == 0 {
        return "null".to_string();
    }
    let choices: &[&str] = match &field.kind {
        Kind::Boolean => &["true", "false"],
        Kind::Long => &["0", "-1", "\"7\"", "9223372036854775807"],
        Kind::Whole { most, .. } => return [0, 1, *most][random.below(3)].to_string(),
        Kind::Fraction { .. } => &["1.5", "-0.0", "0.30000000000000004", "7.0"],
        Kind::Float | Kind::Double => &["0", "1.5", "-0.0", "0.1", "3.4e38"],
        Kind::Text => &["\"\"", "\"x\"", "\"\\u00e9\\n\"", "\"\\ud83d\\ude00\"", "\"\u{e9}plain text of some length\""],
        Kind::Binary { .. } => &["\"\"", "\"AAEC\"", "\"AAECAw==\""],
        Kind::Fixed(_) => &["\"AAEC\""],
        Kind::Uuid => &["\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"", "\"6BA7B810-9DAD-11D1-80B4-00C04FD430C8\""],
        Kind::Date => &["\"2026-01-03\"", "20000", "2932896"],
        Kind::Time { .. } => &["\"12:30:15.123456789\"", "\"00:00\"", "86399999"],
        Kind::Instant { .. } => {
            &["\"2026-01-03T04:05:06.123456789Z\"", "\"2026-01-03 04:05:06-05:30\"", "1767225600000"]
        }
        Kind::Decimal { .. } => &["1.005", "99999.99", "0.000000000000000000001", "\"-1.5\""],
        Kind::Unscaled { .. } => &["5", "\"AQ==\"", "\"gA==\""],
        Kind::Variant => return variant(random, 3),
        Kind::Choice(_) | Kind::Other => &["null"],
        Kind::Struct(fields) => return object(random, fields, odd),
        Kind::List(item) => {
            let items: Vec<String> = (0..random.below(3)).map(|_| value(random, item, odd)).collect();
            return format!("[{}]", items.join(","));
        }
        Kind::Map(entry) => {
            let keys: &[&str] = match entry[0].kind {
                Kind::Long => &["1", "+2"],
                Kind::Date => &["2026-01-03", "1969-12-31"],
                Kind::Uuid => &["6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
                _ => &["a", "\\u0062", "c"],
            };
            let keys = &keys[..random.below(keys.len() + 1)];
            let entries: Vec<String> =
                keys.iter().map(|key| format!("\"{key}\":{}", value(random, &entry[1], odd))).collect();
            return format!("{{{}}}", entries.join(","));
        }
    };
    random.of(choices).to_string()
}

/// Any value.
fn variant(random: &mut Random, levels: usize) -> String {
    let levels = random.below(levels + 1);
    let count = random.of(&[&0, &1, &2, &3, &300]);
    let count = if levels > 1 { count % 300 } else { *count };
    let names = ["a", "b", "\\u0063", "gr\u{f6}\u{df}e", ""];
    match random.below(3) {
        0 if levels > 0 => {
            let name = |random: &mut Random, at: usize| format!("\"{}{at}\"", random.of(&names));
            let fields = (0..count).map(|at| format!("{}:{}", name(random, at), variant(random, levels - 1)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        1 if levels > 0 => {
            let items: Vec<String> = (0..count).map(|_| variant(random, levels - 1)).collect();
            format!("[{}]", items.join(" ,"))
        }
        _ => random.of(&ODD).to_string(),
    }
}

/// Values that some or all columns refuse.
#[rustfmt::skip]
const ODD: [&str; 34] = [
    "null", "true", "-0", "1", "127", "128", "32768", "2147483648", "9223372036854775808", "1.5", "99999999.995", "1e400", "1e5",
    "9223372036854775", "86400000", "2932897", "\"7\"", "\"AAECAw\"", "\"A\"", "\"2026-13-03\"", "\"24:00\"",
    "\"0001-01-01T00:00:00+01:00\"", "\"\\ud83d\"", "[]", "{}", "[null]", "12345678901234567890123456789012345678.5",
    "0.00000000000000000000000000000000000001", "\"1677-09-21T00:12:43.145224191Z\"", "{\"a\":1,\"a\":2}",
    "[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]", "{\"c3\":1}", "\"\\u12\"", "nul",
];
