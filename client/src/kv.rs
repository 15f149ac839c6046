//! Keys.

use bytes::Bytes;
use wire::{
    Rpc,
    etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
        RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
    },
    mvccpb::KeyValue,
};

use crate::{Client, Responses, Result, key};

impl Client {
    /// The newest value of one key, by a linearisable read.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn get(&self, one: impl Into<Bytes>) -> Result<Option<KeyValue>> {
        Ok(self.range(key(one)).await?.kvs.pop())
    }

    /// Reads a range, with every option the protocol has.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn range(&self, request: impl Into<RangeRequest>) -> Result<RangeResponse> {
        self.call(Rpc::Range, &request.into()).await
    }

    /// Reads a range in pieces, all of one revision: a large answer never is
    /// in memory as a whole.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn range_stream(&self, request: impl Into<RangeRequest>) -> Result<RangeStream> {
        let responses = self.stream(Rpc::RangeStream, &request.into()).await?;
        Ok(RangeStream { responses })
    }

    /// Puts a value.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<PutResponse> {
        self.put_with(PutRequest { key: key.into(), value: value.into(), ..Default::default() }).await
    }

    /// Puts a value, with every option the protocol has.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn put_with(&self, request: PutRequest) -> Result<PutResponse> {
        self.call(Rpc::Put, &request).await
    }

    /// Deletes a key or a range.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn delete(&self, request: impl Into<DeleteRangeRequest>) -> Result<DeleteRangeResponse> {
        self.call(Rpc::DeleteRange, &request.into()).await
    }

    /// Compares, then does one of two lists, all at one revision.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse> {
        self.call(Rpc::Txn, &request).await
    }

    /// Forgets what was superseded at or below a revision.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn compact(&self, revision: i64) -> Result<CompactionResponse> {
        self.call(Rpc::Compact, &CompactionRequest { revision, physical: false }).await
    }
}

/// The pieces of a range, in the order of the keys.
#[derive(Debug)]
pub struct RangeStream {
    responses: Responses<RangeStreamResponse>,
}

impl RangeStream {
    /// The next piece; `None` after the last. Header, count and "more" are set
    /// in the last piece.
    ///
    /// # Errors
    /// See [`crate::Error`]; the stream is over then, and what has come is not
    /// the whole range.
    pub async fn next(&mut self) -> Result<Option<RangeResponse>> {
        Ok(self.responses.next().await?.map(|piece| piece.range_response.unwrap_or_default()))
    }
}
