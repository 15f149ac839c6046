//! `make-mirror`.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use client::{
    Client, Credentials, Options, Tls,
    wire::{
        etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op::Request},
        mvccpb::{Event, KeyValue, event::EventType},
    },
};

use cobra::Flag;
use indicatif::ProgressBar;

use super::headings::UTILITY;
use crate::{
    call::{Call, Command},
    connect,
    exit::{Failure, Outcome},
    progress,
};

/// How often the number of keys written is shown.
const REPORT: Duration = Duration::from_secs(30);
/// What the bar says: before the changes, with them, without the destination.
const COPYING: &str = "copying";
const FOLLOWING: &str = "following";
const WAITING: &str = "no answer";
/// Keys in one read of what is there already.
const PAGE: i64 = 1000;

/// The row of the table.
pub const MAKE_MIRROR: Command = Command {
    name: "make-mirror",
    raw: true,
    usage: "make-mirror [options] <destination>",
    group: UTILITY,
    short: "Copies keys to another cluster, and goes on with each change",
    flags: &[
        Flag::text("dest-cacert", "", "certificates of the authorities that may vouch for the destination"),
        Flag::text("dest-cert", "", "this client's certificate for the destination"),
        Flag::switch_on("dest-insecure-transport", "connect to the destination without TLS"),
        Flag::text("dest-key", "", "the key of --dest-cert"),
        Flag::text("dest-password", "", "password of --dest-user"),
        Flag::text("dest-prefix", "", "what stands in the destination in the place of --prefix"),
        Flag::text("dest-user", "", "username[:password] at the destination"),
        Flag::uint("max-txn-ops", "128", "at most so many changes in one transaction"),
        Flag::switch("no-dest-prefix", "leave --prefix away in the destination"),
        Flag::text("prefix", "", "only keys that begin like this"),
        Flag::int("rev", "0", "begin with the changes of this revision, without what was there before"),
    ],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let [destination] = call.exactly("make-mirror takes one destination argument")?;
    if !call.text("dest-prefix").is_empty() && call.switch("no-dest-prefix") {
        return Err(Failure::bad_args(
            "`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one",
        ));
    }
    call.prepare()?;
    let there = connect::client(destination_options(call, destination)?)?.with_request_timeout(None);
    call.sign_in(&there)?;
    let here = call.connect()?.with_request_timeout(None);
    let prefix = call.text("prefix");
    let to = match call.text("dest-prefix") {
        _ if call.switch("no-dest-prefix") => "",
        "" => prefix,
        to => to,
    };
    let mirror = Mirror {
        here,
        there,
        prefix: crate::raw::bytes(prefix),
        to: crate::raw::bytes(to),
        most: usize::try_from(call.uint("max-txn-ops")).unwrap_or(usize::MAX).max(1),
        written: AtomicU64::new(0),
        bar: progress::keys(call, COPYING),
    };
    let ended = call.block_on(async {
        tokio::select! {
            ended = mirror.run(call.int("rev")) => ended,
            never = mirror.report() => never,
        }
    });
    mirror.bar.finish_and_clear();
    ended
}

fn destination_options(call: &Call, destination: &str) -> Outcome<Options> {
    let path = |name: &str| Some(call.text(name)).filter(|p| !p.is_empty()).map(Into::into);
    let tls = Tls {
        ca: path("dest-cacert"),
        cert: path("dest-cert"),
        key: path("dest-key"),
        insecure_skip_verify: false,
        server_name: None,
    };
    let given = tls.ca.is_some() || tls.cert.is_some() || tls.key.is_some();
    let encrypted = given || !call.switch("dest-insecure-transport");
    let user = call.text("dest-user");
    let user = match (user.is_empty(), call.text("dest-password")) {
        (true, _) => None,
        (false, "") => Some(match user.split_once(':') {
            Some((name, password)) => Credentials { name: name.to_owned(), password: password.to_owned() },
            None => {
                Credentials { name: user.to_owned(), password: crate::terminal::password("Destination Password: ")? }
            }
        }),
        (false, password) => Some(Credentials { name: user.to_owned(), password: password.to_owned() }),
    };
    Ok(Options {
        endpoints: vec![destination.to_owned()],
        tls: encrypted.then_some(tls),
        user,
        token: None,
        ..connect::options_of_nobody(call)?
    })
}

