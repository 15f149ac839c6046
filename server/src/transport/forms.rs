//! Requests that are refused for their form, before anything is known of what they ask: as grpc-go
//! refuses calls and Go's `net/http` refuses pages.

use super::reply::{self, Body};
use super::status::{Code, Status};
use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;
use std::time::Duration;
use tokio::time::Instant;

const GRPC: &str = "application/grpc";
const GRPC_TYPE: HeaderValue = HeaderValue::from_static(GRPC);

/// True for a request that speaks gRPC, or means to: whether it is right is said by [`call`].
pub(crate) fn means_grpc(headers: &HeaderMap) -> bool {
    let starts = |value: &HeaderValue| {
        value.as_bytes().get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC.as_bytes()))
    };
    headers.get_all(header::CONTENT_TYPE).iter().any(starts)
}

/// What stands behind `application/grpc+` or `;`. None: it is no content type of gRPC.
fn subtype(value: &[u8]) -> Option<&[u8]> {
    let rest = value.strip_prefix(GRPC.as_bytes())?;
    match rest.split_first() {
        None => Some(b""),
        Some((b'+' | b';', sub)) => Some(sub),
        Some(_) => None,
    }
}

/// The content type of the answer: the last of the request that is right, with its subtype.
pub(crate) fn content_type(headers: &HeaderMap) -> HeaderValue {
    let mut subtypes = headers.get_all(header::CONTENT_TYPE).iter().filter_map(|value| subtype(value.as_bytes()));
    match subtypes.next_back() {
        None | Some(b"") => GRPC_TYPE,
        Some(sub) => HeaderValue::from_bytes(&[GRPC.as_bytes(), b"+", sub].concat()).unwrap_or(GRPC_TYPE),
    }
}

/// Refuses a call for its headers, in grpc-go's order; answers its deadline.
pub(crate) fn call(parts: &Parts) -> Result<Option<Instant>, Box<Response<Body>>> {
    let headers = &parts.headers;
    let refuse = |http, code, text| Err(aborted(headers, http, &Status::with(code, text)));
    let (named, hosts) = (usize::from(parts.uri.authority().is_some()), headers.get_all(header::HOST).iter().count());
    if hosts > 1 {
        let text = format!(
            "num values of :authority: {named}, num values of host: {hosts}, both must only have 1 value as per \
             HTTP/2 spec"
        );
        return refuse(StatusCode::BAD_REQUEST, Code::Internal, text);
    }
    let types = headers.get_all(header::CONTENT_TYPE);
    if !types.iter().any(|value| subtype(value.as_bytes()).is_some()) {
        let last = types.iter().next_back().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let text = format!("invalid gRPC request content-type {:?}", last.unwrap_or_default());
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, text);
    }
    let mut wrong = None;
    let mut wish = None;
    for (name, value) in headers {
        let name = name.as_str();
        if name == "grpc-timeout" {
            match timeout(value.as_bytes()) {
                Ok(timeout) => wish = Some(timeout),
                Err(why) => wrong = Some(format!("malformed grpc-timeout: {why}")),
            }
        } else if name.ends_with("-bin")
            && let Err(why) = binary(value.as_bytes())
        {
            let value = String::from_utf8_lossy(value.as_bytes());
            wrong = Some(format!("malformed binary metadata {value:?} in header {name:?}: {why}"));
        }
    }
    if let Some(text) = wrong {
        return refuse(StatusCode::BAD_REQUEST, Code::Internal, text);
    }
    if named + hosts == 0 {
        return refuse(StatusCode::BAD_REQUEST, Code::Internal, "no host or :authority header present".into());
    }
    if parts.method != Method::POST {
        let text = format!("Received a HEADERS frame with :method {:?} which should be POST", parts.method.as_str());
        return refuse(StatusCode::METHOD_NOT_ALLOWED, Code::Internal, text);
    }
    // A deadline beyond what the clock can name is none.
    let deadline = wish.and_then(|wish| Instant::now().checked_add(wish));
    match deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        true => Err(aborted(headers, StatusCode::OK, &super::status::DEADLINE)),
        false => Ok(deadline),
    }
}

