//! One `defaults`, `frontend`, `backend` or `listen` as its lines come in.

use super::server::{self, Extra};
use super::words::Line;
use super::{Fault, Taken};
use crate::front::config::{
    Backend, Balance, Bind, Check, Config, Frontend, HttpCheck, Mode, Route, Server, Stats, Timeouts,
};
use crate::front::span::Span;

/// A section, with what it has of the defaults.
#[derive(Debug)]
pub(crate) struct Draft {
    kind: String,
    name: String,
    /// Where it begins.
    pub(crate) line: usize,
    mode: Mode,
    maxconn: Option<u32>,
    rate: Option<u32>,
    client: Option<Span>,
    timeouts: Timeouts,
    retries: u32,
    redispatch: i32,
    balance: Balance,
    consistent: bool,
    allbackups: bool,
    check: Check,
    /// `http-check connect ssl`: of all servers.
    checks_speak_tls: bool,
    template: Server,
    template_extra: Extra,
    binds: Vec<Bind>,
    default_backend: Option<String>,
    /// Conditions by name: names of TLS.
    conditions: Vec<(String, Vec<String>)>,
    routes: Vec<(usize, Route)>,
    inspect_delay: Option<Span>,
    servers: Vec<Server>,
    stats: Option<Stats>,
    disabled: bool,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            kind: "defaults".into(),
            name: String::new(),
            line: 0,
            mode: Mode::Tcp,
            maxconn: None,
            rate: None,
            client: None,
            timeouts: Timeouts::default(),
            retries: 3,
            redispatch: 0,
            balance: Balance::Roundrobin,
            consistent: false,
            allbackups: false,
            check: Check::Tcp,
            checks_speak_tls: false,
            template: Server::new("", ""),
            template_extra: Extra::default(),
            binds: Vec::new(),
            default_backend: None,
            conditions: Vec::new(),
            routes: Vec::new(),
            inspect_delay: None,
            servers: Vec::new(),
            stats: None,
            disabled: false,
        }
    }
}

/// What passes as bytes is not looked into.
const BYTES: &str = "bytes would pass as they are";

impl Draft {
    /// A section that begins with these defaults.
    pub(crate) fn begin(&self, kind: &str, name: &str, line: usize) -> Draft {
        Draft {
            kind: kind.into(),
            name: name.into(),
            line,
            mode: self.mode,
            maxconn: self.maxconn,
            rate: self.rate,
            client: self.client,
            timeouts: self.timeouts,
            retries: self.retries,
            redispatch: self.redispatch,
            balance: self.balance,
            consistent: self.consistent,
            allbackups: self.allbackups,
            check: self.check.clone(),
            checks_speak_tls: self.checks_speak_tls,
            template: self.template.clone(),
            template_extra: self.template_extra.copy(),
            default_backend: self.default_backend.clone(),
            ..Draft::default()
        }
    }

    /// A frontend and a backend may have one name; a listen is both.
    pub(crate) fn clashes(&self, kind: &str, name: &str) -> bool {
        self.name == name && (self.kind == kind || self.kind == "listen" || kind == "listen")
    }

    fn is_front(&self) -> bool {
        self.kind != "backend"
    }

    fn is_back(&self) -> bool {
        self.kind != "frontend"
    }

    /// Takes a line.
    pub(crate) fn directive(&mut self, line: &Line) -> Taken {
        let word = line.word(0);
        match word {
            "mode" => {
                self.mode = match line.wanted(1, "tcp or http")? {
                    "tcp" => Mode::Tcp,
                    "http" => Mode::Http,
                    other => return Err(Fault::new(format!("`mode` is tcp or http, not `{other}`"))),
                };
            }
            "timeout" => return self.timeout(line),
            "option" => return self.option(line),
            "no" if line.word(1) == "option" => return self.no_option(line),
            "retries" => self.retries = line.number_at(1, 0..=1_000)?,
            "balance" if self.is_back() => self.balance = balance(line)?,
            "hash-type" => self.consistent = hash_type(line)?,
            "default-server" => server::words(&mut self.template, &mut self.template_extra, line, 1)?,
            "server" if self.is_back() => self.server(line)?,
            "bind" if self.is_front() => self.bind(line)?,
            "maxconn" => self.maxconn = Some(line.number_at(1, 1..=10_000_000)?),
            "rate-limit" if line.word(1) == "sessions" => self.rate = Some(line.number_at(2, 1..=10_000_000)?),
            "default_backend" if self.is_front() => {
                self.default_backend = Some(line.wanted(1, "a backend")?.to_owned());
            }
            "use_backend" if self.is_front() => self.use_backend(line)?,
            "acl" => self.condition(line)?,
            "tcp-request" => return self.tcp_request(line),
            "http-check" => self.http_check(line)?,
            "tcp-check" if line.word(1) == "connect" && line.words.len() == 2 => {}
            "stats" => return self.statistics(line),
            "http-request" if line.word(1) == "use-service" && line.word(2) == "prometheus-exporter" => {
                self.exporter(line)?;
            }
            "disabled" => self.disabled = true,
            "enabled" => self.disabled = false,
            _ => return meaningless(word).map_or_else(|| Err(self.unknown(line)), |why| Ok(Some(why))),
        }
        Ok(None)
    }

