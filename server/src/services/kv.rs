//! Put, DeleteRange, Txn, Compact. Ranges have a page of their own ([`super::range`]).

use super::plan::{self, Plan, Values};
use crate::budgets::What;
use crate::core::Answered;
use crate::transport::call::Call;
use crate::transport::status::{self, Status};
use node::tally::Counted;
use node::{Answer, Refusal, Request};
use store::Reply;
use store::command::{self, Checked, TxnWrite, Write};
use store::protobuf::Fields;

/// What the envelope of an entry adds to a request, as etcd counts it: the header with an id.
const ENVELOPE: u64 = 14;

/// Refuses what would be too large for the log.
pub(crate) fn fits(call: &Call, body: &[u8]) -> Result<(), Status> {
    let limit = call.core().settings().max_request_bytes;
    if (body.len() as u64).saturating_add(ENVELOPE) > limit { Err(status::REQUEST_TOO_LARGE) } else { Ok(()) }
}

/// Proposes a command and waits until it is applied.
pub(crate) async fn propose(call: &Call, body: Checked, cost: u64) -> Result<(i64, u64, Reply), Status> {
    fits(call, &body)?;
    applied(call.write(Request::Propose { body, cost }).await?)
}

/// Revision and term of the header, and what was answered.
pub(crate) fn applied(asked: Answered) -> Result<(i64, u64, Reply), Status> {
    match asked.answer {
        Answer::Applied { revision, result } => Ok((revision, asked.term, result?)),
        _ => Err(Status::unexpected("a command")),
    }
}

/// Header, then the reply.
async fn respond(call: &mut Call, revision: i64, term: u64, reply: Reply) -> Result<(), Status> {
    let core = call.core().clone();
    let _places = call.edge.account().hold(What::Places, plan::reply_cost(&reply));
    let mut answer = Plan::default();
    call.edge.put_header(answer.raw(), revision, term);
    let wanted = plan::values_for(&reply);
    if wanted.is_empty() {
        plan::put_reply(&mut answer, reply, &Values::default())?;
    } else {
        // They are held until the order is known, and not while the client reads.
        let sorting = core.budgets().sort(plan::values_cost(&wanted));
        let _share = call.patiently(sorting).await?.ok_or(Refusal::AnswerTooLarge)?;
        let values = plan::fetch(&core, wanted).await?;
        plan::put_reply(&mut answer, reply, &values)?;
    }
    answer.send(&core, &mut call.reply).await
}

pub(crate) async fn put(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let Write { body, cost } = command::put(&request)?;
    let (revision, term, reply) = propose(call, body, cost).await?;
    respond(call, revision, term, reply).await
}

pub(crate) async fn delete_range(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let Write { body, cost } = command::delete_range(&request)?;
    let (revision, term, reply) = propose(call, body, cost).await?;
    if let Reply::Delete { deleted, .. } = &reply {
        call.set_found(u64::try_from(*deleted).unwrap_or(0));
    }
    respond(call, revision, term, reply).await
}

pub(crate) async fn txn(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let max_ops = i64::try_from(call.core().settings().max_txn_ops).unwrap_or(i64::MAX);
    let TxnWrite { write: Write { body, cost }, read_only, serializable } = command::txn(&request, max_ops)?;
    call.set_reads_only(read_only);
    let (revision, term, reply) = match read_only {
        true => {
            call.patiently(call.edge.account().ask()).await?;
            let read = applied(call.read(Request::ReadTxn { body, linearizable: !serializable }).await?)?;
            // Those in the log are counted where they are applied.
            let mut counted = Counted::default();
            counted.reply(&read.2);
            call.edge.metrics().range_total.inc_by(counted.ranges);
            call.edge.metrics().txn_total.inc_by(counted.txns);
            read
        }
        false => propose(call, body, cost).await?,
    };
    respond(call, revision, term, reply).await
}

pub(crate) async fn compact(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (mut revision, mut physical) = (0, false);
    let mut fields = Fields::new(&request);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => revision = value.int(),
            (2, value) => physical = value.flag(),
            _ => {}
        }
    }
    let (revision, term, _) = applied(call.write(Request::Compact { revision, physical }).await?)?;
    call.answer(revision, term, &[])
}
