//! Objects of Kubernetes as its API server stores them: four bytes of magic,
//! an envelope, and in it the object, both in protobuf. Only what names an
//! object is read; facts from `k8s.io/apimachinery` (`runtime.Unknown`,
//! `metav1.ObjectMeta`).
//!
//! The bytes may be anything: what cannot be read is no object.

/// What every stored object begins with.
const MAGIC: &[u8] = b"k8s\0";
/// What values begin with that the API server has encrypted.
const ENCRYPTED: &str = "k8s:enc:";

/// What names an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Such as `apps/v1`.
    pub api_version: String,
    /// Such as `Deployment`.
    pub kind: String,
    /// Empty if it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its unique id.
    pub uid: String,
    /// When it was made: seconds since 1970; 0 if it does not say.
    pub created: i64,
    /// Labels, in their order.
    pub labels: Vec<(String, String)>,
    /// Bytes of the object in the envelope.
    pub size: usize,
}

/// The object in a value, if it is one.
pub fn object(value: &[u8]) -> Option<Object> {
    let mut object = Object::default();
    let mut raw: &[u8] = b"";
    for field in fields(value.strip_prefix(MAGIC)?) {
        match field? {
            (1, Field::Bytes(meta)) => {
                for field in fields(meta) {
                    match field? {
                        (1, Field::Bytes(text)) => object.api_version = lossy(text),
                        (2, Field::Bytes(text)) => object.kind = lossy(text),
                        _ => {}
                    }
                }
            }
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    object.size = raw.len();
    // Almost every kind has its metadata in field 1; one that has not is an
    // object all the same.
    if let Some((1, Field::Bytes(meta))) = fields(raw).next().flatten() {
        let mut described = object.clone();
        if metadata(meta, &mut described).is_some() {
            object = described;
        }
    }
    (!object.kind.is_empty()).then_some(object)
}

/// With what a value was encrypted, such as `aescbc v1 key1`.
pub fn encryption(value: &[u8]) -> Option<String> {
    let rest = value.strip_prefix(ENCRYPTED.as_bytes())?;
    let words: Vec<&[u8]> = rest.splitn(4, |b| *b == b':').collect();
    // Provider, version, name of the key; the rest is secret.
    let [words @ .., _secret] = &words[..] else { return None };
    let readable = !words.is_empty() && words.iter().all(|w| w.len() < 64 && w.iter().all(u8::is_ascii_graphic));
    readable.then(|| words.iter().map(|w| lossy(w)).collect::<Vec<_>>().join(" "))
}

fn metadata(bytes: &[u8], object: &mut Object) -> Option<()> {
    for field in fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => object.name = lossy(text),
            (3, Field::Bytes(text)) => object.namespace = lossy(text),
            (5, Field::Bytes(text)) => object.uid = lossy(text),
            (8, Field::Bytes(time)) => {
                for field in fields(time) {
                    if let (1, Field::Number(seconds)) = field? {
                        object.created = seconds.cast_signed();
                    }
                }
            }
            (11, Field::Bytes(label)) => object.labels.push(pair(label)?),
            _ => {}
        }
    }
    Some(())
}

/// One entry of a map of texts.
fn pair(bytes: &[u8]) -> Option<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => key = lossy(text),
            (2, Field::Bytes(text)) => value = lossy(text),
            _ => {}
        }
    }
    Some((key, value))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a field, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Fixed,
}

/// The fields of a message; `None` where it is broken, and nothing after that.
fn fields(bytes: &[u8]) -> impl Iterator<Item = Option<(u64, Field<'_>)>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let mut here = rest.take().filter(|bytes| !bytes.is_empty())?;
        let field = field(&mut here);
        rest = field.is_some().then_some(here);
        Some(field)
    })
}

fn field<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Field<'b>)> {
    let tag = varint(bytes)?;
    let number = tag >> 3;
    let value = match tag & 7 {
        0 => Field::Number(varint(bytes)?),
        1 => cut(bytes, 8).map(|_| Field::Fixed)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Field::Bytes(cut(bytes, length)?)
        }
        5 => cut(bytes, 4).map(|_| Field::Fixed)?,
        _ => return None,
    };
    (number != 0).then_some((number, value))
}

fn cut<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (front, back) = bytes.split_at_checked(length)?;
    *bytes = back;
    Some(front)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, back) = bytes.split_first()?;
        *bytes = back;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        let mut length = value.len();
        while length > 0x7f {
            field.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        field.push(length as u8);
        [&field, value].concat()
    }

    /// A pod as an API server would store it.
    pub fn pod() -> Vec<u8> {
        let label = [bytes(1, b"app"), bytes(2, b"web")].concat();
        // 1,700,000,000 seconds.
        let time = [0x08, 0x80, 0xe2, 0xcf, 0xaa, 0x06];
        let meta =
            [bytes(1, b"web-0"), bytes(3, b"shop"), bytes(5, b"2b1f7c0e"), bytes(8, &time), bytes(11, &label)].concat();
        let raw = [bytes(1, &meta), bytes(2, &[0xff; 200])].concat();
        let kind = [bytes(1, b"v1"), bytes(2, b"Pod")].concat();
        [MAGIC, &bytes(1, &kind), &bytes(2, &raw), &bytes(3, b""), &bytes(4, b"")].concat()
    }

    #[test]
    fn an_object_is_known_by_its_envelope() {
        let object = object(&pod()).expect("a pod");
        let text = |t: &str| t.to_owned();
        assert_eq!((object.kind, object.api_version), (text("Pod"), text("v1")));
        assert_eq!((object.namespace, object.name, object.uid), (text("shop"), text("web-0"), text("2b1f7c0e")));
        assert_eq!(object.created, 1_700_000_000);
        assert_eq!(object.labels, [(text("app"), text("web"))]);
        assert!(object.size > 200);
    }

    #[test]
    fn no_bytes_are_too_strange() {
        let whole = pod();
        for end in 0..whole.len() {
            // A part of one is none, or says no more than the whole.
            assert!(object(&whole[..end]).is_none_or(|o| o.kind == "Pod"), "{end}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let _ = object(&flipped);
            }
        }
        // Lengths beyond all memory, numbers of too many bytes, groups.
        for hostile in [&b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], &[0xff; 20], b"\x0b", b"\x02\x00", b""] {
            assert_eq!(object(&[MAGIC, hostile].concat()), None);
        }
    }

    #[test]
    fn varints_have_64_bits() {
        let read = |mut bytes: &[u8]| varint(&mut bytes);
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Some(u64::MAX));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(read(&[0x96, 0x01]), Some(150));
        assert_eq!(read(&[0x80]), None);
    }

    #[test]
    fn encrypted_values_say_with_what() {
        assert_eq!(encryption(b"k8s:enc:aescbc:v1:key1:\x00\xff"), Some("aescbc v1 key1".to_owned()));
        assert_eq!(encryption(b"k8s:enc:"), None);
        assert_eq!(encryption(b"k8s:enc:a\x1b:v1:k:"), None);
        assert_eq!(encryption(b"k8s\0"), None);
    }
}