struct Mirror {
    here: Client,
    there: Client,
    prefix: Vec<u8>,
    to: Vec<u8>,
    most: usize,
    written: AtomicU64,
    /// What people see.
    bar: ProgressBar,
}

impl Mirror {
    /// Copies until something fails that will not pass.
    async fn run(&self, revision: i64) -> Outcome {
        let next = if revision > 1 { revision } else { self.copy().await? + 1 };
        progress::endless(&self.bar, FOLLOWING);
        let range = client::prefix(self.prefix.clone());
        let mut watcher =
            self.here.watch(client::wire::etcdserverpb::WatchCreateRequest { start_revision: next, ..range.into() });
        loop {
            let batch = watcher.next().await?;
            // A transaction holds changes of one revision only, so that the
            // destination's keys change in the same steps.
            for revision in batch.events.chunk_by(|a, b| mod_revision(a) == mod_revision(b)) {
                for ops in revision.chunks(self.most) {
                    let success = ops.iter().map(|event| self.change(event)).collect();
                    self.write(TxnRequest { success, ..Default::default() }).await?;
                    self.wrote(ops.len() as u64);
                }
            }
        }
    }

    /// Copies what is there; gives back the revision that this was.
    async fn copy(&self) -> Outcome<i64> {
        let whole = client::prefix(self.prefix.clone());
        let mut request = RangeRequest { limit: PAGE, ..whole.into() };
        loop {
            let page = self.here.range(request.clone()).await?;
            // All pages are of the first one's revision.
            if request.revision == 0 {
                request.revision = page.header.unwrap_or_default().revision;
                self.bar.set_length(u64::try_from(page.count).unwrap_or(0));
            }
            for kv in &page.kvs {
                self.write(TxnRequest { success: vec![self.put(kv)], ..Default::default() }).await?;
                self.wrote(1);
            }
            match page.kvs.last() {
                Some(last) if page.more => request.key = [&last.key[..], b"\0"].concat().into(),
                _ => return Ok(request.revision),
            }
        }
    }

    /// Writes to the destination for as long as it takes. To write the same
    /// again changes nothing, so that an unknown outcome is no obstacle.
    async fn write(&self, request: TxnRequest) -> Outcome {
        let message = self.bar.message();
        loop {
            match self.there.txn(request.clone()).await {
                Ok(_) => {
                    self.bar.set_message(message);
                    return Ok(());
                }
                Err(error) if passes(&error) => {
                    self.bar.set_message(WAITING);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wrote(&self, keys: u64) {
        self.written.fetch_add(keys, Ordering::Relaxed);
        self.bar.inc(keys);
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        let rest = key.strip_prefix(self.prefix.as_slice()).unwrap_or(key);
        [self.to.as_slice(), rest].concat()
    }

    fn put(&self, kv: &KeyValue) -> RequestOp {
        let put = PutRequest { key: self.key(&kv.key).into(), value: kv.value.clone(), ..Default::default() };
        RequestOp { request: Some(Request::RequestPut(put)) }
    }

    fn change(&self, event: &Event) -> RequestOp {
        let kv = event.kv.clone().unwrap_or_default();
        match event.r#type() {
            EventType::Put => self.put(&kv),
            EventType::Delete => {
                let delete = DeleteRangeRequest { key: self.key(&kv.key).into(), ..Default::default() };
                RequestOp { request: Some(Request::RequestDeleteRange(delete)) }
            }
        }
    }

    async fn report(&self) -> Outcome {
        loop {
            tokio::time::sleep(REPORT).await;
            self.bar.suspend(|| crate::say(&format!("{}\n", self.written.load(Ordering::Relaxed))))?;
        }
    }
}

fn mod_revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn passes(error: &client::Error) -> bool {
    use client::wire::Code;
    match error {
        client::Error::Lost { .. } | client::Error::Unreachable { .. } | client::Error::Timeout { .. } => true,
        client::Error::Server { code, .. } => matches!(code, Code::Unavailable | Code::DeadlineExceeded),
        _ => false,
    }
}
