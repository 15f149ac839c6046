//! Requests in few words.

use bytes::Bytes;
use client::wire::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, compare::TargetUnion,
    request_op::Request,
};

pub fn put_request(key: impl Into<Bytes>, value: impl Into<Bytes>) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> RequestOp {
    op(Request::RequestPut(put_request(key, value)))
}

pub fn put_op(request: PutRequest) -> RequestOp {
    op(Request::RequestPut(request))
}

/// Reads a range, or one key if there is no end.
pub fn get(key: impl Into<Bytes>, range_end: impl Into<Bytes>) -> RequestOp {
    get_at(key, range_end, 0)
}

pub fn get_at(key: impl Into<Bytes>, range_end: impl Into<Bytes>, revision: i64) -> RequestOp {
    let (key, range_end) = (key.into(), range_end.into());
    op(Request::RequestRange(RangeRequest { key, range_end, revision, ..RangeRequest::default() }))
}

/// Deletes a range, or one key if there is no end.
pub fn delete(key: impl Into<Bytes>, range_end: impl Into<Bytes>) -> RequestOp {
    let (key, range_end) = (key.into(), range_end.into());
    op(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false }))
}

pub fn txn(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}

/// A transaction inside another.
pub fn nested(request: TxnRequest) -> RequestOp {
    op(Request::RequestTxn(request))
}

/// `result`: 0 equal, 1 greater, 2 less, 3 not equal.
pub fn compare(key: impl Into<Bytes>, range_end: impl Into<Bytes>, result: i32, with: TargetUnion) -> Compare {
    let target = match with {
        TargetUnion::Version(_) => 0,
        TargetUnion::CreateRevision(_) => 1,
        TargetUnion::ModRevision(_) => 2,
        TargetUnion::Value(_) => 3,
        TargetUnion::Lease(_) => 4,
    };
    Compare { result, target, key: key.into(), range_end: range_end.into(), target_union: Some(with) }
}
