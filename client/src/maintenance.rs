//! Upkeep. Most answers are one member's own: use [`Client::single`].

use wire::{
    Rpc,
    etcdserverpb::{
        AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse, DowngradeRequest,
        DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest, HashResponse, MoveLeaderRequest,
        MoveLeaderResponse, StatusRequest, StatusResponse, alarm_request::AlarmAction,
        downgrade_request::DowngradeAction,
    },
};

use crate::{Client, Result};

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

    /// Tries, begins or gives up a downgrade to a version such as `3.6`.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn downgrade(&self, action: DowngradeAction, version: impl Into<String>) -> Result<DowngradeResponse> {
        self.call(Rpc::Downgrade, &DowngradeRequest { action: action.into(), version: version.into() }).await
    }

    /// The alarms that are raised.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn alarm_list(&self) -> Result<AlarmResponse> {
        self.alarm(AlarmRequest { action: AlarmAction::Get.into(), ..Default::default() }).await
    }

    /// Clears one member's alarm; with member 0 and no type, all there are.
    /// Says which it has cleared.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn alarm_disarm(&self, member_id: u64, alarm: AlarmType) -> Result<AlarmResponse> {
        if member_id != 0 || alarm != AlarmType::None {
            let action = AlarmAction::Deactivate.into();
            return self.alarm(AlarmRequest { action, member_id, alarm: alarm.into() }).await;
        }
        let mut all = self.alarm_list().await?;
        let mut cleared = Vec::new();
        for AlarmMember { member_id, alarm } in std::mem::take(&mut all.alarms) {
            let action = AlarmAction::Deactivate.into();
            let one = self.alarm(AlarmRequest { action, member_id, alarm }).await?;
            all.header = one.header;
            cleared.extend(one.alarms);
        }
        Ok(AlarmResponse { header: all.header, alarms: cleared })
    }
}