    fn timeout(&mut self, line: &Line) -> Taken {
        let span = line.span_at(2)?;
        match line.word(1) {
            "connect" => self.timeouts.connect = span,
            "client" => self.client = Some(span),
            "server" => self.timeouts.server = Some(span),
            "queue" => self.timeouts.queue = Some(span),
            "check" => self.timeouts.check = Some(span),
            "tunnel" => self.timeouts.tunnel = Some(span),
            "http-request" | "http-keep-alive" | "client-fin" | "server-fin" | "tarpit" => {
                return Ok(Some("it is about HTTP, or about closing, which the two ends do themselves"));
            }
            other => return Err(Fault::new(format!("there is no `timeout {other}`"))),
        }
        Ok(None)
    }

    fn option(&mut self, line: &Line) -> Taken {
        match line.word(1) {
            "redispatch" => {
                let at = line.word(2);
                self.redispatch = if at.is_empty() { -1 } else { at.parse().map_err(|_| redispatch(at))? };
            }
            "tcp-check" => self.check = Check::Tcp,
            "ssl-hello-chk" => self.check = Check::Tls,
            "httpchk" => {
                let mut check = HttpCheck::default();
                match &line.words[2..] {
                    [] => {}
                    [uri] => check.uri.clone_from(uri),
                    [method, uri, ..] => (check.method, check.uri) = (method.clone(), uri.clone()),
                }
                // Behind the version old files carry a header.
                let rest = line.words.get(4).map_or("", String::as_str);
                if let Some((_, host)) = rest.split_once("Host:") {
                    check.host = Some(host.trim().to_owned());
                }
                self.check = Check::Http(check);
            }
            "allbackups" => self.allbackups = true,
            "tcplog"
            | "httplog"
            | "dontlognull"
            | "dontlog-normal"
            | "log-health-checks"
            | "log-separate-errors"
            | "logasap" => return Ok(Some("the log says each change of a server, and no connection that went well")),
            "tcpka" | "clitcpka" | "srvtcpka" => return Ok(Some("both sides are always asked whether they live")),
            "tcp-smart-accept" | "tcp-smart-connect" | "splice-auto" | "splice-request" | "splice-response"
            | "contstats" | "abortonclose" | "nolinger" => return Ok(Some("it sets how HAProxy itself works")),
            "httpclose" | "http-server-close" | "http-keep-alive" | "forwardfor" => {
                if self.mode == Mode::Http {
                    return Ok(Some("the page of statistics needs none of it"));
                }
                return Err(Fault::new(format!("`option {}` is about HTTP", line.word(1))).without(BYTES));
            }
            "" => return Err(Fault::new("`option` wants a word")),
            other => {
                let without = match other {
                    "ldap-check" | "mysql-check" | "pgsql-check" | "redis-check" | "smtpchk" | "external-check" => {
                        "a server would be up when it takes a connection"
                    }
                    _ => "connections would be passed on as if the line were not there",
                };
                return Err(Fault::new(format!("`option {other}` is not understood")).without(without));
            }
        }
        Ok(None)
    }

    fn no_option(&mut self, line: &Line) -> Taken {
        match line.word(2) {
            "redispatch" => self.redispatch = 0,
            "allbackups" => self.allbackups = false,
            _ => {}
        }
        Ok(None)
    }

    fn server(&mut self, line: &Line) -> Result<(), Fault> {
        let name = line.wanted(1, "a name")?;
        let address = address(line.wanted(2, "an address")?)?;
        if self.servers.iter().any(|other| other.name == name) {
            return Err(Fault::new(format!("there is a server `{name}` already")));
        }
        let mut server = Server { name: name.to_owned(), address, ..self.template.clone() };
        let mut extra = self.template_extra.copy();
        server::words(&mut server, &mut extra, line, 3)?;
        server.check_ssl |= self.checks_speak_tls;
        server::finish(&mut server, &extra)?;
        self.servers.push(server);
        Ok(())
    }

