//! Dates and times of day in ISO form, of the years 1 to 9999.

#![forbid(unsafe_code)]

const DAY_SECONDS: i64 = 86_400;
const DAY_MICROS: i64 = DAY_SECONDS * 1_000_000;
/// 0001-01-01 and 9999-12-31.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_896;

/// Whether the reference has the day as a date.
pub fn is_day(days: i64) -> bool {
    (FIRST_DAY..=LAST_DAY).contains(&days)
}

/// Whether the reference has the microsecond as a date and time.
pub fn is_instant(micros: i64) -> bool {
    (FIRST_DAY * DAY_MICROS..(LAST_DAY + 1) * DAY_MICROS).contains(&micros)
}

fn number(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0, |number, &byte| match byte {
        b'0'..=b'9' => Some(number * 10 + u32::from(byte - b'0')),
        _ => None,
    })
}

/// `yyyy-MM-dd` as days since 1970.
pub fn day(text: &[u8]) -> Option<i64> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return None };
    civil(number(&[y1, y2, y3, y4])?.into(), number(&[m1, m2])?.into(), number(&[d1, d2])?.into())
}

/// A day of the calendar as days since 1970.
pub fn civil(year: i64, month: i64, date: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=9999).contains(&year) || date < 1 || date > last {
        return None;
    }
    // In years that begin in March, leap days come last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * m + 2) / 5 + date - 1;
    Some(y * 365 + y / 4 - y / 100 + y / 400 + of_year - 719_468)
}

/// `yyyy-MM-dd[T ]HH:mm:ss[.fraction][Z|+HH:mm]` as microseconds or nanoseconds since 1970: of UTC (where there is no
/// offset it is that), or as the clock shows it, whatever the offset. Digits that are too small are dropped.
pub fn instant(text: &[u8], nanos: bool, utc: bool) -> Option<i64> {
    let days = day(text.get(..10)?)?;
    let &[b'T' | b' ', h1, h2, b':', m1, m2, b':', s1, s2] = text.get(10..19)? else { return None };
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction, zone) = fraction(&text[19..])?;
    let offset = offset(zone)?;
    let clock = days * DAY_SECONDS + i64::from(hour * 3600 + minute * 60 + second);
    let seconds = clock - if utc { offset } else { 0 };
    if nanos {
        return seconds.checked_mul(1_000_000_000)?.checked_add(fraction);
    }
    let micros = seconds * 1_000_000 + fraction / 1000;
    is_instant(micros).then_some(micros)
}

/// Whether microseconds are within a day.
pub fn is_micros_of_day(micros: i64) -> bool {
    (0..DAY_MICROS).contains(&micros)
}

/// Units a second.
pub const MICROS: i64 = 1_000_000;
pub const NANOS: i64 = 1_000_000_000;

/// So many units a second in other units, rounded down.
pub fn counted(number: i64, per_second: i64, wanted: i64) -> Option<i64> {
    if per_second > wanted {
        return Some(number.div_euclid(per_second / wanted));
    }
    number.checked_mul(wanted / per_second)
}

/// `HH:mm[:ss[.fraction]]` as microseconds of the day; digits after the sixth are dropped.
pub fn time(text: &[u8]) -> Option<i64> {
    let &[h1, h2, b':', m1, m2, ref rest @ ..] = text else { return None };
    let (second, rest) = match *rest {
        [] => (0, rest),
        [b':', s1, s2, ref rest @ ..] => (number(&[s1, s2])?, rest),
        _ => return None,
    };
    let (hour, minute) = (number(&[h1, h2])?, number(&[m1, m2])?);
    let (nanos, rest) = fraction(rest)?;
    let is_one = hour < 24 && minute < 60 && second < 60 && rest.is_empty();
    is_one.then_some(i64::from(hour * 3600 + minute * 60 + second) * 1_000_000 + nanos / 1000)
}

/// Nanoseconds, and what stands behind them.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', rest @ ..] = text else { return Some((0, text)) };
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 || count > 9 {
        return None;
    }
    let nanos = i64::from(number(&rest[..count])?) * 10_i64.pow(9 - count as u32);
    Some((nanos, &rest[count..]))
}

/// Seconds east of UTC.
fn offset(text: &[u8]) -> Option<i64> {
    match text {
        [] | [b'Z'] => Some(0),
        &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
            let seconds = i64::from(hours * 3600 + minutes * 60);
            (hours <= 14 && minutes <= 59).then_some(if sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}
