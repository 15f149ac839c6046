//! From global flags to a client.

use std::net::SocketAddr;

use client::{Client, Credentials, Discovery, Options, Tls};
use cobra::Flag;

use crate::{
    call::Call,
    exit::{BAD_ARGS, BAD_CONNECTION, ERROR, Failure, Outcome},
    raw,
};

/// The flags that every command takes, in the order of their names.
pub const GLOBAL: &[Flag] = &[
    Flag::text("auth-jwt-token", "", "a JWT to authenticate with; excludes --user and --password"),
    Flag::text("cacert", "", "certificates of the authorities that may vouch for servers"),
    Flag::text("cert", "", "this client's certificate"),
    Flag::duration("command-timeout", "5s", "how long a short command may take, without dialing"),
    Flag::switch("debug", "show the settings in use"),
    Flag::duration("dial-timeout", "2s", "how long a connection may take to be made"),
    Flag::text("discovery-srv", "", "domain whose SRV records name the endpoints").short('d'),
    Flag::text("discovery-srv-name", "", "service name in these SRV records"),
    Flag::list("endpoints", "127.0.0.1:2379", "where the cluster's members serve clients"),
    Flag::switch("hex", "show bytes as hexadecimal numbers"),
    Flag::switch_on("insecure-discovery", "take SRV records of endpoints without TLS"),
    Flag::switch("insecure-skip-tls-verify", "believe any server certificate (for tests only)"),
    Flag::switch_on("insecure-transport", "connect without TLS"),
    Flag::duration("keepalive-time", "2s", "how often a connection is probed"),
    Flag::duration("keepalive-timeout", "6s", "how long a probe may take"),
    Flag::text("key", "", "the key of this client's certificate"),
    Flag::int("max-recv-bytes", "0", "largest response in bytes (0: no limit)"),
    Flag::int("max-request-bytes", "0", "largest request in bytes (0: 2 MiB)"),
    Flag::text("password", "", "password of --user"),
    Flag::text("user", "", "username[:password]; a password that is missing is asked for"),
    Flag::text("write-out", "simple", "form of the output: fields, json, protobuf, simple, table")
        .short('w')
        .choices(&["fields", "json", "protobuf", "simple", "table"]),
];

/// Of them, and those that only `kvorum ctl` has.
pub const GLOBAL_OURS: &[Flag] = &{
    let mut all = [HINTS; GLOBAL.len() + 2];
    let mut at = 0;
    while at < GLOBAL.len() {
        all[at] = GLOBAL[at];
        at += 1;
    }
    all[GLOBAL.len() - 1] = WRITE_OUT;
    all[GLOBAL.len()] = COLOR;
    all
};

/// `--write-out`, the last of [`GLOBAL`], with one form more.
const WRITE_OUT: Flag =
    Flag::text("write-out", "simple", "form of the output: fields, json, protobuf, simple, table, yaml")
        .short('w')
        .choices(&["fields", "json", "protobuf", "simple", "table", "yaml"]);

/// `--color`.
const COLOR: Flag = Flag::text("color", "auto", "colours: auto (on a terminal, unless NO_COLOR is set), always, never")
    .choices(&["always", "auto", "never"]);

/// `--hints`.
pub const HINTS: Flag = Flag::switch("hints", "say what to try next below an error, even without a terminal");

const DEFAULT_REQUEST_BYTES: usize = 2 << 20;

impl Call {
    /// The options of the client that the flags describe.
    ///
    /// # Errors
    /// See [`options`].
    pub fn options(&self) -> Outcome<Options> {
        self.prepare()?;
        if let Some(options) = &*self.options.borrow() {
            return Ok(options.clone());
        }
        let options = options(self)?;
        self.options.replace(Some(options.clone()));
        Ok(options)
    }

    /// Reads the flags anew when options are wanted again: where the stock tool
    /// makes two clients, it asks for the password twice.
    pub fn forget_options(&self) {
        self.options.replace(None);
    }

