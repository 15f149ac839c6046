//! As much of DER and PEM as keys need: one value inside another, with strict bounds.

use base64::Engine;

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const BITS: u8 = 0x03;

/// Values that stand one behind another.
pub(crate) struct Der<'a> {
    rest: &'a [u8],
}

impl<'a> Der<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Der<'a> {
        Der { rest: bytes }
    }

    /// The next value: its tag and its content.
    pub(crate) fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.rest.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let mut len = usize::from(*first);
        if *first >= 0x80 {
            let bytes = usize::from(first & 0x7f);
            if bytes == 0 || bytes > 4 {
                return None;
            }
            let (head, tail) = rest.split_at_checked(bytes)?;
            len = head.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            rest = tail;
        }
        let (content, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some((*tag, content))
    }

    /// The next value, if it has this tag.
    pub(crate) fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    pub(crate) fn inside(&mut self) -> Option<Der<'a>> {
        self.next(SEQUENCE).map(Der::new)
    }

    /// A bit string of whole bytes.
    pub(crate) fn bits(&mut self) -> Option<&'a [u8]> {
        self.next(BITS)?.strip_prefix(&[0])
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }
}

/// The first block of a PEM file: its label and its bytes.
pub(crate) fn pem(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, behind) = text.split_once("-----BEGIN ")?;
    let (label, behind) = behind.split_once("-----")?;
    let (body, _) = behind.split_once("-----END ")?;
    let body: String = body.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(body).ok()?;
    Some((label.to_owned(), bytes))
}

/// The key inside `SubjectPublicKeyInfo`.
pub(crate) fn of_public(bytes: &[u8]) -> Option<&[u8]> {
    let mut info = Der::new(bytes).inside()?;
    info.inside()?;
    info.bits()
}

/// The key inside a certificate's `SubjectPublicKeyInfo`.
pub(crate) fn of_certificate(bytes: &[u8]) -> Option<&[u8]> {
    let mut certificate = Der::new(bytes).inside()?.inside()?;
    if certificate.peek() == Some(0xa0) {
        certificate.any()?; // version
    }
    certificate.next(INTEGER)?;
    for _algorithm_issuer_validity_subject in 0..4 {
        certificate.inside()?;
    }
    let mut info = certificate.inside()?;
    info.inside()?;
    info.bits()
}

/// The key inside PKCS#8.
pub(crate) fn of_pkcs8(bytes: &[u8]) -> Option<&[u8]> {
    let mut info = Der::new(bytes).inside()?;
    info.next(INTEGER)?;
    info.inside()?;
    info.next(OCTETS)
}

/// Scalar and point of an `ECPrivateKey`; the point may be missing.
pub(crate) fn of_ec(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut key = Der::new(bytes).inside()?;
    key.next(INTEGER)?;
    let scalar = key.next(OCTETS)?;
    let mut point = None;
    while let Some((tag, content)) = key.any() {
        if tag == 0xa1 {
            point = Der::new(content).bits();
        }
    }
    Some((scalar, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(Der::new(b"\x04\x02ab").next(OCTETS), Some(&b"ab"[..]));
        assert_eq!(Der::new(b"\x04\x81\x02ab").next(OCTETS), Some(&b"ab"[..]));
        for cut in [&b"\x04"[..], b"\x04\x03ab", b"\x04\x80ab", b"\x04\x85\0\0\0\0\x01a", b"\x04\x84\xff\xff\xff\xffa"]
        {
            assert!(Der::new(cut).any().is_none(), "{cut:?}");
        }
        for junk in [&b""[..], b"\x30\x00", b"\x30\x02\x30\x00", b"\x30\x04\x30\x00\x03\x00"] {
            assert!(of_public(junk).is_none() && of_certificate(junk).is_none() && of_pkcs8(junk).is_none());
        }
    }
}
