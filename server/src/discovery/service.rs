//! The v3 discovery service: another cluster, in which the founders of this one register.
//!
//! Its keys are etcd's. `/_etcd/registry/TOKEN/_config/size` says how many founders there are;
//! whoever makes the token writes it. `/_etcd/registry/TOKEN/members/ID` is one founder, as
//! `--initial-cluster` would name it, and the first ones by their create revisions count.

use super::{NotFound, Unjoined};
use crate::log::{self, json};
use crate::options::{Options, initial_cluster};
use client::wire::etcdserverpb::WatchCreateRequest;
use client::{Client, KeyRange};
use disk::identity::member_id;
use disk::urls::{Url, texts};
use std::time::Duration;

/// Between two questions after one that failed: first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(64));

/// Which one, and how it is spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// `--discovery-token`; also the token of the cluster that is founded.
    pub(crate) token: String,
    /// All other flags.
    pub(crate) client: client::Options,
}

/// A founder that has registered.
struct Registered {
    since: i64,
    key: String,
    info: String,
}

/// All that is registered.
struct Registry {
    size: usize,
    members: Vec<Registered>,
    revision: i64,
}

type Field = (&'static str, serde_json::Value);

impl Service {
    fn prefix(&self) -> String {
        format!("/_etcd/registry/{}/members/", self.token)
    }

    fn fields(&self, more: &[Field]) -> Vec<Field> {
        let endpoints = self.client.endpoints.join(",");
        let whom = [("discovery-token", json!(self.token)), ("discovery-endpoints", json!(endpoints))];
        [&whom[..], more].concat()
    }

    fn say(&self, text: &str, more: &[Field]) {
        log::info(text, &self.fields(more));
    }

    /// Registers this member, and waits until all founders have, for ever.
    ///
    /// # Errors
    /// The token is of no use, or all places are taken.
    pub(super) async fn join(&self, options: &Options) -> Result<Vec<(String, Url)>, NotFound> {
        if let Some(tls) = &self.client.tls {
            for file in [&tls.ca, &tls.cert, &tls.key].into_iter().flatten() {
                let unread = |error| Unjoined::Unread { file: file.clone(), error };
                std::fs::File::open(file).map_err(unread)?;
            }
        }
        let client = Client::connect(self.client.clone()).map_err(Unjoined::Client)?;
        let mut urls = texts(&options.advertise_peer);
        urls.sort_unstable();
        let key = format!("{}{:x}", self.prefix(), member_id(&urls, &self.token));
        let info = urls.iter().map(|url| format!("{}={url}", options.name)).collect::<Vec<_>>().join(",");
        self.look(&client, &key).await?;
        self.register(&client, &key, &info).await;
        let mut registry = self.look(&client, &key).await?;
        if registry.members.len() < registry.size {
            registry = self.wait(&client, &key, registry).await?;
        }
        let cluster = registry.members.iter().map(|one| &one.info[..]).collect::<Vec<_>>().join(",");
        self.say("discovery joined cluster successfully", &[("cluster", json!(cluster))]);
        Ok(initial_cluster(&cluster)?)
    }

    /// Looks whether there is a place for the member of this key. Asks for as long as nobody
    /// answers.
    async fn look(&self, client: &Client, key: &str) -> Result<Registry, Unjoined> {
        let mut wait = BACKOFF.0;
        let mut registry = loop {
            match self.ask(client).await {
                Ok(registry) => break registry?,
                Err(error) => self.pause("cluster status check", &error, &mut wait).await,
            }
        };
        for Registered { key, info, .. } in &registry.members {
            let peer = [("memberKey", json!(key)), ("memberInfo", json!(info))];
            self.say("found peer from discovery service", &peer);
        }
        let has_place = registry.members.iter().take(registry.size).any(|one| one.key == key);
        if !has_place && registry.members.len() >= registry.size {
            return Err(Unjoined::Full);
        }
        registry.members.truncate(registry.size);
        Ok(registry)
    }

    /// The outer error: nobody answers. The inner one: the answer is of no use.
    async fn ask(&self, client: &Client) -> client::Result<Result<Registry, Unjoined>> {
        let Some(size) = client.get(format!("/_etcd/registry/{}/_config/size", self.token)).await? else {
            return Ok(Err(Unjoined::NoSize));
        };
        let size = std::str::from_utf8(&size.value).ok().and_then(|text| text.parse::<isize>().ok());
        let Some(size) = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0) else {
            return Ok(Err(Unjoined::BadSize));
        };
        let found = client.range(client::prefix(self.prefix())).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut members: Vec<Registered> = found
            .kvs
            .iter()
            .map(|kv| Registered { since: kv.create_revision, key: text(&kv.key), info: text(&kv.value) })
            .collect();
        members.sort_by_key(|one| one.since);
        let revision = found.header.unwrap_or_default().revision;
        Ok(Ok(Registry { size, members, revision }))
    }

    async fn pause(&self, reason: &str, error: &client::Error, wait: &mut Duration) {
        let why = [
            ("reason", json!(reason)),
            ("backoff", json!(format!("{}s", wait.as_secs()))),
            ("error", json!(error.to_string())),
        ];
        log::warn("retry connecting to discovery service", &self.fields(&why));
        tokio::time::sleep(*wait).await;
        *wait = (*wait * 2).min(BACKOFF.1);
    }

    async fn register(&self, client: &Client, key: &str, info: &str) {
        let mut wait = BACKOFF.0;
        while let Err(error) = client.put(key.to_string(), info.to_string()).await {
            self.pause("register member itself", &error, &mut wait).await;
        }
        let own = [("memberKey", json!(key)), ("memberInfo", json!(info))];
        self.say("register member itself successfully", &own);
    }

    /// Until there are as many as there shall be. A change is a reason to look again.
    async fn wait(&self, client: &Client, key: &str, mut registry: Registry) -> Result<Registry, Unjoined> {
        let mut wait = BACKOFF.0;
        let range: KeyRange = client::prefix(self.prefix());
        let mut changes = client.watch(WatchCreateRequest { start_revision: registry.revision + 1, ..range.into() });
        let count = |of: &Registry| [("clusterSize", json!(of.size)), ("found-peers", json!(of.members.len()))];
        while registry.members.len() < registry.size {
            self.say("waiting for peers from discovery service", &count(&registry));
            if let Err(error) = changes.next().await {
                self.pause("watch peers", &error, &mut wait).await;
            }
            registry = self.look(client, key).await?;
        }
        self.say("found all needed peers from discovery service", &count(&registry));
        Ok(registry)
    }
}
