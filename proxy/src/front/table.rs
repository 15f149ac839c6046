//! The table of statistics: rows as HAProxy 2.6 has them, which the socket, the page and the
//! metrics show, each in its form.

use super::config::Mode;
use super::counters::Counters;
use super::health::Wanted;
use super::pool::{Member, Pool};
use super::state::{Door, State};
use std::collections::BTreeMap;
use std::time::Duration;

/// The columns, in HAProxy's order.
pub(crate) const COLUMNS: &str = "pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,\
    wretr,wredis,status,weight,act,bck,chkfail,chkdown,lastchg,downtime,qlimit,pid,iid,sid,throttle,lbtot,tracked,\
    type,rate,rate_lim,rate_max,check_status,check_code,check_duration,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,\
    hrsp_other,hanafail,req_rate,req_rate_max,req_tot,cli_abrt,srv_abrt,comp_in,comp_out,comp_byp,comp_rsp,lastsess,\
    last_chk,last_agt,qtime,ctime,rtime,ttime,agent_status,agent_code,agent_duration,check_desc,agent_desc,\
    check_rise,check_fall,check_health,agent_rise,agent_fall,agent_health,addr,cookie,mode,algo,conn_rate,\
    conn_rate_max,conn_tot,intercepted,dcon,dses,wrew,connect,reuse,cache_lookups,cache_hits,srv_icur,src_ilim,\
    qtime_max,ctime_max,rtime_max,ttime_max,eint,idle_conn_cur,safe_conn_cur,used_conn_cur,need_conn_est,uweight,\
    agg_server_status,agg_server_check_status,agg_check_status";

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Frontend,
    Backend,
    Server,
}

/// A row: values by column; one that does not apply is absent.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    /// Numbers of its proxy and its server, as `show stat iid type sid` asks for.
    pub(crate) ids: (usize, usize),
    values: BTreeMap<&'static str, String>,
}

impl Row {
    fn new(kind: Kind, ids: (usize, usize)) -> Row {
        let mut row = Row { kind, ids, values: BTreeMap::new() };
        let number = match kind {
            Kind::Frontend => 0,
            Kind::Backend => 1,
            Kind::Server => 2,
        };
        row.put("type", number);
        row.put("pid", 1);
        row.put("iid", ids.0);
        row.put("sid", ids.1);
        row
    }

    fn put(&mut self, column: &'static str, value: impl ToString) {
        self.values.insert(column, value.to_string());
    }

    /// Empty where it does not apply.
    pub(crate) fn get(&self, column: &str) -> &str {
        self.values.get(column).map_or("", String::as_str)
    }

    fn counters(&mut self, counters: &Counters, now: Duration) {
        self.put("scur", counters.current);
        self.put("smax", counters.max);
        self.put("stot", counters.total);
        self.put("bin", counters.bytes_in);
        self.put("bout", counters.bytes_out);
        self.put("rate", counters.rate.read(now));
        self.put("rate_max", counters.rate.max);
    }

    /// What a backend and a server have and a frontend has not.
    fn behind(&mut self, counters: &Counters, now: Duration) {
        self.put("econ", counters.connect_errors);
        self.put("eresp", 0);
        self.put("wretr", counters.retries);
        self.put("wredis", counters.redispatches);
        self.put("lbtot", counters.chosen);
        self.put("cli_abrt", counters.client_aborts);
        self.put("srv_abrt", counters.server_aborts);
        self.put("lastsess", counters.last.map_or(-1, |last| now.saturating_sub(last).as_secs() as i64));
        self.put("qmax", counters.queue_max);
        self.put("qtime", counters.queue_time.read());
        self.put("ctime", counters.connect_time.read());
        self.put("rtime", 0);
        self.put("ttime", counters.total_time.read());
        self.put("qtime_max", counters.queue_time.max);
        self.put("ctime_max", counters.connect_time.max);
        self.put("rtime_max", 0);
        self.put("ttime_max", counters.total_time.max);
        self.put("connect", counters.attempts);
        self.put("reuse", 0);
    }
}

/// All rows: each frontend, then each backend with its servers before it.
pub(crate) fn rows(state: &State, now: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    // HAProxy's first number is its own.
    let mut number = 1;
    for front in &state.config.frontends {
        number += 1;
        if let Some(door) = state.doors.get(&front.name) {
            rows.push(frontend(door, state.maxconn(), number, now));
        }
    }
    for back in &state.config.backends {
        number += 1;
        if let Some(pool) = state.pools.get(&back.name) {
            let servers =
                pool.members.iter().enumerate().map(|(at, member)| server(pool, member, (number, at + 1), now));
            rows.extend(servers);
            rows.push(backend(pool, number, now));
        }
    }
    rows
}

