//! Locks and elections as the server offers them: it does the waiting, and the
//! lease is the caller's business. See [`crate::concurrency`] for those that
//! the client does itself, which say when the lease is lost.

use bytes::Bytes;
use wire::{
    Rpc,
    v3electionpb::{
        CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest, ProclaimResponse,
        ResignRequest, ResignResponse,
    },
    v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse},
};

use crate::{Client, Responses, Result};

impl Client {
    /// Waits until the lock is the caller's, for as long as it takes; gives the
    /// key to unlock with. Lease 0: the server grants one of a minute.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn lock(&self, name: impl Into<Bytes>, lease: i64) -> Result<LockResponse> {
        self.with_request_timeout(None).call(Rpc::Lock, &LockRequest { name: name.into(), lease }).await
    }

    /// Gives a lock back.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn unlock(&self, key: impl Into<Bytes>) -> Result<UnlockResponse> {
        self.call(Rpc::Unlock, &UnlockRequest { key: key.into() }).await
    }

    /// Waits until the caller leads, for as long as it takes.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn campaign(
        &self,
        name: impl Into<Bytes>,
        lease: i64,
        value: impl Into<Bytes>,
    ) -> Result<CampaignResponse> {
        let request = CampaignRequest { name: name.into(), lease, value: value.into() };
        self.with_request_timeout(None).call(Rpc::Campaign, &request).await
    }

    /// Gives the leadership another value.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn proclaim(&self, leader: LeaderKey, value: impl Into<Bytes>) -> Result<ProclaimResponse> {
        self.call(Rpc::Proclaim, &ProclaimRequest { leader: Some(leader), value: value.into() }).await
    }

    /// Who leads now.
    ///
    /// # Errors
    /// See [`crate::Error`]; with nobody there it is `election: no leader`.
    pub async fn leader(&self, name: impl Into<Bytes>) -> Result<LeaderResponse> {
        self.call(Rpc::Leader, &LeaderRequest { name: name.into() }).await
    }

    /// Who leads, again and again. It ends with its connection.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn observe(&self, name: impl Into<Bytes>) -> Result<Responses<LeaderResponse>> {
        self.stream(Rpc::Observe, &LeaderRequest { name: name.into() }).await
    }

    /// Gives the leadership up.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn resign(&self, leader: LeaderKey) -> Result<ResignResponse> {
        self.call(Rpc::Resign, &ResignRequest { leader: Some(leader) }).await
    }
}
