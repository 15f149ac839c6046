//! Which methods exist, and by which names they are asked for.

use std::collections::HashMap;

/// One method with its names taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    /// Place in [`Methods`], for counters.
    pub(crate) index: usize,
    pub(crate) wire: &'static wire::Method,
    /// `etcdserverpb.KV`
    pub(crate) service: &'static str,
    /// `Put`
    pub(crate) name: &'static str,
}

impl Method {
    /// The word of etcd's metrics for the kind of call.
    pub(crate) fn kind(&self) -> &'static str {
        match self.wire.kind {
            wire::Kind::Unary => "unary",
            wire::Kind::ServerStream => "server_stream",
            wire::Kind::Bidi => "bidi_stream",
        }
    }

    pub(crate) fn is_unary(&self) -> bool {
        matches!(self.wire.kind, wire::Kind::Unary)
    }
}

/// The table of methods, looked up by gRPC path or by JSON route.
#[derive(Debug)]
pub(crate) struct Methods {
    all: Vec<Method>,
    paths: HashMap<&'static str, usize>,
    routes: HashMap<&'static str, usize>,
}

impl Methods {
    pub(crate) fn new() -> Methods {
        let mut all = Vec::new();
        let mut paths = HashMap::new();
        let mut routes = HashMap::new();
        for (index, wire) in wire::METHODS.iter().enumerate() {
            let (service, name) = split(wire.path).expect("wire's paths have two parts");
            all.push(Method { index, wire, service, name });
            paths.insert(wire.path, index);
            routes.extend(wire.json.iter().map(|route| (*route, index)));
        }
        Methods { all, paths, routes }
    }

    pub(crate) fn all(&self) -> &[Method] {
        &self.all
    }

    /// By `/package.Service/Method`.
    pub(crate) fn by_path(&self, path: &str) -> Option<&Method> {
        self.paths.get(path).map(|at| &self.all[*at])
    }

    /// By a route of the JSON gateway, `/v3/…`; `/v3beta/…` is the same.
    pub(crate) fn by_route(&self, route: &str) -> Option<&Method> {
        let found = match route.strip_prefix("/v3beta/") {
            Some(rest) => self.routes.get(format!("/v3/{rest}").as_str()),
            None => self.routes.get(route),
        };
        found.map(|at| &self.all[*at])
    }

    /// What gRPC says about a path that is no method of ours.
    pub(crate) fn unknown(&self, path: &str) -> String {
        match split(path) {
            None => format!("malformed method name: {path:?}"),
            Some((service, name)) if self.all.iter().any(|m| m.service == service) => {
                format!("unknown method {name} for service {service}")
            }
            Some((service, _)) => format!("unknown service {service}"),
        }
    }
}

impl Default for Methods {
    fn default() -> Self {
        Methods::new()
    }
}

fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.rsplit_once('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Rpc;

    #[test]
    fn names_lead_to_methods() {
        let methods = Methods::new();
        assert_eq!(methods.by_path("/etcdserverpb.KV/Put").map(|m| m.wire.rpc), Some(Rpc::Put));
        assert_eq!(methods.by_route("/v3/kv/put").map(|m| m.wire.rpc), Some(Rpc::Put));
        assert_eq!(methods.by_route("/v3beta/kv/put").map(|m| m.wire.rpc), Some(Rpc::Put));
        assert_eq!(methods.by_route("/v3/kv/lease/revoke").map(|m| m.wire.rpc), Some(Rpc::LeaseRevoke));
        assert!(methods.by_route("/v3alpha/kv/put").is_none());
        for served in [Rpc::RangeStream, Rpc::HashKV, Rpc::HealthCheck, Rpc::HealthWatch, Rpc::MemberList] {
            assert!(methods.all().iter().any(|m| m.wire.rpc == served), "{served:?}");
        }
    }

    #[test]
    fn unknown_names_are_told_as_grpc_go_tells_them() {
        let methods = Methods::new();
        assert_eq!(methods.unknown("/etcdserverpb.KV/Fly"), "unknown method Fly for service etcdserverpb.KV");
        assert_eq!(methods.unknown("/a.B/C"), "unknown service a.B");
        assert_eq!(methods.unknown("nothing"), "malformed method name: \"nothing\"");
        assert_eq!(methods.unknown("a/b"), "malformed method name: \"a/b\"");
    }
}