/// What is wrong with the value of a header, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("transport: timeout string is too short: {0:?}")]
    TooShort(String),
    #[error("transport: timeout string is too long: {0:?}")]
    TooLong(String),
    #[error("transport: timeout unit is not recognized: {0:?}")]
    Unit(String),
    #[error("strconv.ParseUint: parsing {0:?}: invalid syntax")]
    Number(String),
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
}

/// A call that ends before it begins, with a status of HTTP.
fn aborted(headers: &HeaderMap, http: StatusCode, status: &Status) -> Box<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http;
    *response.headers_mut() = reply::trailers(Some(status));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type(headers));
    Box::new(response)
}

/// `grpc-timeout`: up to eight digits and a unit.
fn timeout(value: &[u8]) -> Result<Duration, Unfit> {
    let text = || String::from_utf8_lossy(value).into_owned();
    if value.len() < 2 {
        return Err(Unfit::TooShort(text()));
    }
    if value.len() > 9 {
        return Err(Unfit::TooLong(text()));
    }
    let (unit, digits) = value.split_last().expect("not empty");
    let unit = unit_of(*unit).ok_or_else(|| Unfit::Unit(text()))?;
    let digits = String::from_utf8_lossy(digits);
    match digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten() {
        Some(number) => Ok(times(unit, number)),
        None => Err(Unfit::Number(digits.into_owned())),
    }
}

fn unit_of(unit: u8) -> Option<Duration> {
    Some(match unit {
        b'H' => Duration::from_secs(3600),
        b'M' => Duration::from_secs(60),
        b'S' => Duration::from_secs(1),
        b'm' => Duration::from_millis(1),
        b'u' => Duration::from_micros(1),
        b'n' => Duration::from_nanos(1),
        _ => return None,
    })
}

fn times(unit: Duration, number: u64) -> Duration {
    let nanos = unit.as_nanos().saturating_mul(u128::from(number));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// `Grpc-Timeout` as the JSON gateway reads it: any number and a unit; 0 is none.
pub(crate) fn page_deadline(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get("grpc-timeout").filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let read = || {
        let unit = unit_of(*text.as_bytes().last()?)?;
        let number: i64 = text.get(..text.len() - 1)?.parse().ok()?;
        Some((unit, number))
    };
    match read() {
        None => Err(Status::with(Code::InvalidArgument, format!("invalid grpc-timeout: {text}"))),
        Some((_, 0)) => Ok(None),
        Some((unit, number)) => {
            let wish = u64::try_from(number).map_or(Duration::ZERO, |number| times(unit, number));
            let deadline = Instant::now().checked_add(wish);
            match deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                true => Err(super::status::DEADLINE),
                false => Ok(deadline),
            }
        }
    }
}

/// Bits that no byte fills may be set, as Go has it.
const LAX: GeneralPurposeConfig = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
const PADDED: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LAX);
const PLAIN: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, LAX.with_decode_padding_mode(DecodePaddingMode::RequireNone));

/// The value of a header whose name ends in `-bin`.
pub(crate) fn binary(value: &[u8]) -> Result<Vec<u8>, Unfit> {
    let engine = if value.len().is_multiple_of(4) { &PADDED } else { &PLAIN };
    engine.decode(value).map_err(|_| Unfit::Base64(first_wrong(value)))
}

/// Where Go's decoder stops: at the first byte that cannot stand there, or where the last group
/// that is too short begins.
fn first_wrong(value: &[u8]) -> usize {
    let padded = value.len().is_multiple_of(4);
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let end = value.iter().position(|byte| !known(*byte)).unwrap_or(value.len());
    if end == value.len() {
        return end - end % 4;
    }
    let (inside, rest) = (end % 4, &value[end..]);
    match rest {
        // Padding that is right, and something behind it.
        [b'=', b'=', _, ..] if padded && inside == 2 => end + 2,
        [b'=', other, ..] if padded && inside == 2 && *other != b'=' => end + 1,
        [b'=', _, ..] if padded && inside == 3 => end + 1,
        _ => end,
    }
}

