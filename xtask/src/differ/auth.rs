//! Users, roles and tokens: who asks, and scripts in which users are asked for.

use prost::Message;
use wire::{
    Method, Rpc, authpb,
    etcdserverpb::{self as pb, request_op::Request, watch_request::RequestUnion},
};

use super::{
    calls::Call,
    generate::Generator,
    normal::{decode, show},
    side::Side,
    step::{Step, Who},
    watches::BARRIER,
};
use crate::raw::Failure;

/// Users and the passwords that they mostly have. The first always has it: it looks after the run.
const USERS: [(&str, &str); 4] = [(ROOT, ROOT), ("ann", "a"), ("bob", "b"), ("cert", "")];
const ROOT: &str = "root";
const ROLES: [&str; 3] = ["reader", "writer", "both"];
const BAD: [&str; 6] =
    ["x", "aaaaaaaaaaaaaaaa.1", "aaaaaaaaaaaaaaaa", ".", "aaaaaaaaaaaaaaaa.x", "eyJhbGciOiJub25lIn0.e30."];
/// Streams from this number on belong to one user each.
const STREAMS: usize = 4;

impl Side {
    /// From now on requests carry this one's token; `None`: no token.
    pub fn act_as(&mut self, who: Option<Who>) {
        let given = |user: &str, before: usize| {
            let tokens = self.tokens.get(user)?;
            tokens.iter().rev().nth(before).cloned()
        };
        self.caller = match who {
            Some(Who::User(user)) => given(user, 0),
            Some(Who::Before(user)) => given(user, 1).or_else(|| given(user, 0)),
            Some(Who::Bad(token)) => Some(token.to_owned()),
            None => None,
        };
    }

    /// Signs a user in and keeps the token.
    pub async fn login(&mut self, user: &'static str, password: &str) -> String {
        let request = pb::AuthenticateRequest { name: user.to_owned(), password: password.to_owned() };
        let answer = self.call::<_, pb::AuthenticateResponse>(Rpc::Authenticate, &request).await;
        if let Ok(answer) = &answer {
            self.keep_token(user, &answer.token);
        }
        show(answer, |m| {
            self.own.header(&mut m.header);
            m.token = if m.token.is_empty() { "none" } else { "some" }.to_owned();
        })
    }

    /// Keeps the token that a user was given.
    pub fn keep_token(&mut self, user: &'static str, token: &str) {
        self.tokens.entry(user).or_default().push(token.to_owned());
    }

    /// A call of the run itself, which root makes where users are asked for.
    pub async fn trusted<Req: Message, Resp: Message + Default>(
        &mut self,
        rpc: Rpc,
        request: &Req,
    ) -> Result<Resp, Failure> {
        let (path, bytes) = (Method::of(rpc).path, bytes::Bytes::from(request.encode_to_vec()));
        let mut answer = self.raw_with(self.trusted.as_deref()).unary(path, bytes.clone()).await;
        if matches!(&answer, Err(failure) if [3, 7, 16].contains(&failure.code)) {
            let login = pb::AuthenticateRequest { name: ROOT.to_owned(), password: ROOT.to_owned() };
            let signed: Result<pb::AuthenticateResponse, _> = self.raw_with(None).call(Rpc::Authenticate, &login).await;
            if let Ok(signed) = signed {
                answer = self.raw_with(Some(&signed.token)).unary(path, bytes).await;
                self.trusted = Some(signed.token);
            }
        }
        answer.and_then(decode)
    }

    /// Puts the key that tells how far watches have come.
    pub async fn barrier(&mut self) -> String {
        let put = pb::PutRequest { key: BARRIER.into(), ..Default::default() };
        let answer = self.trusted::<_, pb::PutResponse>(Rpc::Put, &put).await;
        if let Ok(pb::PutResponse { header: Some(header), .. }) = &answer {
            self.current = self.current.max(header.revision);
        }
        show(answer, |m| self.own.put(m))
    }
}

impl Generator {
    /// A phase in which users are asked for most of the time.
    pub fn users(&mut self, steps: usize) -> Vec<Step> {
        let mut script = self.set_up();
        let restart = self.rng.percent(50).then(|| script.len().max(steps / 2));
        while script.len() < steps {
            if restart == Some(script.len()) {
                script.push(self.restart());
                script.extend(USERS.map(|(user, password)| Step::Login { user, password }));
            }
            script.push(self.as_somebody());
        }
        script.push(Step::Login { user: ROOT, password: ROOT });
        script
            .push(Step::As { who: Who::User(ROOT), step: Box::new(Step::Call(Call::AuthDisable(Default::default()))) });
        script
    }

