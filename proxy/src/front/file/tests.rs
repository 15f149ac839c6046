use super::*;
use crate::front::config::{Check, Level, OnError, SendProxy};
use crate::front::span::Span;

/// Three members behind one address, as people write it.
const ETCD: &str = "\
global
    log /dev/log local0
    maxconn 4096
    daemon
    stats socket /run/haproxy/admin.sock mode 660 level admin

defaults
    mode tcp
    option tcplog
    option redispatch
    retries 3
    timeout connect 5s
    timeout client  1m   # long enough for keep-alives
    timeout server  1m

frontend etcd
    bind *:2379
    default_backend members

backend members
    balance roundrobin
    option tcp-check
    default-server inter 5s rise 3 fall 3
    server etcd1 10.0.0.1:2379 check
    server etcd2 10.0.0.2:2379 check weight 10 maxconn 500 slowstart 30s
    server etcd3 10.0.0.3:2379 check backup send-proxy-v2 on-marked-down shutdown-sessions

listen stats
    bind *:9000
    mode http
    stats enable
    stats uri /
    stats refresh 10s
    stats auth admin:secret
    stats admin if TRUE
";

fn of(text: &str) -> Loaded {
    parse("haproxy.cfg", text).unwrap_or_else(|refused| panic!("{refused}"))
}

fn refused(name: &str, text: &str) -> Vec<String> {
    parse(name, text).expect_err("it is wrong").0
}

#[test]
fn a_file_of_haproxy_is_read() {
    let Loaded { config, notes } = of(ETCD);
    assert_eq!(config.global.maxconn, Some(4096));
    let socket = &config.global.stats_socket[0];
    assert_eq!((socket.level, socket.mode.as_deref()), (Level::Admin, Some("660")));
    let [etcd, stats] = &config.frontends[..] else { panic!("{:?}", config.frontends) };
    assert_eq!((etcd.bind[0].address.as_str(), etcd.timeout_client), ("*:2379", Some(Span::seconds(60))));
    let page = stats.stats.as_ref().expect("a page");
    assert_eq!((page.uri.as_str(), page.admin, page.auth.len()), ("/", true, 1));
    let [members] = &config.backends[..] else { panic!("{:?}", config.backends) };
    assert_eq!((members.retries, members.redispatch, members.balance), (3, -1, Balance::Roundrobin));
    let [one, two, three] = &members.servers[..] else { panic!("{:?}", members.servers) };
    assert_eq!((one.inter, one.rise, one.fall, one.check), (Span::seconds(5), 3, 3, true));
    assert_eq!((two.weight, two.maxconn, two.slowstart), (10, Some(500), Some(Span::seconds(30))));
    assert_eq!((three.backup, three.send_proxy, three.shutdown_sessions), (true, SendProxy::V2, true));
    let lines: Vec<&str> = notes.iter().map(|note| note.split(": ").next().expect("a place")).collect();
    assert_eq!(lines, ["haproxy.cfg:2", "haproxy.cfg:4", "haproxy.cfg:9"]);
}

#[test]
fn what_is_converted_says_the_same() {
    let config = of(ETCD).config;
    let text = toml::to_string(&config).expect("it can be written");
    assert_eq!(parse("front.toml", &text).expect(&text).config, config, "{text}");
}

#[test]
fn before_api_servers() {
    let text = "\
defaults
    timeout connect 10s
frontend apiserver
    bind :6443
    mode tcp
    tcp-request inspect-delay 5s
    tcp-request content accept if { req.ssl_hello_type 1 }
    acl west req.ssl_sni -i api.west.example.com
    use_backend west if west
    use_backend east if { req.ssl_sni -m end .east.example.com }
    default_backend east
backend east
    mode tcp
    option httpchk
    http-check connect ssl
    http-check send meth GET uri /readyz hdr Host kubernetes
    http-check expect status 200
    balance leastconn
    server k1 10.0.0.1:6443 check verify none fastinter 500ms observe layer4 error-limit 3 on-error mark-down
    server k2 10.0.0.2:6443 check verify required ca-file /etc/kubernetes/pki/ca.crt check-sni kubernetes port 6444
backend west
    option httpchk GET /healthz
    server k3 [fd00::3]:6443 check
";
    let config = of(text).config;
    let front = &config.frontends[0];
    let routes: Vec<(&str, &str)> =
        front.use_backend.iter().map(|route| (route.sni[0].as_str(), route.backend.as_str())).collect();
    assert_eq!(routes, [("api.west.example.com", "west"), ("*.east.example.com", "east")]);
    let Check::Http(check) = &config.backends[0].check else { panic!("{:?}", config.backends[0].check) };
    assert_eq!((check.method.as_str(), check.uri.as_str(), check.expect.as_str()), ("GET", "/readyz", "200"));
    let [one, two] = &config.backends[0].servers[..] else { panic!("two servers") };
    assert_eq!((one.check_ssl, one.ca_file.as_deref(), one.on_error), (true, None, OnError::MarkDown));
    assert_eq!(two.check_address.as_deref(), Some("10.0.0.2:6444"));
    assert!(!config.backends[1].servers[0].check_ssl);
}