/// Refuses a page for its form, as Go's `net/http` does.
pub(crate) fn page<B>(request: &Request<B>) -> Option<Response<Body>> {
    if request.version() > Version::HTTP_11 {
        return None;
    }
    let (headers, uri) = (request.headers(), request.uri());
    if uri.path() == "*" {
        // The whole server; there is nothing to say of it.
        return Some(if request.method() == Method::OPTIONS { Response::new(Body::empty()) } else { bad("") });
    }
    if uri.scheme().is_none() && uri.authority().is_some() && request.method() != Method::CONNECT {
        return Some(bad(""));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if codings.next().is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
    {
        return Some(refused(StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding".into()));
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Some(bad("")),
        (None, None) if request.version() == Version::HTTP_11 && request.method() != Method::CONNECT => {
            return Some(bad(": missing required Host header"));
        }
        (Some(host), None) if !host.as_bytes().iter().all(|byte| may_stand_in_host(*byte)) => {
            return Some(bad(": malformed Host header"));
        }
        _ => {}
    }
    if !is_escaped(uri.path()) {
        return Some(bad(""));
    }
    let expects = headers.get(header::EXPECT).map(HeaderValue::as_bytes).unwrap_or_default();
    if !expects.is_empty() && !expects.eq_ignore_ascii_case(b"100-continue") {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::EXPECTATION_FAILED;
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return Some(response);
    }
    None
}

/// As Go refuses a request, after which the connection is closed.
fn refused(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn bad(why: &str) -> Response<Body> {
    let mut response = refused(StatusCode::BAD_REQUEST, format!("400 Bad Request{why}"));
    if let Ok(reason) = ReasonPhrase::try_from(format!("Bad Request{why}").into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// Letters, digits and what RFC 3986 allows in a host and port.
fn may_stand_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

fn is_escaped(path: &str) -> bool {
    let mut parts = path.split('%');
    parts.next();
    parts.all(|part| part.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)))
}

/// Where Go's mux sends a client whose path is not the shortest of its kind.
pub(crate) fn shortest(path: &str) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    let mut out = format!("/{}", kept.join("/"));
    if path.ends_with('/') && out != "/" {
        out.push('/');
    }
    (path.starts_with('/') && out != path).then_some(out)
}

/// The method that a form means: browsers send no others than GET and POST.
pub(crate) fn meant(parts: &Parts) -> Method {
    let is_form = |headers: &HeaderMap| {
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/x-www-form-urlencoded")
    };
    match parts.headers.get("x-http-method-override").filter(|wish| !wish.is_empty()) {
        Some(wish) if parts.method == Method::POST && is_form(&parts.headers) => {
            Method::from_bytes(&wish.as_bytes().to_ascii_uppercase()).unwrap_or(Method::TRACE)
        }
        _ => parts.method.clone(),
    }
}

/// Whether the client takes an answer in gzip, and would rather have that than a plain one.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let (mut packed, mut plain) = (0.0, 0.0);
    for value in headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        for part in value.split(',') {
            let (name, rest) = part.split_once(';').unwrap_or((part, ""));
            let weight = rest.trim().strip_prefix("q=").map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            match name.trim() {
                "gzip" => packed = weight,
                "identity" => plain = weight,
                _ => {}
            }
        }
    }
    packed > plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_protocol_has_them() {
        let table: [(&str, Option<Duration>); 10] = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("10S", Some(Duration::from_secs(10))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000m", None),
            ("m", None),
            ("", None),
            ("1x", None),
        ];
        for (text, expected) in table {
            assert_eq!(timeout(text.as_bytes()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn content_types() {
        let table: [(&str, bool, Option<&[u8]>); 7] = [
            ("application/grpc", true, Some(b"")),
            ("application/grpc+proto", true, Some(b"proto")),
            ("application/grpc;x", true, Some(b"x")),
            ("application/grpcx", true, None),
            ("application/grpc-web", true, None),
            ("Application/grpc", true, None),
            ("application/json", false, None),
        ];
        for (value, means, sub) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!((means_grpc(&headers), subtype(value.as_bytes())), (means, sub), "{value}");
        }
        assert!(!means_grpc(&HeaderMap::new()));
    }

    #[test]
    fn paths_are_shortened_as_by_go() {
        let table = [
            ("/version", None),
            ("/", None),
            ("/v3/", None),
            ("//version", Some("/version")),
            ("/./a/../b/", Some("/b/")),
            ("/..", Some("/")),
            ("*", None),
        ];
        for (path, short) in table {
            assert_eq!(shortest(path).as_deref(), short, "{path}");
        }
    }
}
