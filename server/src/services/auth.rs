//! Users, roles, passwords and tokens.

use super::kv::propose;
use crate::passwords::Failed;
use crate::transport::call::Call;
use crate::transport::status::{Code, Status};
use base64::Engine;
use bytes::Bytes;
use node::{Answer, AuthAnswer, AuthQuery, Request, Who};
use store::auth::{AuthCommand, encode_permission};
use store::command::Checked;
use store::command::field;
use store::protobuf::{self, Fields};

/// A login is tried again when users or roles change under it, so often.
const LOGINS: usize = 16;

impl From<Failed> for Status {
    fn from(failed: Failed) -> Status {
        match failed {
            Failed::Crowded => crate::transport::status::TOO_MANY_REQUESTS,
            Failed::TooLong => Status::new(Code::Unknown, "bcrypt: password length exceeds 72 bytes"),
            Failed::Broken => Status::new(Code::Internal, "kvorum: a password could not be hashed"),
        }
    }
}

/// A string field of a request.
fn text(request: &Bytes, number: u32) -> Result<String, Status> {
    let mut found: &[u8] = b"";
    let mut fields = Fields::new(request);
    while let Some((at, value)) = fields.next_field()? {
        if at == number {
            found = value.bytes();
        }
    }
    let text = std::str::from_utf8(found).map_err(|_| store::protobuf::Malformed::new("text is not UTF-8"))?;
    Ok(text.to_owned())
}

fn read(number: u32, request: &Bytes) -> Result<AuthCommand<'_>, Status> {
    AuthCommand::decode(number, request)?.ok_or_else(|| Status::unexpected("a change of users"))
}

async fn apply(call: &mut Call, body: Checked) -> Result<(), Status> {
    let (revision, term, _) = propose(call, body, 0).await?;
    call.answer(revision, term, &[])
}

/// A change that goes into the log as it came.
pub(crate) async fn change(call: &mut Call, number: u32) -> Result<(), Status> {
    let request = call.request().await?;
    let body = read(number, &request)?.body();
    apply(call, body).await
}

async fn hashed(call: &Call, password: String) -> Result<String, Status> {
    let hash = call.patiently(call.edge.passwords().hash(call.edge.source(), password)).await??;
    Ok(base64::engine::general_purpose::STANDARD.encode(hash))
}

/// The hash goes into the log, and never the password.
pub(crate) async fn user_add(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let AuthCommand::UserAdd { name, no_password, .. } = read(field::AUTH_USER_ADD, &request)? else {
        return Err(Status::unexpected("a user"));
    };
    let hash = if no_password { String::new() } else { hashed(call, text(&request, 2)?).await? };
    let body = AuthCommand::UserAdd { name, hashed: &hash, no_password }.body();
    apply(call, body).await
}

pub(crate) async fn user_change_password(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let AuthCommand::UserChangePassword { name, hashed: given } = read(field::AUTH_USER_CHANGE_PASSWORD, &request)?
    else {
        return Err(Status::unexpected("a password"));
    };
    let password = text(&request, 2)?;
    let hash = if password.is_empty() { given.to_owned() } else { hashed(call, password).await? };
    let body = AuthCommand::UserChangePassword { name, hashed: &hash }.body();
    apply(call, body).await
}

/// Compares the password on this member, then tells all members by the log that the user has logged
/// in.
pub(crate) async fn authenticate(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (name, password) = (text(&request, 1)?, text(&request, 2)?);
    // The token that a client shows here is the one that it wants to replace.
    call.who = Who::Nobody;
    for _ in 0..LOGINS {
        let query = AuthQuery::Password { name: name.clone() };
        let Answer::Auth(AuthAnswer::Password { hash, revision: checked }) =
            call.read(Request::Auth { query }).await?.answer
        else {
            return Err(Status::unexpected("a login"));
        };
        if !call.patiently(call.edge.passwords().verify(call.edge.source(), password.clone(), hash)).await?? {
            return Err(store::Error::AuthFailed.into());
        }
        let drawn = call.core().settings().tokens.draw();
        let body = AuthCommand::Authenticate { name: &name, simple_token: &drawn }.body();
        let (revision, term, reply) = propose(call, body, 0).await?;
        let store::Reply::LoggedIn { index, auth_revision } = reply else {
            return Err(Status::unexpected("a login"));
        };
        if auth_revision != checked {
            continue; // the password may be another one since
        }
        let token = call.core().settings().tokens.issue(&name, &drawn, index, auth_revision);
        let token = token.map_err(|why| Status::with(Code::Unknown, why.to_string()))?;
        let mut rest = Vec::new();
        protobuf::write_bytes(&mut rest, 2, token.as_bytes());
        return call.answer(revision, term, &rest);
    }
    Err(store::Error::AuthOldRevision.into())
}

/// What is known of users and roles.
async fn ask(call: &mut Call, query: AuthQuery) -> Result<(), Status> {
    let asked = call.read(Request::Auth { query }).await?;
    let Answer::Auth(answer) = asked.answer else { return Err(Status::unexpected("users and roles")) };
    let mut rest = Vec::new();
    match answer {
        AuthAnswer::Status { enabled, revision } => {
            protobuf::write_bool(&mut rest, 2, enabled);
            protobuf::write_varint(&mut rest, 3, revision);
        }
        AuthAnswer::User { roles: names } | AuthAnswer::Users { users: names } | AuthAnswer::Roles { roles: names } => {
            names.iter().for_each(|name| protobuf::write_message(&mut rest, 2, name.as_bytes()));
        }
        AuthAnswer::Role { permissions } => {
            for permission in &permissions {
                protobuf::nested(&mut rest, 2, |out| encode_permission(permission, out));
            }
        }
        AuthAnswer::Password { .. } => return Err(Status::unexpected("users and roles")),
    }
    call.answer(asked.revision, asked.term, &rest)
}

pub(crate) async fn status(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    ask(call, AuthQuery::Status).await
}

pub(crate) async fn user_get(call: &mut Call) -> Result<(), Status> {
    let name = text(&call.request().await?, 1)?;
    ask(call, AuthQuery::User { name }).await
}

pub(crate) async fn user_list(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    ask(call, AuthQuery::Users).await
}

pub(crate) async fn role_get(call: &mut Call) -> Result<(), Status> {
    let name = text(&call.request().await?, 1)?;
    ask(call, AuthQuery::Role { name }).await
}

pub(crate) async fn role_list(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    ask(call, AuthQuery::Roles).await
}
