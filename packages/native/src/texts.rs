//! Texts that stand for bytes.

#![forbid(unsafe_code)]

/// A UUID as it is written mostly: groups of 8, 4, 4, 4 and 12 hexadecimal digits.
pub fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    if text.len() != 36 || DASHES.iter().any(|&place| text[place] != b'-') {
        return None;
    }
    let mut digits = text.iter().enumerate().filter(|(place, _)| !DASHES.contains(place));
    let mut digit = || char::from(*digits.next()?.1).to_digit(16);
    let mut found = [0; 16];
    for byte in &mut found {
        *byte = u8::try_from(digit()? * 16 + digit()?).ok()?;
    }
    Some(found)
}

/// The bytes of base64, whose last group is padded, or, unless `padded` says so, may be shorter.
pub fn base64(text: &[u8], padded: bool, found: &mut Vec<u8>) -> Option<()> {
    let in_groups = text.len().is_multiple_of(4);
    if padded && !in_groups {
        return None;
    }
    let pads = if in_groups { text.iter().rev().take(2).take_while(|&&letter| letter == b'=').count() } else { 0 };
    let whole = &text[..text.len() - pads];
    for group in whole.chunks(4) {
        let bits = group.iter().try_fold(0_u32, |bits, &letter| Some(bits << 6 | sextet(letter)?))?;
        let bytes = bits << (6 * (4 - group.len()));
        let [_, bytes @ ..] = bytes.to_be_bytes();
        let count = group.len() - 1;
        // Bits beyond the last byte are zero, or the text says more than its bytes do.
        if count == 0 || bytes[count..].iter().any(|&byte| byte != 0) {
            return None;
        }
        found.extend_from_slice(&bytes[..count]);
    }
    Some(())
}

fn sextet(letter: u8) -> Option<u32> {
    Some(u32::from(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}
