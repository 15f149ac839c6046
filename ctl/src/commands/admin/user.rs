//! `user`.

use client::wire::{
    authpb::UserAddOptions,
    etcdserverpb::{AuthUserAddRequest, AuthUserGetResponse, AuthUserListResponse},
};
use cobra::Flag;

use super::{answer::Said, role};
use crate::{
    call::{Call, Command},
    commands::headings::AUTH,
    exit::{Failure, Outcome},
    print::{Answer, Out, json, protobuf},
    terminal,
};

/// The row of the table.
pub const USER: Command = Command {
    name: "user",
    group: AUTH,
    short: "Shows and changes users. See `user --help`",
    long: "Shows and changes users",
    subs: &[&[
        Command {
            name: "add",
            usage: "add <user name or user:password> [options]",
            short: "Makes a user",
            flags: &[
                Flag::switch_on("interactive", "ask for the password; if off, it is a line of standard input"),
                Flag::text("new-user-password", "", "the password"),
                Flag::switch("no-password", "a user that can only be told by the name in its certificate"),
            ],
            run: Some(add),
            ..Command::NONE
        },
        Command {
            name: "delete",
            usage: "delete <user name>",
            short: "Removes a user",
            run: Some(delete),
            ..Command::NONE
        },
        Command {
            name: "get",
            usage: "get <user name> [options]",
            short: "Shows the roles of a user",
            flags: &[Flag::switch("detail", "show what these roles allow, too")],
            run: Some(get),
            ..Command::NONE
        },
        Command {
            name: "grant-role",
            usage: "grant-role <user name> <role name>",
            short: "Gives a role to a user",
            run: Some(grant),
            ..Command::NONE
        },
        Command { name: "list", usage: "list", short: "Shows the users", run: Some(list), ..Command::NONE },
        Command {
            name: "passwd",
            usage: "passwd <user name> [options]",
            short: "Gives a user another password",
            flags: &[Flag::switch_on("interactive", "ask for the password; if off, it is a line of standard input")],
            run: Some(passwd),
            ..Command::NONE
        },
        Command {
            name: "revoke-role",
            usage: "revoke-role <user name> <role name>",
            short: "Takes a role from a user",
            run: Some(revoke),
            ..Command::NONE
        },
    ]],
    ..Command::NONE
};

fn add(call: &Call) -> Outcome {
    let [word] = call.exactly("user add command requires user name as its argument")?;
    let given = call.text("new-user-password");
    let (name, password) = if call.switch("no-password") {
        (word.as_str(), String::new())
    } else if !given.is_empty() {
        (word.as_str(), given.to_owned())
    } else if let Some((name, password)) = word.split_once(':') {
        if name.is_empty() {
            return Err(Failure::bad_args("empty user name is not allowed"));
        }
        (name, password.to_owned())
    } else {
        (word.as_str(), new_password(call, word)?)
    };
    let request = AuthUserAddRequest {
        name: name.to_owned(),
        password,
        options: Some(UserAddOptions { no_password: call.switch("no-password") }),
        ..Default::default()
    };
    let client = call.connect()?;
    let response = call.timed(client.user_add_with(request))?;
    call.print(&Said::new(format!("User {name} created"), response.header.as_ref(), &response))
}

fn new_password(call: &Call, name: &str) -> Outcome<String> {
    if call.switch("interactive") { asked(name) } else { read() }
}

/// Asks twice.
fn asked(name: &str) -> Outcome<String> {
    let first = terminal::password(&format!("Password of {name}: "))?;
    if first.is_empty() {
        return Err(Failure::bad_args("empty password"));
    }
    let again = terminal::password(&format!("Type password of {name} again for confirmation: "))?;
    if first != again {
        return Err(Failure::bad_args("given passwords are different"));
    }
    Ok(first)
}

/// The first word of standard input.
fn read() -> Outcome<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::io(&e))?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

fn delete(call: &Call) -> Outcome {
    let [name] = call.exactly("user delete command requires user name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.user_delete(name))?;
    call.print(&Said::new(format!("User {name} deleted"), response.header.as_ref(), &response))
}

fn passwd(call: &Call) -> Outcome {
    let [name] = call.exactly("user passwd command requires user name as its argument")?;
    let password = new_password(call, name)?;
    let client = call.connect()?;
    let response = call.timed(client.user_change_password(name, password))?;
    call.print(&Said::new("Password updated".to_owned(), response.header.as_ref(), &response))
}

fn grant(call: &Call) -> Outcome {
    let [user, role] = call.exactly("user grant command requires user name and role name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.user_grant_role(user, role))?;
    call.print(&Said::new(format!("Role {role} is granted to user {user}"), response.header.as_ref(), &response))
}

fn revoke(call: &Call) -> Outcome {
    let [user, role] = call.exactly("user revoke-role requires user name and role name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.user_revoke_role(user, role))?;
    call.print(&Said::new(format!("Role {role} is revoked from user {user}"), response.header.as_ref(), &response))
}

fn list(call: &Call) -> Outcome {
    let [] = call.exactly("user list command requires no arguments")?;
    let client = call.connect()?;
    let response = call.timed(client.user_list())?;
    call.print(&response)
}

fn get(call: &Call) -> Outcome {
    let [name] = call.exactly("user get command requires user name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.user_get(name))?;
    if !call.switch("detail") {
        return call.print(&Got { name, response: &response });
    }
    crate::say(&format!("User: {name}\n"))?;
    for role in &response.roles {
        crate::say("\n")?;
        let response = call.timed(client.role_get(role))?;
        call.print(&role::Got { name: role, response: &response })?;
    }
    Ok(())
}

struct Got<'a> {
    name: &'a str,
    response: &'a AuthUserGetResponse,
}

impl Answer for Got<'_> {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("User: {}", self.name));
        let roles: String = self.response.roles.iter().map(|role| format!(" {role}")).collect();
        out.line(format!("Roles:{roles}"));
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new().header(self.response.header.as_ref()).some_texts("roles", &self.response.roles).finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.response))
    }
}

impl Answer for AuthUserListResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.users.iter().for_each(|user| out.line(user));
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new().header(self.header.as_ref()).some_texts("users", &self.users).finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self))
    }
}
