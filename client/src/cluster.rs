//! The members of a cluster.

use wire::{
    Rpc,
    etcdserverpb::{
        MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
        MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
    },
};

use crate::{Client, Result};

impl Client {
    /// The members, as the whole cluster sees them.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_list(&self) -> Result<MemberListResponse> {
        self.member_list_with(true).await
    }

    /// The members; not `linearizable`: as the member that answers sees them,
    /// quorum or not.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_list_with(&self, linearizable: bool) -> Result<MemberListResponse> {
        self.call(Rpc::MemberList, &MemberListRequest { linearizable }).await
    }

    /// Adds a member that will be reached at these peer URLs: a learner
    /// receives everything and does not vote.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_add(&self, peer_urls: Vec<String>, is_learner: bool) -> Result<MemberAddResponse> {
        self.call(Rpc::MemberAdd, &MemberAddRequest { peer_urls, is_learner }).await
    }

    /// Removes a member.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_remove(&self, id: u64) -> Result<MemberRemoveResponse> {
        self.call(Rpc::MemberRemove, &MemberRemoveRequest { id }).await
    }

    /// Changes the peer URLs of a member.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_update(&self, id: u64, peer_urls: Vec<String>) -> Result<MemberUpdateResponse> {
        self.call(Rpc::MemberUpdate, &MemberUpdateRequest { id, peer_urls }).await
    }

    /// Makes a learner a voter.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_promote(&self, id: u64) -> Result<MemberPromoteResponse> {
        self.call(Rpc::MemberPromote, &MemberPromoteRequest { id }).await
    }

    /// The client URLs that the members announce, learners left out: they
    /// answer next to nothing.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn cluster_endpoints(&self) -> Result<Vec<String>> {
        let members = self.member_list().await?.members;
        Ok(members.into_iter().filter(|m| !m.is_learner).flat_map(|m| m.client_urls).collect())
    }
}