    /// The client that the flags describe; if they name a user, it has signed in.
    ///
    /// # Errors
    /// See [`client()`] and [`sign_in`].
    pub fn connect(&self) -> Outcome<Client> {
        let client = self.client()?;
        self.sign_in(&client)?;
        self.text_only()?;
        Ok(client)
    }

    /// What the protocol has as text must be text: arguments, unless the
    /// command's are bytes, and its own flags.
    fn text_only(&self) -> Outcome {
        let command = self.path.last().expect("the path begins with the program");
        let given =
            command.flags.iter().map(|flag| self.values().last(flag)).chain(self.args.iter().map(String::as_str));
        if command.raw || given.into_iter().all(raw::is_text) { Ok(()) } else { Err(no_text()) }
    }

    /// The client that the flags describe. Nothing is connected yet.
    ///
    /// # Errors
    /// See [`client()`].
    pub fn client(&self) -> Outcome<Client> {
        let _entered = self.runtime().enter();
        client(self.options()?)
    }

    /// Signs in.
    ///
    /// # Errors
    /// See [`sign_in`].
    pub fn sign_in(&self, client: &Client) -> Outcome {
        self.block_on(sign_in(client))
    }
}

/// What the global flags say, as options of the client.
///
/// # Errors
/// Flags that contradict each other or say nothing.
pub fn options(call: &Call) -> Outcome<Options> {
    let options = options_of_nobody(call)?;
    Ok(Options { user: user(call)?, ..options })
}

/// The same without the user, whose password may have to be asked for.
///
/// # Errors
/// See [`options`].
pub fn options_of_nobody(call: &Call) -> Outcome<Options> {
    for name in ["cert", "key", "cacert"] {
        if call.changed(name) && call.text(name).is_empty() {
            return Err(Failure::bad_args(format!("empty string is passed to --{name} option")));
        }
    }
    let (cert, key) = (call.text("cert"), call.text("key"));
    if cert.is_empty() != key.is_empty() {
        let text = format!("KeyFile and CertFile must both be present[key: {key}, cert: {cert}]");
        return Err(Failure::bad_args(text));
    }
    for name in ["cert", "key", "cacert"].into_iter().filter(|name| !call.text(name).is_empty()) {
        readable(call.text(name))?;
    }
    let endpoints = endpoints(call)?;
    if endpoints.is_empty() {
        return Err(Failure::new(BAD_CONNECTION, "etcdclient: no available endpoints"));
    }
    let bytes = |name: &str, default: usize| match usize::try_from(call.int(name)) {
        Ok(0) | Err(_) => default,
        Ok(bytes) => bytes,
    };
    Ok(Options {
        endpoints,
        any_endpoint: !call.is_ours(),
        dial_timeout: call.duration("dial-timeout"),
        request_timeout: Some(call.duration("command-timeout")),
        keepalive_time: call.duration("keepalive-time"),
        keepalive_timeout: call.duration("keepalive-timeout"),
        max_send_bytes: bytes("max-request-bytes", DEFAULT_REQUEST_BYTES),
        max_recv_bytes: bytes("max-recv-bytes", usize::MAX),
        tls: tls(call),
        token: Some(call.text("auth-jwt-token")).filter(|t| !t.is_empty()).map(str::to_owned),
        ..Options::default()
    })
}

/// A file that cannot be opened is told of in the words of the stock tool.
fn readable(path: &str) -> Outcome {
    match std::fs::File::open(raw::os(path)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::bad_args(format!("open {path}: {}", crate::exit::system_words(&error)))),
    }
}

