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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_their_names_and_are_found_by_each_path() {
        for (at, method) in METHODS.iter().enumerate() {
            assert_eq!(method.rpc as usize, at, "{}", method.path);
            assert_eq!(Method::of(method.rpc).path, method.path);
            assert_eq!(method_by_path(method.path).map(|m| m.rpc), Some(method.rpc));
            for json in method.json {
                assert_eq!(method_by_json(json).map(|m| m.rpc), Some(method.rpc), "{json}");
            }
            assert_eq!(method.request_shape().is_some(), !method.json.is_empty());
        }
        assert_eq!(METHODS.len(), 52);
        assert!(method_by_path("/etcdserverpb.KV/put").is_none());
        assert!(method_by_json("/v3/kv/put/").is_none());
    }

    #[test]
    fn kinds_and_paths_of_the_unusual_ones() {
        let row = |rpc| {
            let m = Method::of(rpc);
            (m.path, m.kind, m.json)
        };
        let none: &[&str] = &[];
        assert_eq!(row(Rpc::RangeStream), ("/etcdserverpb.KV/RangeStream", Kind::ServerStream, none));
        assert_eq!(row(Rpc::Watch), ("/etcdserverpb.Watch/Watch", Kind::Bidi, &["/v3/watch"][..]));
        assert_eq!(
            row(Rpc::LeaseRevoke),
            ("/etcdserverpb.Lease/LeaseRevoke", Kind::Unary, &["/v3/lease/revoke", "/v3/kv/lease/revoke"][..])
        );
        assert_eq!(
            row(Rpc::MoveLeader),
            ("/etcdserverpb.Maintenance/MoveLeader", Kind::Unary, &["/v3/maintenance/transfer-leadership"][..])
        );
        assert_eq!(
            row(Rpc::Observe),
            ("/v3electionpb.Election/Observe", Kind::ServerStream, &["/v3/election/observe"][..])
        );
        assert_eq!(row(Rpc::HealthWatch), ("/grpc.health.v1.Health/Watch", Kind::ServerStream, none));
    }
}