#[test]
fn what_is_not_understood_names_its_line_and_what_would_be_done() {
    let text = "\
frontend etcd
    bind *:2379 ssl crt /etc/a.pem
    http-request deny
    default_backend members
    timeout client 5 s
    timeout lunch 5s
backend members
    option mysql-check
    balance uri
    server a 10.0.0.1 check
    server b 10.0.0.1:2379 check cookie x
    server c 10.0.0.1:2379 weight 999
    server d 10.0.0.1:2379 check-ssl
    server d 10.0.0.1:2379 inter 0
    server e \"10.0.0.1:2379
peers mine
    peer a 10.0.0.1:1
";
    let wrongs = refused("h.cfg", text);
    let places: Vec<&str> = wrongs.iter().map(|wrong| wrong.split(": ").next().expect("a place")).collect();
    let lines = [2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16].map(|line| format!("h.cfg:{line}"));
    assert_eq!(places, lines, "{wrongs:#?}");
    assert_eq!(
        wrongs[0],
        "h.cfg:2: `ssl` of a `bind` is not understood; without it TLS would pass through to the servers, which have \
         certificates of their own"
    );
    assert!(wrongs[4].ends_with("without it servers would be taken in turn"), "{}", wrongs[4]);
}

#[test]
fn words_are_split_as_haproxy_does() {
    let _lock = ();
    let text = "frontend 'a'#x\n bind \"*:2379\" # comment\n default_backend b\\#c\nbackend b#c\n";
    let wrongs = refused("h.cfg", text);
    assert_eq!(wrongs.len(), 2, "{wrongs:#?}");
    assert!(wrongs[0].contains("no backend \"b#c\""), "{wrongs:#?}");
}

#[test]
fn toml_faults_have_their_line() {
    let wrong = refused("front.toml", "[[frontend]]\nname = \"a\"\nbinds = []\n");
    assert!(wrong[0].starts_with("front.toml:3: unknown field `binds`"), "{wrong:?}");
    let wrong = refused("front.toml", "[[backend]]\nname = \"a\"\n[backend.timeout]\nconnect = \"5 s\"\n");
    assert!(wrong[0].starts_with("front.toml:4: \"5 s\" is no span of time"), "{wrong:?}");
}

#[test]
fn what_does_not_hold_together_is_said_at_once() {
    let text = "\
[[frontend]]
name = \"a\"
bind = []
default-backend = \"x\"
maxconn = 0
[[frontend]]
name = \"a\"
bind = [{ address = \"here\" }]
mode = \"http\"
[[backend]]
name = \"b/c\"
[backend.check]
kind = \"http\"
uri = \"healthz\"
expect = \"fine\"
[[backend.server]]
name = \"s\"
address = \"*:1\"
weight = 300
rise = 0
";
    let wrongs = refused("front.toml", text).join("\n");
    for part in [
        "frontend \"a\" stands there twice",
        "frontend a: no `bind` says where to listen",
        "there is no backend \"x\"",
        "a limit of 0 would refuse everybody",
        "\"here\" is no host:port",
        "mode http is for the page of statistics alone",
        "backend \"b/c\": a name has no space",
        "\"fine\" are no codes of HTTP",
        "\"healthz\" is no path",
        "server s: \"*:1\" is no host:port",
        "server s: a weight is a number from 0 to 256",
        "server s: rise, fall and error-limit are at least 1",
    ] {
        assert!(wrongs.contains(part), "{part:?} is not in\n{wrongs}");
    }
}
