//! Upkeep and members. Most answers are one member's own: use [`Client::at`].

use wire::{
    Rpc,
    etcdserverpb::{
        AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, HashKvRequest, HashKvResponse, HashRequest,
        HashResponse, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
        MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
        MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse,
    },
};

use crate::{Client, Responses, Result};

impl Client {
    /// A member's own view of itself and the cluster.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn status(&self) -> Result<StatusResponse> {
        self.call(Rpc::Status, &StatusRequest {}).await
    }

    /// The hash of all keys up to a revision, 0 for the newest.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn hash_kv(&self, revision: i64) -> Result<HashKvResponse> {
        self.call(Rpc::HashKV, &HashKvRequest { revision }).await
    }

    /// The hash of a member's whole state.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn hash(&self) -> Result<HashResponse> {
        self.call(Rpc::Hash, &HashRequest {}).await
    }

    /// Lists, raises or clears alarms.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn alarm(&self, request: AlarmRequest) -> Result<AlarmResponse> {
        self.call(Rpc::Alarm, &request).await
    }

    /// Gives back free space to the file system.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn defragment(&self) -> Result<DefragmentResponse> {
        self.call(Rpc::Defragment, &DefragmentRequest {}).await
    }

    /// Makes another member the leader. Only the leader does it.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn move_leader(&self, target_id: u64) -> Result<MoveLeaderResponse> {
        self.call(Rpc::MoveLeader, &MoveLeaderRequest { target_id }).await
    }

    /// A copy of a member's state, in pieces.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn snapshot(&self) -> Result<Responses<SnapshotResponse>> {
        self.stream(Rpc::Snapshot, &SnapshotRequest {}).await
    }

    /// The members, as the whole cluster sees them.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn member_list(&self) -> Result<MemberListResponse> {
        self.call(Rpc::MemberList, &MemberListRequest { linearizable: true }).await
    }

    /// Adds a member that will be reached at these peer URLs.
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
}