/// The endpoints of `--discovery-srv`; those of `--endpoints` if it is not given
/// or names none.
fn endpoints(call: &Call) -> Outcome<Vec<String>> {
    let domain = call.text("discovery-srv");
    let mut found = Vec::new();
    if !domain.is_empty() {
        let service_name = call.text("discovery-srv-name").to_owned();
        let discovery = Discovery { domain: domain.to_owned(), service_name, resolver: resolver()? };
        found = call.block_on(discovery.endpoints())?;
    }
    if !call.switch("insecure-discovery") {
        found.retain(|endpoint| {
            let encrypted = !endpoint.starts_with("http://");
            if !encrypted {
                complain!("ignoring discovered insecure endpoint {}", cobra::quote(endpoint));
            }
            encrypted
        });
    }
    if found.is_empty() {
        found = call.list("endpoints").iter().map(|endpoint| endpoint.trim().to_owned()).collect();
    }
    Ok(found)
}

/// Names the server to ask for SRV records, `address:port`, instead of those that
/// the system asks.
const RESOLVER: &str = "KVORUM_RESOLVER";

fn resolver() -> Outcome<Option<SocketAddr>> {
    let Some(named) = std::env::var_os(RESOLVER).filter(|value| !value.is_empty()) else { return Ok(None) };
    let address = named.to_str().and_then(|text| text.parse().ok());
    let wrong = || Failure::new(ERROR, format!("{RESOLVER}={} is not address:port", named.display()));
    address.ok_or_else(wrong).map(Some)
}

fn tls(call: &Call) -> Option<Tls> {
    let path = |name: &str| Some(call.text(name)).filter(|p| !p.is_empty()).map(|p| raw::os(p).into());
    let tls = Tls {
        ca: path("cacert"),
        cert: path("cert"),
        key: path("key"),
        insecure_skip_verify: call.switch("insecure-skip-tls-verify"),
        // Who trusts no record without TLS wants the certificate of the domain.
        server_name: Some(call.text("discovery-srv"))
            .filter(|domain| !domain.is_empty() && !call.switch("insecure-discovery"))
            .map(str::to_owned),
    };
    let given = tls.ca.is_some() || tls.cert.is_some() || tls.key.is_some() || tls.insecure_skip_verify;
    (given || !call.switch("insecure-transport")).then_some(tls)
}

fn user(call: &Call) -> Outcome<Option<Credentials>> {
    let user = call.text("user");
    // A token says who it is.
    if user.is_empty() || !call.text("auth-jwt-token").is_empty() {
        return Ok(None);
    }
    let (name, password) = if call.text("password").is_empty() {
        match user.split_once(':') {
            Some((name, password)) => (name.to_owned(), password.to_owned()),
            None => (user.to_owned(), crate::terminal::password("Password: ")?),
        }
    } else {
        (user.to_owned(), call.text("password").to_owned())
    };
    if !raw::is_text(&name) || !raw::is_text(&password) {
        return Err(no_text().with_code(BAD_CONNECTION));
    }
    // Nobody signs in without a name or a password.
    Ok(Some(Credentials { name, password }).filter(|user| !user.name.is_empty() && !user.password.is_empty()))
}

/// The client that the global flags describe.
///
/// # Errors
/// See [`options`]; certificates and endpoints that are none.
pub fn client(options: Options) -> Outcome<Client> {
    Client::connect(options).map_err(|error| match error {
        client::Error::Endpoint { .. } => Failure::from(error).with_code(BAD_ARGS),
        _ => Failure::from(error).with_code(BAD_CONNECTION),
    })
}

/// Gets the token of the user, if there is one: the stock tool makes no client
/// without it. It may take as long as a connection may.
///
/// # Errors
/// Whatever is the reason that there is none; the exit code is that of a client
/// that could not be made.
pub async fn sign_in(client: &Client) -> Outcome {
    let limit = Some(client.options().dial_timeout).filter(|limit| !limit.is_zero());
    let signed_in = client.with_request_timeout(limit).sign_in().await;
    signed_in.map_err(|error| Failure::from(error).with_code(BAD_CONNECTION))
}

/// What Go says to bytes in the place of text, when it makes a message of them.
pub fn no_text() -> Failure {
    let text = "rpc error: code = Internal desc = grpc: error while marshaling: string field contains invalid UTF-8";
    Failure::new(ERROR, text)
}
