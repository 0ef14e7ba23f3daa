//! Numbers of JSON. Leading zeros, digits missing, or more digits than are sure, are refused.

#![forbid(unsafe_code)]

use crate::cursor::Cursor;
use crate::outcome::{Read, Refused};

/// Digits that are counted, not read: longer numbers are rare, and the reference has limits of its own.
const MOST_DIGITS: usize = 300;
const EXACT_DIGITS: usize = 15;
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Digits from here on, and the number that they are if it is below 10^18.
#[inline]
fn digits(cursor: &mut Cursor, mut number: u64) -> (usize, u64) {
    let start = cursor.at();
    while let Some(eight) = cursor.rest().first_chunk().and_then(|&bytes| eight_digits(u64::from_le_bytes(bytes))) {
        number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        cursor.skip(8);
    }
    loop {
        let digit = cursor.peek().wrapping_sub(b'0');
        if digit > 9 {
            return (cursor.at() - start, number);
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        cursor.skip(1);
    }
}

/// The number that eight bytes of text are, if all are digits; the first is in the lowest byte.
#[inline]
fn eight_digits(text: u64) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    if text & HIGH != ZEROS || text.wrapping_add(0x0606_0606_0606_0606) & HIGH != ZEROS {
        return None;
    }
    // Neighbours are put together: digits, then pairs, then fours.
    let pairs = ((text & !HIGH).wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000 << 32 | 1) >> 32)
}

/// The digits before a fraction: a zero stands alone.
#[inline]
fn integral(cursor: &mut Cursor) -> Read<(usize, u64)> {
    let zero = cursor.peek() == b'0';
    let (count, number) = digits(cursor, 0);
    if count == 0 || count > MOST_DIGITS || (zero && count > 1) { Err(Refused) } else { Ok((count, number)) }
}

/// A whole number of 64 bits, without fraction and exponent.
#[inline]
pub fn whole(cursor: &mut Cursor) -> Read<i64> {
    let start = cursor.at();
    let negative = cursor.take(b'-');
    let (count, number) = integral(cursor)?;
    if matches!(cursor.peek(), b'.' | b'e' | b'E') {
        return Err(Refused);
    }
    if count > 18 {
        return cursor.text_since(start)?.parse().map_err(|_| Refused);
    }
    Ok(if negative { -(number as i64) } else { number as i64 })
}

/// A number as the double next to it, if that is finite.
#[inline]
pub fn double(cursor: &mut Cursor) -> Read<f64> {
    read(cursor).map(|number| number.value)
}

/// The same of a number with a fraction or an exponent. It is whole only if its double is; `exact`: it is the shortest
/// text of its double.
#[inline]
pub fn fraction(cursor: &mut Cursor, exact: bool) -> Read<f64> {
    let start = cursor.at();
    let Double { value, is_whole, is_short } = read(cursor)?;
    let is_sure =
        || is_short || (value.trunc() != value && (!exact || is_shortest(cursor.text_since(start).ok(), value)));
    if is_whole || !is_sure() { Err(Refused) } else { Ok(value) }
}

/// Whether the number is that of the shortest text of its double, which is not zero.
fn is_shortest(text: Option<&str>, value: f64) -> bool {
    text.and_then(significant).is_some_and(|found| Some(found) == significant(&format!("{value:e}")))
}

/// The digits from the first that is not zero to the last, and how many places the first stands before the point.
fn significant(text: &str) -> Option<(String, i64)> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('-');
    let all = [whole, fraction].concat();
    let digits = all.trim_start_matches('0');
    let places = whole.len() as i64 - (all.len() - digits.len()) as i64;
    Some((digits.trim_end_matches('0').to_string(), places + exponent.parse::<i64>().ok()?))
}

struct Double {
    value: f64,
    /// There is no fraction, and no exponent.
    is_whole: bool,
    /// Of so few digits each number has a double of its own.
    is_short: bool,
}

#[inline]
fn read(cursor: &mut Cursor) -> Read<Double> {
    let start = cursor.at();
    let negative = cursor.take(b'-');
    let (mut count, mut number) = integral(cursor)?;
    let (mut places, mut exponent) = (0, false);
    let mut fraction = false;
    if cursor.take(b'.') {
        fraction = true;
        (places, number) = digits(cursor, number);
        count += places;
        if places == 0 || count > MOST_DIGITS {
            return Err(Refused);
        }
    }
    if cursor.take(b'e') || cursor.take(b'E') {
        exponent = true;
        let _ = cursor.take(b'+') || cursor.take(b'-');
        let (count, _) = digits(cursor, 0);
        if count == 0 || count > 4 {
            return Err(Refused);
        }
    }
    if count <= EXACT_DIGITS && !exponent {
        // Both are exact as doubles, so the quotient is rounded once. Of whole numbers there is one zero.
        let value = number as f64 / POWERS[places];
        let value = if negative && (fraction || number != 0) { -value } else { value };
        return Ok(Double { value, is_whole: !fraction, is_short: true });
    }
    let value: f64 = cursor.text_since(start)?.parse().map_err(|_| Refused)?;
    let is_whole = !fraction && !exponent;
    if !value.is_finite() || (is_whole && value == 0.0) {
        return Err(Refused);
    }
    Ok(Double { value, is_whole, is_short: false })
}

/// The most digits whose number is sure to fit 128 bits.
const DECIMAL_DIGITS: u32 = 38;
const TOO_MANY: i128 = 10_i128.pow(DECIMAL_DIGITS);

