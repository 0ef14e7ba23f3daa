//! Kinds of columns by their names.

#![forbid(unsafe_code)]

use arrow_schema::{DataType, TimeUnit};

use crate::columns::{Kind, Wanted};
use crate::times;

const DAY_MILLIS: i64 = 86_400_000;

/// The kind of this name with this inside it: the fields of a struct, the item of a list, key and value of a map, the
/// symbols of a choice.
pub fn named(name: &str, mut inner: Vec<Wanted>) -> Option<Kind> {
    let moment = |unit, zone: &str| match zone {
        "" => Some(whole(DataType::Timestamp(unit, None), i64::MIN, i64::MAX)),
        "utc" => Some(whole(DataType::Timestamp(unit, Some("UTC".into())), i64::MIN, i64::MAX)),
        _ => None,
    };
    let (word, arguments) = arguments(name)?;
    Some(match (word, &arguments[..], inner.len()) {
        ("boolean", [], 0) => Kind::Boolean,
        ("long", [], 0) => Kind::Long,
        ("float", [], 0) => Kind::Float,
        ("double", [], 0) => Kind::Double,
        ("fraction", [], 0) => Kind::Fraction { exact: false },
        ("exact_fraction", [], 0) => Kind::Fraction { exact: true },
        ("string", [], 0) => Kind::Text,
        ("base64", [], 0) => Kind::Binary { padded: false },
        ("bytes", [], 0) => Kind::Binary { padded: true },
        ("fixed", &[size], 0) => Kind::Fixed(size.parse().ok().filter(|size| *size > 0)?),
        ("uuid", [], 0) => Kind::Uuid,
        ("timestamp", units, 0) => Kind::Instant { nanos: false, utc: false, per_second: per_second(units)? },
        ("timestamptz", units, 0) => Kind::Instant { nanos: false, utc: true, per_second: per_second(units)? },
        ("timestamp_ns", units, 0) => Kind::Instant { nanos: true, utc: false, per_second: per_second(units)? },
        ("timestamptz_ns", units, 0) => Kind::Instant { nanos: true, utc: true, per_second: per_second(units)? },
        ("date", [], 0) => Kind::Date,
        ("time", units, 0) => Kind::Time { per_second: per_second(units)? },
        ("decimal", &[precision, scale], 0) => {
            let (precision, scale) = digits(precision, scale)?;
            Kind::Decimal { precision, scale }
        }
        ("unscaled", &[precision, scale], 0) => {
            let (precision, scale) = digits(precision, scale)?;
            Kind::Unscaled { precision, scale, bytes: None }
        }
        ("unscaled", &[precision, scale, bytes], 0) => {
            let (precision, scale) = digits(precision, scale)?;
            Kind::Unscaled { precision, scale, bytes: Some(bytes.parse().ok()?) }
        }
        ("int8", [], 0) => whole(DataType::Int8, i8::MIN.into(), i8::MAX.into()),
        ("int16", [], 0) => whole(DataType::Int16, i16::MIN.into(), i16::MAX.into()),
        ("int32", [], 0) => whole(DataType::Int32, i32::MIN.into(), i32::MAX.into()),
        ("int64", [], 0) => whole(DataType::Int64, i64::MIN, i64::MAX),
        ("uint32", [], 0) => whole(DataType::UInt32, 0, u32::MAX.into()),
        ("uint64", [], 0) => whole(DataType::UInt64, i64::MIN, i64::MAX), // the same bits
        ("days", [], 0) => whole(DataType::Date32, i32::MIN.into(), i32::MAX.into()),
        ("millis_of_day", [], 0) => whole(DataType::Time32(TimeUnit::Millisecond), 0, DAY_MILLIS - 1),
        ("micros_of_day", [], 0) => whole(DataType::Time64(TimeUnit::Microsecond), 0, DAY_MILLIS * 1000 - 1),
        ("millis", &[zone], 0) => moment(TimeUnit::Millisecond, zone)?,
        ("micros", &[zone], 0) => moment(TimeUnit::Microsecond, zone)?,
        ("nanos", &[zone], 0) => moment(TimeUnit::Nanosecond, zone)?,
        ("variant", [], 0) => Kind::Variant,
        ("other", [], 0) => Kind::Other,
        ("choice", [], _) => Kind::Choice(inner.into_iter().map(|symbol| symbol.names.concat()).collect()),
        ("struct", [], _) => Kind::Struct(inner),
        ("list", [], 1) => Kind::List(Box::new(inner.remove(0))),
        ("map", [], 2) => Kind::Map(Box::new(inner.try_into().ok()?)),
        _ => return None,
    })
}

/// How many units numbers count in a second: milliseconds, unless another unit is given.
fn per_second(units: &[&str]) -> Option<i64> {
    match units {
        ["s"] => Some(1),
        [] | ["ms"] => Some(1_000),
        ["us"] => Some(times::MICROS),
        ["ns"] => Some(times::NANOS),
        _ => None,
    }
}

fn whole(kind: DataType, least: i64, most: i64) -> Kind {
    Kind::Whole { kind, least, most }
}

/// `word`, or `word(argument,argument)`
fn arguments(name: &str) -> Option<(&str, Vec<&str>)> {
    match name.split_once('(') {
        None => Some((name, vec![])),
        Some((word, rest)) => Some((word, rest.strip_suffix(')')?.split(',').collect())),
    }
}

fn digits(precision: &str, scale: &str) -> Option<(u8, u8)> {
    let (precision, scale) = (precision.parse().ok()?, scale.parse().ok()?);
    ((1..=38).contains(&precision) && scale <= precision).then_some((precision, scale))
}
