//! `alarm`.

use client::{
    Client,
    wire::etcdserverpb::{AlarmMember, AlarmResponse, AlarmType},
};

use super::whom::Whom;
use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{Failure, Outcome},
    print::{
        Answer, Out, fields, json,
        look::Paint,
        protobuf,
        table::{self, Cell},
        unsupported,
    },
};

/// The row of the stock tool's table.
pub const ALARM: Command = Command {
    name: "alarm",
    group: CLUSTER,
    short: "Shows and clears alarms. See `alarm --help`",
    long: "Shows and clears alarms",
    subs: &[&[DISARM, LIST]],
    ..Command::NONE
};

/// The row of ours.
pub const OURS: Command = Command { subs: &[&[DISARM_ONE, LIST]], ..ALARM };

const DISARM: Command =
    Command { name: "disarm", usage: "disarm", short: "Clears all alarms", run: Some(disarm), ..Command::NONE };

const DISARM_ONE: Command =
    Command { usage: "disarm [memberID or name]", short: "Clears all alarms, or those of one member", ..DISARM };

const LIST: Command =
    Command { name: "list", usage: "list", short: "Shows all alarms", run: Some(list), ..Command::NONE };

fn list(call: &Call) -> Outcome {
    let [] = call.exactly("alarm list command accepts no arguments")?;
    let client = call.connect()?;
    let response = call.timed(client.alarm_list())?;
    call.print(&response)
}

fn disarm(call: &Call) -> Outcome {
    if call.is_ours() && call.args.len() > 1 {
        return Err(Failure::bad_args("alarm disarm takes one member, or none for all alarms"));
    }
    let member = call.arg(0).filter(|_| call.is_ours());
    if member.is_none() {
        let [] = call.exactly("alarm disarm command accepts no arguments")?;
    }
    let whom = member.map(|text| Whom::read(call, text, Failure::bad_args)).transpose()?;
    let client = call.connect()?;
    let mut response = match whom {
        None => call.timed(client.alarm_disarm(0, AlarmType::None))?,
        Some(whom) => {
            let id = whom.id(call, &client)?;
            call.timed(disarm_one(&client, id))?
        }
    };
    // The stock tool puts this answer together from several, without one.
    response.header = None;
    call.print(&response)
}

/// Clears what is raised at one member; says what that was.
async fn disarm_one(client: &Client, id: u64) -> client::Result<AlarmResponse> {
    let mut cleared = Vec::new();
    for raised in client.alarm_list().await?.alarms.into_iter().filter(|raised| raised.member_id == id) {
        if let Ok(alarm) = AlarmType::try_from(raised.alarm) {
            cleared.extend(client.alarm_disarm(id, alarm).await?.alarms);
        }
    }
    Ok(AlarmResponse { header: None, alarms: cleared })
}

/// The name of an alarm.
pub fn name(alarm: i32) -> String {
    AlarmType::try_from(alarm).map_or_else(|_| alarm.to_string(), |a| a.as_str_name().to_owned())
}

fn json_of(member: &AlarmMember) -> String {
    json::Object::new().some_number("memberID", member.member_id).some_number("alarm", member.alarm).finish()
}

impl Answer for AlarmResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        for member in &self.alarms {
            // Two spaces: this is how the stock tool's version of Go's
            // protobuf writes its text form.
            let mut parts = Vec::new();
            if member.member_id != 0 {
                parts.push(format!("memberID:{}", member.member_id));
            }
            if member.alarm != 0 {
                parts.push(format!("alarm:{}", name(member.alarm)));
            }
            out.line(out.look.paint(Paint::Bad, &parts.join("  ")));
        }
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        // The stock tool has no such form.
        if !out.look.ours {
            return Err(unsupported("table"));
        }
        let row = |member: &AlarmMember| {
            let means = match AlarmType::try_from(member.alarm) {
                Ok(AlarmType::Nospace) => "out of room: nothing that needs some is written",
                Ok(AlarmType::Corrupt) => "its data differs from the others'",
                _ => "",
            };
            let id = format!("{:x}", member.member_id);
            vec![id.into(), Cell::painted(name(member.alarm), Paint::Bad, true), means.to_owned().into()]
        };
        table::draw_cells(out, &["member ID", "alarm", "means"], &self.alarms.iter().map(row).collect::<Vec<_>>());
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        for member in &self.alarms {
            fields::id(out, "MemberID", member.member_id);
            fields::field(out, "AlarmType", name(member.alarm));
            out.line("");
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new()
            .header(self.header.as_ref())
            .some_array("alarms", self.alarms.iter().map(json_of).collect())
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self))
    }
}