    /// Mostly whole: what is missing makes the rest of the phase another one.
    fn set_up(&mut self) -> Vec<Step> {
        let mut calls: Vec<Call> = USERS.iter().map(|(user, password)| add(user, password)).collect();
        calls.push(grant(ROOT, ROOT));
        calls.extend(ROLES.map(|role| Call::RoleAdd(pb::AuthRoleAddRequest { name: role.to_owned() })));
        for (user, role) in [("ann", "reader"), ("ann", "writer"), ("bob", "both")] {
            calls.push(grant(user, role));
        }
        for (at, role) in ROLES.iter().enumerate() {
            calls.push(permit(role, at as i32, "a".into(), "c".into()));
            calls.push(self.permission());
        }
        calls.push(Call::AuthEnable(Default::default()));
        let mut script: Vec<Step> = calls.into_iter().filter(|_| self.rng.percent(97)).map(Step::Call).collect();
        script.extend(USERS.map(|(user, password)| Step::Login { user, password }));
        script
    }

    /// A step of any sort under somebody's name.
    fn as_somebody(&mut self) -> Step {
        let mut who = self.who();
        let mut step = match self.rng.below(100) {
            0..22 => {
                who = if self.rng.percent(75) { Who::User(ROOT) } else { who };
                Step::Call(self.management())
            }
            22..30 => {
                let (user, password) = self.rng.pick(&USERS);
                let password = if self.rng.percent(80) { password } else { self.rng.pick(&["", "x", "a2"]) };
                let user = if self.rng.percent(95) { user } else { self.rng.pick(&["", "nobody"]) };
                Step::Login { user, password }
            }
            30..35 => self.recipe(),
            35..38 => self.upkeep(),
            38..48 => self.watch(),
            _ => self.step(),
        };
        if let Step::Watch { stream, .. } | Step::WatchBytes { stream, .. } | Step::Close { stream } = &mut step {
            *stream = STREAMS + self.rng.below(USERS.len() as u64 + 1) as usize;
            who = USERS.get(*stream - STREAMS).map_or(who, |(user, _)| Who::User(user));
        }
        forwards(&mut step);
        if self.rng.percent(15) {
            step = super::gateway::as_json(step);
        }
        Step::As { who, step: Box::new(step) }
    }

    fn who(&mut self) -> Who {
        match self.rng.below(100) {
            0..25 => Who::User(ROOT),
            25..52 => Who::User("ann"),
            52..75 => Who::User("bob"),
            75..79 => Who::User("cert"),
            79..86 => Who::User(""),
            86..94 => Who::Before(self.rng.pick(&USERS).0),
            _ => Who::Bad(self.rng.pick(&BAD)),
        }
    }

    fn user(&mut self) -> String {
        let known = self.rng.pick(&USERS).0;
        if self.rng.percent(92) { known } else { self.rng.pick(&["", "nobody", "ann "]) }.to_owned()
    }

    fn role(&mut self) -> String {
        let known = self.rng.pick(&ROLES);
        if self.rng.percent(88) { known } else { self.rng.pick(&[ROOT, ROOT, "", "nothing"]) }.to_owned()
    }

    /// What an administrator does.
    pub fn management(&mut self) -> Call {
        match self.rng.below(100) {
            0..10 => self.new_user(),
            10..14 => Call::UserDelete(pb::AuthUserDeleteRequest { name: self.user() }),
            14..22 => self.new_password(),
            22..32 => Call::UserGrantRole(pb::AuthUserGrantRoleRequest { user: self.user(), role: self.role() }),
            32..38 => Call::UserRevokeRole(pb::AuthUserRevokeRoleRequest { name: self.user(), role: self.role() }),
            38..44 => Call::RoleAdd(pb::AuthRoleAddRequest { name: self.role() }),
            44..47 => Call::RoleDelete(pb::AuthRoleDeleteRequest { role: self.role() }),
            47..66 => self.permission(),
            66..74 => {
                let (role, key, range_end) = (self.role(), self.key(), self.end());
                Call::RoleRevokePermission(pb::AuthRoleRevokePermissionRequest { role, key, range_end })
            }
            74..79 => Call::UserGet(pb::AuthUserGetRequest { name: self.user() }),
            79..86 => Call::RoleGet(pb::AuthRoleGetRequest { role: self.role() }),
            86 | 87 => Call::UserList(Default::default()),
            88 | 89 => Call::RoleList(Default::default()),
            90..93 => Call::AuthStatus(Default::default()),
            93 => Call::AuthDisable(Default::default()),
            _ => Call::AuthEnable(Default::default()),
        }
    }