    fn bind(&mut self, line: &Line) -> Result<(), Fault> {
        let mut accept_proxy = false;
        let mut at = 2;
        while at < line.words.len() {
            match line.word(at) {
                "accept-proxy" => accept_proxy = true,
                "v4v6" | "v6only" | "transparent" | "defer-accept" | "tfo" => {}
                "name" | "backlog" | "process" | "thread" | "interface" | "mss" | "tcp-ut" | "nice" | "id" => at += 1,
                "ssl" | "crt" | "ca-file" | "verify" | "alpn" | "crl-file" => {
                    return Err(Fault::new("`ssl` of a `bind` is not understood")
                        .without("TLS would pass through to the servers, which have certificates of their own"));
                }
                other => {
                    return Err(Fault::new(format!("`{other}` of a `bind` is not understood"))
                        .without("the address would be opened as if the word were not there"));
                }
            }
            at += 1;
        }
        for one in line.wanted(1, "an address")?.split(',') {
            self.binds.push(Bind { address: address(one)?, accept_proxy });
        }
        Ok(())
    }

    /// `acl NAME req.ssl_sni [-i] NAME …`
    fn condition(&mut self, line: &Line) -> Result<(), Fault> {
        let name = line.wanted(1, "a name")?;
        let names = sni(&line.words[2..]).ok_or_else(|| self.no_condition(&line.words[2..]))?;
        match self.conditions.iter_mut().find(|(other, _)| other == name) {
            Some((_, all)) => all.extend(names),
            None => self.conditions.push((name.to_owned(), names)),
        }
        Ok(())
    }

    fn no_condition(&self, words: &[String]) -> Fault {
        Fault::new(format!("the condition `{}` is not understood; `req.ssl_sni -i NAME` is", words.join(" ")))
            .without("connections would go to the default backend")
    }

    fn use_backend(&mut self, line: &Line) -> Result<(), Fault> {
        let backend = line.wanted(1, "a backend")?.to_owned();
        let words = &line.words[2..];
        let inner = |words: &[String]| -> Option<Vec<String>> {
            let words: Vec<String> =
                words.iter().filter(|word| !["{", "}"].contains(&word.as_str())).cloned().collect();
            sni(&words)
        };
        let sni = match words {
            [] => {
                // Without a condition it is the last word.
                self.default_backend = Some(backend);
                return Ok(());
            }
            [when, name] if when == "if" => {
                let known = self.conditions.iter().find(|(other, _)| other == name).map(|(_, names)| names.clone());
                known.ok_or_else(|| Fault::new(format!("no condition is called `{name}`")))?
            }
            [when, rest @ ..] if when == "if" => inner(rest).ok_or_else(|| self.no_condition(rest))?,
            _ => return Err(self.no_condition(words)),
        };
        self.routes.push((line.number, Route { sni, backend }));
        Ok(())
    }

    fn tcp_request(&mut self, line: &Line) -> Taken {
        if line.word(1) == "inspect-delay" {
            self.inspect_delay = Some(line.span_at(2)?);
            return Ok(None);
        }
        let rest = line.words[1..].join(" ");
        if rest.starts_with("content accept if") && rest.contains("ssl_hello_type 1") {
            return Ok(Some("where names choose a backend, the first message of TLS is waited for"));
        }
        Err(Fault::new(format!("`tcp-request {rest}` is not understood")).without("every connection would be accepted"))
    }