fn frontend(door: &Door, most: u32, number: usize, now: Duration) -> Row {
    let mut row = Row::new(Kind::Frontend, (number, 0));
    let counters = &door.counters;
    row.put("pxname", &door.config.name);
    row.put("svname", "FRONTEND");
    row.counters(counters, now);
    row.put("slim", door.config.maxconn.unwrap_or(most));
    row.put("dreq", counters.denied);
    row.put("dresp", 0);
    row.put("ereq", counters.request_errors);
    row.put("status", if door.paused { "PAUSED" } else { "OPEN" });
    row.put("rate_lim", door.config.rate_limit_sessions.unwrap_or(0));
    row.put("mode", if door.config.mode == Mode::Http { "http" } else { "tcp" });
    row.put("conn_rate", counters.rate.read(now));
    row.put("conn_rate_max", counters.rate.max);
    row.put("conn_tot", counters.total);
    row.put("dcon", 0);
    row.put("dses", counters.denied);
    row.put("eint", 0);
    row
}

fn backend(pool: &Pool, number: usize, now: Duration) -> Row {
    let mut row = Row::new(Kind::Backend, (number, 0));
    let counters = &pool.counters;
    row.put("pxname", &pool.name);
    row.put("svname", "BACKEND");
    row.counters(counters, now);
    row.behind(counters, now);
    row.put("qcur", pool.queued());
    row.put("slim", 0);
    row.put("dreq", 0);
    row.put("dresp", 0);
    row.put("status", if pool.is_up() { "UP" } else { "DOWN" });
    let usable: Vec<&Member> = pool.members.iter().filter(|member| member.is_usable()).collect();
    let of = |backup: bool| usable.iter().filter(|member| member.config.backup == backup).count();
    row.put("weight", pool.usable().iter().map(|at| pool.members[*at].weight).sum::<u32>());
    row.put("act", of(false));
    row.put("bck", of(true));
    row.put("chkdown", pool.transitions);
    row.put("lastchg", now.saturating_sub(pool.changed).as_secs());
    let lasts = if pool.is_up() { Duration::ZERO } else { now.saturating_sub(pool.changed) };
    row.put("downtime", (pool.downtime + lasts).as_secs());
    row.put("mode", "tcp");
    row.put("algo", pool.balance().name());
    row.put("eint", 0);
    row
}

/// The state of a server in a word or two, as HAProxy says it.
pub(crate) fn status(member: &Member) -> String {
    let step = member.health.step().map_or_else(String::new, |(done, of)| format!(" {done}/{of}"));
    match (member.wanted, member.health.is_up(), member.config.check) {
        (Wanted::Maint, _, _) => "MAINT".into(),
        (_, false, _) => format!("DOWN{step}"),
        (Wanted::Drain, true, _) => "DRAIN".into(),
        (Wanted::Ready, true, _) if member.weight == 0 => "DRAIN".into(),
        (Wanted::Ready, true, false) => "no check".into(),
        (Wanted::Ready, true, true) => format!("UP{step}"),
    }
}

fn server(pool: &Pool, member: &Member, ids: (usize, usize), now: Duration) -> Row {
    let mut row = Row::new(Kind::Server, ids);
    let (config, counters) = (&member.config, &member.counters);
    row.put("pxname", &pool.name);
    row.put("svname", &config.name);
    row.counters(counters, now);
    row.behind(counters, now);
    row.put("qcur", member.queued());
    row.put("slim", config.maxconn.map_or_else(String::new, |most| most.to_string()));
    row.put("dresp", 0);
    row.put("status", status(member));
    row.put("weight", member.weight);
    row.put("uweight", member.weight);
    row.put("act", u8::from(!config.backup));
    row.put("bck", u8::from(config.backup));
    row.put("qlimit", config.maxqueue.map_or_else(String::new, |most| most.to_string()));
    row.put("lastchg", now.saturating_sub(member.changed).as_secs());
    row.put("downtime", member.downtime(now).as_secs());
    let throttle = member.health.throttle(now);
    if throttle < 100 {
        row.put("throttle", format!("{throttle}%"));
    }
    row.put("addr", &config.address);
    row.put("mode", "tcp");
    row.put("eint", 0);
    row.put("used_conn_cur", counters.current);
    if config.check {
        row.put("chkfail", counters.checks_failed);
        row.put("chkdown", counters.checks_down);
        row.put("check_rise", config.rise);
        row.put("check_fall", config.fall);
        row.put("check_health", member.health.score());
        if let Some((found, took, text)) = &member.last {
            row.put("check_status", found.name());
            row.put("check_code", found.code().map_or_else(String::new, |code| code.to_string()));
            row.put("check_duration", took.as_millis());
            row.put("last_chk", text);
            row.put("check_desc", found.words());
        }
    }
    row
}

/// As comma separated values, with the line of names.
pub(crate) fn csv<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    // Behind the last name HAProxy has one more comma.
    let mut text = format!("# {COLUMNS},\n");
    for row in rows {
        for column in COLUMNS.split(',') {
            let value = row.get(column);
            if value.contains(['"', ',', '\n']) {
                text.push_str(&format!("\"{}\"", value.replace('"', "\"\"").replace('\n', " ")));
            } else {
                text.push_str(value);
            }
            text.push(',');
        }
        text.push('\n');
    }
    text
}