    fn new_user(&mut self) -> Call {
        let name = self.user();
        let known = USERS.iter().find(|(user, _)| *user == name);
        let mut call = add(&name, known.map_or("p", |(_, password)| password));
        if let Call::UserAdd(request) = &mut call
            && name != ROOT
        {
            match self.rng.below(20) {
                0 => request.password = "p".repeat(self.rng.pick(&[72, 73])),
                1 => request.hashed_password = "junk".to_owned(),
                2 => request.options = Some(authpb::UserAddOptions { no_password: self.rng.percent(50) }),
                _ => {}
            }
        }
        call
    }

    fn new_password(&mut self) -> Call {
        let name = self.user();
        let known = USERS.iter().find(|(user, _)| *user == name).map_or("p", |(_, password)| password);
        let other = name != ROOT && self.rng.percent(30);
        let password = if other { self.rng.pick(&["", "a2", "x"]) } else { known }.to_owned();
        let hashed_password = if other && self.rng.percent(10) { "junk".to_owned() } else { String::new() };
        Call::UserChangePassword(pb::AuthUserChangePasswordRequest { name, password, hashed_password })
    }

    fn permission(&mut self) -> Call {
        let (role, kind) = (self.role(), self.rng.pick(&[0, 1, 2, 2, 2, 2]));
        let (key, end) = (self.key(), self.end());
        let mut call = permit(&role, kind, key, end);
        if let Call::RoleGrantPermission(request) = &mut call {
            match self.rng.below(60) {
                0 => request.perm = None,
                1 => request.perm.iter_mut().for_each(|perm| perm.perm_type = 7),
                _ => {}
            }
        }
        call
    }
}

/// Ranges whose end is not behind their key hold no key. Whether etcd permits them depends on the
/// shape of the tree of permissions.
fn forwards(step: &mut Step) {
    let mend = |key: &[u8], end: &mut bytes::Bytes| {
        if end[..] != *b"\0" && end[..] <= *key {
            *end = bytes::Bytes::new();
        }
    };
    match step {
        Step::Range(r) | Step::RangeStream(r) => mend(&r.key, &mut r.range_end),
        Step::Delete(r) => mend(&r.key, &mut r.range_end),
        Step::Txn(txn) => forwards_in_txn(txn, &mend),
        Step::Watch { request: pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(r)) }, .. } => {
            mend(&r.key, &mut r.range_end);
        }
        Step::Page { body, .. } => *body = body.replace("\"key\":\"/w==\"", "\"key\":\"YQ==\""),
        _ => {}
    }
}

fn forwards_in_txn(txn: &mut pb::TxnRequest, mend: &impl Fn(&[u8], &mut bytes::Bytes)) {
    txn.compare.iter_mut().for_each(|compare| mend(&compare.key, &mut compare.range_end));
    for op in txn.success.iter_mut().chain(&mut txn.failure) {
        match &mut op.request {
            Some(Request::RequestRange(r)) => mend(&r.key, &mut r.range_end),
            Some(Request::RequestDeleteRange(r)) => mend(&r.key, &mut r.range_end),
            Some(Request::RequestTxn(txn)) => forwards_in_txn(txn, mend),
            _ => {}
        }
    }
}

fn add(user: &str, password: &str) -> Call {
    let options = password.is_empty().then_some(authpb::UserAddOptions { no_password: true });
    let (name, password) = (user.to_owned(), password.to_owned());
    Call::UserAdd(pb::AuthUserAddRequest { name, password, options, ..Default::default() })
}

fn grant(user: &str, role: &str) -> Call {
    Call::UserGrantRole(pb::AuthUserGrantRoleRequest { user: user.to_owned(), role: role.to_owned() })
}

fn permit(role: &str, kind: i32, key: bytes::Bytes, range_end: bytes::Bytes) -> Call {
    let perm = authpb::Permission { perm_type: kind, key, range_end };
    Call::RoleGrantPermission(pb::AuthRoleGrantPermissionRequest { name: role.to_owned(), perm: Some(perm) })
}