    fn http_check(&mut self, line: &Line) -> Result<(), Fault> {
        if line.word(1) == "connect" {
            for word in &line.words[2..] {
                match word.as_str() {
                    "ssl" => self.checks_speak_tls = true,
                    "default" | "linger" => {}
                    other => {
                        return Err(Fault::new(format!("`http-check connect {other}` is not understood"))
                            .without("checks would connect as connections of clients do"));
                    }
                }
            }
            return Ok(());
        }
        let Check::Http(check) = &mut self.check else {
            return Err(Fault::new("`http-check` stands behind `option httpchk`"));
        };
        match line.word(1) {
            "send" => {
                let mut at = 2;
                while at < line.words.len() {
                    match (line.word(at), line.word(at + 1)) {
                        ("meth", method) => check.method = method.to_owned(),
                        ("uri", uri) => check.uri = uri.to_owned(),
                        ("ver", _) => {}
                        ("hdr", name) if name.eq_ignore_ascii_case("host") => {
                            check.host = Some(line.word(at + 2).to_owned());
                            at += 1;
                        }
                        (other, _) => {
                            return Err(Fault::new(format!("`http-check send {other}` is not understood"))
                                .without("checks would not send it"));
                        }
                    }
                    at += 2;
                }
            }
            "expect" if line.word(2) == "status" => {
                let was = std::mem::replace(&mut check.expect, line.wanted(3, "codes, as 200")?.to_owned());
                if check.expected().is_none() {
                    let wrong = std::mem::replace(&mut check.expect, was);
                    return Err(Fault::new(format!("`{wrong}` are no codes of HTTP, as 200 or 200-399")));
                }
            }
            "expect" => {
                return Err(Fault::new(format!("`http-check {}` is not understood", line.words[1..].join(" ")))
                    .without("any code from 200 to 399 would be right"));
            }
            other => {
                return Err(Fault::new(format!("`http-check {other}` is not understood"))
                    .without("the check would be asked as if the line were not there"));
            }
        }
        Ok(())
    }

    fn page(&mut self) -> &mut Stats {
        self.stats.get_or_insert_with(|| Stats {
            uri: "/haproxy?stats".into(),
            refresh: None,
            auth: Vec::new(),
            admin: false,
            hide_version: false,
            metrics: "/metrics".into(),
        })
    }

    fn statistics(&mut self, line: &Line) -> Taken {
        match line.word(1) {
            "enable" => drop(self.page()),
            "uri" => self.page().uri = line.wanted(2, "a path")?.to_owned(),
            "refresh" => self.page().refresh = Some(line.span_at(2)?),
            "auth" => {
                let both = line.wanted(2, "user:password")?.to_owned();
                if !both.contains(':') {
                    return Err(Fault::new("`stats auth` wants user:password"));
                }
                self.page().auth.push(both);
            }
            "admin" if line.words[2..] == ["if", "TRUE"] => self.page().admin = true,
            "admin" => {
                return Err(Fault::new(format!("`stats {}` is not understood", line.words[1..].join(" ")))
                    .without("nothing could be changed on the page"));
            }
            "hide-version" => self.page().hide_version = true,
            "realm" | "show-legends" | "show-desc" | "show-node" | "show-modules" | "scope" => {
                self.page();
                return Ok(Some("the page has one form"));
            }
            other => return Err(Fault::new(format!("`stats {other}` is not understood"))),
        }
        Ok(None)
    }

    /// `http-request use-service prometheus-exporter if { path /metrics }`
    fn exporter(&mut self, line: &Line) -> Result<(), Fault> {
        let words: Vec<&str> =
            line.words[3..].iter().map(String::as_str).filter(|word| !["if", "{", "}"].contains(word)).collect();
        match words[..] {
            ["path", path] => {
                // The page itself may be off.
                let has_page = self.stats.is_some();
                let page = self.page();
                page.metrics = path.to_owned();
                if !has_page {
                    page.uri = String::new();
                }
                Ok(())
            }
            _ => Err(Fault::new("the exporter wants `if { path /metrics }`")),
        }
    }

    fn unknown(&self, line: &Line) -> Fault {
        let word = line.word(0);
        let of = if self.kind == "defaults" { "defaults".to_owned() } else { format!("{} {}", self.kind, self.name) };
        let without = match word {
            "http-request"
            | "http-response"
            | "http-after-response"
            | "compression"
            | "redirect"
            | "errorfile"
            | "errorloc"
            | "capture"
            | "cookie"
            | "reqadd"
            | "rspadd"
            | "monitor-uri"
            | "filter" => BYTES,
            "stick-table" | "stick" => "clients would stay at a server with `balance source` alone",
            "tcp-response" | "tcp-check" => "the front would not look at what is sent",
            "fullconn" | "backlog" => "the limits of the servers would hold alone",
            _ => "connections would be passed on as if the line were not there",
        };
        Fault::new(format!("`{word}` in `{of}` is not understood")).without(without)
    }

