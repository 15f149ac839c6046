//! The tree as lines or as JSON, written as it is read: what is in memory is
//! one page of each level on the way down.

use std::collections::VecDeque;

use client::{Client, wire::etcdserverpb::RangeRequest};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    level::{Level, PAGE, Row},
    plan::{Plan, is_compacted},
    show,
};
use crate::{
    commands::admin::gofmt,
    exit::{ERROR, Failure, Outcome},
    print::{Format, json, unsupported},
};

/// Counts and sizes that are asked for at once.
const AT_ONCE: usize = 8;

/// What to write.
#[derive(Debug)]
pub struct Tree {
    /// Of which keys.
    pub plan: Plan,
    /// Levels, at least 1.
    pub depth: usize,
    /// Rows of each level, at least 1.
    pub limit: usize,
    /// Whether values are read for their sizes.
    pub sizes: bool,
}

/// Where the text goes.
type Out<'o> = &'o mut dyn FnMut(&str) -> Outcome;

/// A row, and what was asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    row: Row,
    /// Keys of a branch; bytes of a leaf's value.
    amount: Option<u64>,
}

/// A level under way.
struct Open {
    level: Level,
    rows: VecDeque<Known>,
    /// Rows that may yet be read.
    room: usize,
    /// Whether rows were read that may not be written.
    cut: bool,
}

impl Tree {
    /// Reads, and writes lines or JSON piece by piece.
    ///
    /// # Errors
    /// If there is no such form, a read fails, the revision is compacted away meanwhile, or
    /// standard output is closed.
    pub async fn write(&self, client: &Client, format: Format, out: Out<'_>) -> Outcome {
        let mut paper = match format {
            Format::Simple => Paper::Lines,
            // YAML is made of the JSON.
            Format::Json | Format::Yaml => Paper::Json { first: true },
            Format::Fields => return Err(unsupported("fields")),
            Format::Table => return Err(unsupported("table")),
            Format::Protobuf => return Err(unsupported("protobuf")),
        };
        let all = client.range(self.plan.count(&self.plan.prefix, 0)).await?;
        let revision = all.header.unwrap_or_default().revision;
        if revision == 0 {
            return Err(Failure::new(ERROR, "the answer does not say of which revision it is"));
        }
        out(&paper.begin(&self.plan.prefix, revision, amount(all.count)))?;
        let mut path = vec![self.open(&self.plan.prefix)];
        loop {
            let depth = path.len();
            let Some(here) = path.last_mut() else { break };
            // Without room for a row it is read on until there is one, or none.
            if here.rows.is_empty() && !here.cut {
                self.read(client, here, revision).await?;
            }
            let Some(known) = here.rows.pop_front() else {
                if here.cut || here.level.is_whole() {
                    out(&paper.end(depth, here.cut))?;
                    path.pop();
                }
                continue;
            };
            let opens = known.row.branch && depth < self.depth;
            out(&paper.row(depth, here.level.stem(), &known, opens))?;
            if opens {
                path.push(self.open(&known.row.key));
            }
        }
        if format == Format::Simple { Ok(()) } else { out("\n") }
    }

    fn open(&self, prefix: &[u8]) -> Open {
        Open { level: Level::new(prefix, &self.plan.separator), rows: VecDeque::new(), room: self.limit, cut: false }
    }

    /// Reads the next page of a level, and what is to be said about its rows.
    async fn read(&self, client: &Client, open: &mut Open, revision: i64) -> Outcome {
        let Some(request) = open.level.request(PAGE, revision) else { return Ok(()) };
        let page = ask(client, self.plan.consistent(request)).await?;
        let mut rows = open.level.take(page.kvs.iter().map(|kv| &kv.key[..]), page.more);
        if rows.len() > open.room {
            rows.truncate(open.room);
            open.cut = true;
        }
        open.room -= rows.len();
        let known = rows.into_iter().map(|row| self.learn(client, row, revision));
        open.rows = stream::iter(known).buffered(AT_ONCE).try_collect().await?;
        Ok(())
    }

    async fn learn(&self, client: &Client, row: Row, revision: i64) -> Outcome<Known> {
        let amount = if row.branch {
            Some(amount(ask(client, self.plan.count(&row.key, revision)).await?.count))
        } else if self.sizes {
            let found = ask(client, self.plan.value(&row.key, revision)).await?;
            found.kvs.first().map(|kv| kv.value.len() as u64)
        } else {
            None
        };
        Ok(Known { row, amount })
    }
}

fn amount(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

async fn ask(client: &Client, request: RangeRequest) -> Outcome<client::wire::etcdserverpb::RangeResponse> {
    let revision = request.revision;
    client.range(request).await.map_err(|error| match is_compacted(&error) {
        true => {
            let text = format!("revision {revision} was compacted away while the tree was read: run the command again");
            Failure::new(ERROR, text)
        }
        false => error.into(),
    })
}

/// The two forms.
enum Paper {
    Lines,
    Json {
        /// Whether the next row is the first of its list.
        first: bool,
    },
}

impl Paper {
    fn begin(&mut self, prefix: &[u8], revision: i64, count: u64) -> String {
        match self {
            Paper::Lines => {
                let name = if prefix.is_empty() { "all keys".to_owned() } else { show::name(prefix) };
                format!("{name}  ({}, revision {revision})\n", keys(count))
            }
            Paper::Json { first } => {
                *first = true;
                let prefix = json::bytes(prefix);
                format!("{{\"revision\":{revision},\"prefix\":{prefix},\"count\":{count},\"rows\":[")
            }
        }
    }

    /// One row; `opens` if those of its own level follow.
    fn row(&mut self, depth: usize, stem: usize, known: &Known, opens: bool) -> String {
        let Known { row, amount } = known;
        let name = &row.key[stem.min(row.key.len())..];
        match self {
            Paper::Lines => {
                let amount = match amount {
                    Some(count) if row.branch => format!("  ({})", keys(*count)),
                    Some(bytes) => format!("  ({})", gofmt::size(*bytes)),
                    None => String::new(),
                };
                format!("{}{}{amount}\n", "  ".repeat(depth), show::name(name))
            }
            Paper::Json { first } => {
                let mut object = json::Object::new();
                object
                    .text("name", &show::name(name))
                    .raw("key", &json::bytes(&row.key))
                    .some_switch("branch", row.branch);
                if let Some(amount) = amount {
                    object.number(if row.branch { "count" } else { "size" }, *amount);
                }
                let comma = if std::mem::replace(first, opens) { "" } else { "," };
                let object = object.finish();
                match object.strip_suffix('}').filter(|_| opens) {
                    Some(object) => format!("{comma}{object},\"rows\":["),
                    None => format!("{comma}{object}"),
                }
            }
        }
    }

    /// The end of a level; `more` if it has rows that were not written.
    fn end(&mut self, depth: usize, more: bool) -> String {
        match self {
            Paper::Lines if more => format!("{}… more (see --limit)\n", "  ".repeat(depth)),
            Paper::Lines => String::new(),
            Paper::Json { first } => {
                *first = false;
                format!("]{}}}", if more { ",\"more\":true" } else { "" })
            }
        }
    }
}

fn keys(count: u64) -> String {
    format!("{count} key{}", if count == 1 { "" } else { "s" })
}
