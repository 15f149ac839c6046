//! The one table of methods, and the shapes of what they carry.

/// How many messages go each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One request, one response.
    Unary,
    /// One request, any number of responses.
    ServerStream,
    /// Any number both ways, in any order.
    Bidi,
}

/// One method of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its short name, to match on.
    pub rpc: Rpc,
    /// Its gRPC path, such as `/etcdserverpb.KV/Put`.
    pub path: &'static str,
    /// Its paths on the JSON gateway, all for POST; none for a method that is
    /// served over gRPC alone.
    pub json: &'static [&'static str],
    /// How many messages go each way.
    pub kind: Kind,
    shape: Option<Shape>,
}

impl Method {
    /// The row of a method.
    pub fn of(rpc: Rpc) -> &'static Method {
        let method = &METHODS[rpc as usize];
        assert_eq!(method.rpc, rpc, "the table is in the order of the names");
        method
    }

    /// The shape of the request, if the method has a JSON path.
    pub(crate) fn request_shape(&self) -> Option<&'static MessageShape> {
        self.shape.map(|s| &MESSAGES[s.request])
    }

    /// The shape of a response, if the method has a JSON path.
    pub(crate) fn response_shape(&self) -> Option<&'static MessageShape> {
        self.shape.map(|s| &MESSAGES[s.response])
    }
}

/// The method with this gRPC path.
pub fn method_by_path(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|m| m.path == path)
}

/// The method with this path on the JSON gateway.
pub fn method_by_json(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|m| m.json.contains(&path))
}

/// Places in [`MESSAGES`].
#[derive(Clone, Copy, Debug)]
struct Shape {
    request: usize,
    response: usize,
}

#[derive(Debug)]
pub(crate) struct MessageShape {
    /// In the order of declaration.
    pub fields: &'static [FieldShape],
}

#[derive(Debug)]
pub(crate) struct FieldShape {
    pub number: u32,
    /// As the proto file has it; replies use it.
    pub name: &'static str,
    /// In lowerCamel; requests may use it too.
    pub json: &'static str,
    pub kind: FieldKind,
    pub repeated: bool,
    /// Full name of the oneof it belongs to.
    pub oneof: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Bool,
    Bytes,
    String,
    Int64,
    Uint64,
    Uint32,
    /// Place in [`ENUMS`].
    Enum(usize),
    /// Place in [`MESSAGES`].
    Message(usize),
}

include!(concat!(env!("OUT_DIR"), "/table.rs"));