    /// Adds what the section says; what is wrong with it as a whole.
    pub(crate) fn into(self, config: &mut Config) -> Vec<Fault> {
        let mut faults = Vec::new();
        let is_page = self.stats.is_some();
        let name = self.name.clone();
        if self.is_back() && !(self.servers.is_empty() && is_page) {
            if self.mode == Mode::Http {
                faults.push(
                    Fault::new(format!("`{} {name}` has `mode http`: HTTP is not looked into", self.kind))
                        .without("bytes would pass as with `mode tcp`, which carries HTTP as well"),
                );
            }
            config.backends.push(Backend {
                name: name.clone(),
                balance: self.balance,
                consistent: self.consistent,
                retries: self.retries,
                redispatch: self.redispatch,
                allbackups: self.allbackups,
                timeout: self.timeouts,
                check: self.check.clone(),
                servers: self.servers.clone(),
            });
        }
        if self.is_front() {
            if self.mode == Mode::Http && !is_page {
                faults.push(
                    Fault::new(format!("`{} {name}` has `mode http` and no page: HTTP is not looked into", self.kind))
                        .without("bytes would pass as with `mode tcp`, which carries HTTP as well"),
                );
            }
            let own = (self.kind == "listen" && !is_page).then(|| name.clone());
            config.frontends.push(Frontend {
                name,
                mode: if is_page { Mode::Http } else { self.mode },
                bind: self.binds,
                maxconn: self.maxconn,
                rate_limit_sessions: self.rate,
                rate_limit_source: None,
                timeout_client: self.client,
                inspect_delay: self.inspect_delay,
                use_backend: self.routes.into_iter().map(|(_, route)| route).collect(),
                default_backend: if is_page { None } else { own.or(self.default_backend) },
                stats: self.stats,
                disabled: self.disabled,
            });
        }
        faults
    }
}

fn redispatch(word: &str) -> Fault {
    Fault::new(format!("`option redispatch` is followed by a number, not `{word}`"))
}

fn balance(line: &Line) -> Result<Balance, Fault> {
    Ok(match line.wanted(1, "a way to choose")? {
        "roundrobin" | "static-rr" => Balance::Roundrobin,
        "leastconn" => Balance::Leastconn,
        "source" => Balance::Source,
        "first" => Balance::First,
        word if word == "random" || word.starts_with("random(") => Balance::Random,
        // Ours.
        "leader" => Balance::Leader,
        "nearest" => Balance::Nearest,
        other => {
            return Err(
                Fault::new(format!("`balance {other}` is not understood")).without("servers would be taken in turn")
            );
        }
    })
}

fn hash_type(line: &Line) -> Result<bool, Fault> {
    match line.wanted(1, "consistent or map-based")? {
        "consistent" => Ok(true),
        "map-based" => Ok(false),
        other => Err(Fault::new(format!("`hash-type {other}` is not understood"))),
    }
}

/// The names of `req.ssl_sni [-i] [-m str|end] NAME …`.
fn sni(words: &[String]) -> Option<Vec<String>> {
    let (first, rest) = words.split_first()?;
    if !["req.ssl_sni", "req_ssl_sni", "ssl_fc_sni"].contains(&first.as_str()) {
        return None;
    }
    let (mut end, mut names) = (false, Vec::new());
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" => {}
            "-m" => match rest.next()?.as_str() {
                "str" => {}
                "end" => end = true,
                _ => return None,
            },
            word if word.starts_with('-') => return None,
            name if end => names.push(format!("*{name}")),
            name => names.push(name.to_owned()),
        }
    }
    // The end of a name is a step of it, as `.example.com`.
    let fits = |name: &String| !name.starts_with('*') || name.starts_with("*.");
    (!names.is_empty() && names.iter().all(fits)).then_some(names)
}

/// `host:port`, without the kind that may stand before it.
fn address(word: &str) -> Result<String, Fault> {
    let bare = ["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@"].iter().find_map(|kind| word.strip_prefix(kind));
    let bare = bare.unwrap_or(word);
    let (host, port) = bare.rsplit_once(':').ok_or_else(|| no_address(word))?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_host =
        !host.contains(['/', '@', ' ']) && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    if is_port && is_host { Ok(bare.to_owned()) } else { Err(no_address(word)) }
}

fn no_address(word: &str) -> Fault {
    Fault::new(format!("`{word}` is no `host:port`"))
}

/// Why a directive that is understood changes nothing.
fn meaningless(word: &str) -> Option<&'static str> {
    Some(match word {
        "log" | "log-format" | "log-tag" | "unique-id-format" | "error-log-format" => {
            "lines of the log go to standard error, as JSON"
        }
        "description" | "id" | "guid" => "nothing needs it",
        "load-server-state-from-file" => "what is known of servers goes over a reload by itself",
        "errorfile" | "errorfiles" => "the page of statistics has its own texts",
        "monitor-net" => "the front answers nobody itself",
        "external-check" => "no program is run",
        _ => return None,
    })
}