/// A number without exponent, times ten to the scale; digits beyond that are rounded, halves away from zero, or refused.
pub fn decimal(cursor: &mut Cursor, precision: u32, scale: u32, rounded: bool) -> Read<i128> {
    let negative = cursor.take(b'-');
    let (mut number, mut count) = (0_i128, 0);
    let leading = cursor.at();
    let mut point = None;
    loop {
        match cursor.peek() {
            digit @ b'0'..=b'9' if count < DECIMAL_DIGITS => {
                number = number * 10 + i128::from(digit - b'0');
                count += 1;
            }
            b'.' if point.is_none() && count > 0 => point = Some(count),
            b'0'..=b'9' | b'.' | b'e' | b'E' => return Err(Refused),
            _ => break,
        }
        cursor.skip(1);
    }
    let integral = point.unwrap_or(count);
    let text = cursor.since(leading);
    if count == 0 || point == Some(count) || (integral > 1 && text.first() == Some(&b'0')) {
        return Err(Refused);
    }
    let places = count - integral;
    let unscaled = if places <= scale {
        10_i128.checked_pow(scale - places).and_then(|by| number.checked_mul(by)).ok_or(Refused)?
    } else if !rounded {
        return Err(Refused);
    } else {
        let by = 10_i128.pow(places - scale);
        number / by + i128::from(number % by >= by / 2)
    };
    if unscaled >= 10_i128.pow(precision) { Err(Refused) } else { Ok(if negative { -unscaled } else { unscaled }) }
}

/// A number with all its digits.
pub enum Exact {
    /// Without fraction and exponent.
    Whole(i128),
    /// Its fraction does not end in a zero.
    Decimal { unscaled: i128, scale: u8 },
    /// With a fraction or an exponent.
    NegativeZero,
}

/// A number of at most 38 digits before its point and behind it, with those that an exponent adds.
#[inline]
pub fn exact(cursor: &mut Cursor) -> Read<Exact> {
    let negative = cursor.take(b'-');
    let start = cursor.at();
    let (before, mut number) = integral(cursor)?;
    let (mut behind, is_fraction) = (0, cursor.take(b'.'));
    if is_fraction {
        (behind, number) = digits(cursor, number);
        if behind == 0 {
            return Err(Refused);
        }
    }
    let text = cursor.since(start);
    let exponent = if cursor.take(b'e') || cursor.take(b'E') { Some(exponent(cursor)?) } else { None };
    let unscaled = match before + behind {
        0..=18 => i128::from(number),
        19..=38 => text.iter().filter(|&&byte| byte != b'.').fold(0, |sum, byte| sum * 10 + i128::from(byte - b'0')),
        _ => return Err(Refused),
    };
    let signed = |number: i128| if negative { -number } else { number };
    if !is_fraction && exponent.is_none() {
        return Ok(Exact::Whole(signed(unscaled)));
    }
    if unscaled == 0 {
        return Ok(if negative { Exact::NegativeZero } else { Exact::Decimal { unscaled, scale: 0 } });
    }
    let (unscaled, scale) = scaled(unscaled, behind as i64 - exponent.unwrap_or(0))?;
    Ok(Exact::Decimal { unscaled: signed(unscaled), scale })
}

/// Of at most four digits.
fn exponent(cursor: &mut Cursor) -> Read<i64> {
    let negative = !cursor.take(b'+') && cursor.take(b'-');
    let (count, number) = digits(cursor, 0);
    if count == 0 || count > 4 {
        return Err(Refused);
    }
    Ok(if negative { -(number as i64) } else { number as i64 })
}

/// A number with a scale from 0 to 38, and without zeros at the end of its fraction.
#[inline]
fn scaled(mut unscaled: i128, mut scale: i64) -> Read<(i128, u8)> {
    // Of 64 bits it is divided in a fraction of the time.
    if let Ok(mut small) = u64::try_from(unscaled) {
        while scale > 0 && small.is_multiple_of(10) {
            (small, scale) = (small / 10, scale - 1);
        }
        unscaled = small.into();
    } else {
        while scale > 0 && unscaled % 10 == 0 {
            (unscaled, scale) = (unscaled / 10, scale - 1);
        }
    }
    if scale < 0 {
        let power = u32::try_from(-scale).ok().and_then(|power| 10_i128.checked_pow(power)).ok_or(Refused)?;
        unscaled = unscaled.checked_mul(power).ok_or(Refused)?;
        scale = 0;
    }
    if unscaled >= TOO_MANY {
        return Err(Refused);
    }
    match u8::try_from(scale) {
        Ok(scale) if u32::from(scale) <= DECIMAL_DIGITS => Ok((unscaled, scale)),
        _ => Err(Refused),
    }
}

/// A whole number in big-endian bytes of at most so many digits.
pub fn unscaled(bytes: &[u8], precision: u8) -> Option<i128> {
    let mut wide = [if bytes.first()? & 0x80 == 0 { 0 } else { 0xff }; 16];
    wide.get_mut(16_usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
    let number = i128::from_be_bytes(wide);
    (number.unsigned_abs() < 10_u128.pow(precision.into())).then_some(number)
}

/// A number in 32 bits, unless it is beyond those.
pub fn single(number: f64) -> Option<f32> {
    let found = number as f32;
    found.is_finite().then_some(found)
}
