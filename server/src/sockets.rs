//! Sockets: what a member listens on, and its connections. Each is TCP, or the socket of a file
//! (`unix://`, `unixs://`); what is served there does not tell them apart.

mod bind;
mod file;
mod keepalive;
mod stream;

pub(crate) use bind::{bind, can_bind, reason};
pub(crate) use file::remove_files;
pub(crate) use stream::{Accepting, Listener, Origin, OtherEnd, StdStream, Stream};

use disk::urls::Url;

/// The path that a `unix://` URL names: host and path of it, as etcd reads it for clients.
pub(crate) fn path(url: &Url) -> &str {
    url.text.split_once("://").map_or("", |(_, path)| path)
}

/// Where a URL leads: `host:port`, or the path of a file.
pub(crate) fn address(url: &Url) -> String {
    if url.is_unix() { path(url).to_string() } else { url.address() }
}

/// As which host the server of a URL is spoken to. Of a file it is the last part of the path,
/// without a port: `localhost` of `unixs://localhost:1`.
pub(crate) fn host(url: &Url) -> &str {
    if !url.is_unix() {
        return &url.host;
    }
    let last = path(url).rsplit('/').next().unwrap_or_default();
    last.rsplit_once(':').map_or(last, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_file_names_a_path_and_a_host() {
        let table = [
            ("unix://localhost:7", "localhost:7", "localhost"),
            ("unixs:///run/a.sock", "/run/a.sock", "a.sock"),
            ("unix://run/localhost:m0", "run/localhost:m0", "localhost"),
            ("http://[::1]:7", "[::1]:7", "::1"),
        ];
        for (text, leads_to, named) in table {
            let url = Url::parse(text).expect("good");
            assert_eq!((address(&url).as_str(), host(&url)), (leads_to, named), "{text}");
        }
    }
}
