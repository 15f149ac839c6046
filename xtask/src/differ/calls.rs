//! Requests that need nothing but their message.

use bytes::Bytes;
use prost::Message;
use wire::{
    Rpc,
    etcdserverpb::{self as pb},
    v3electionpb as election, v3lockpb as lock,
};

use super::normal::{Own, decode, show};
use crate::raw::Failure;

macro_rules! calls {
    ($($name:ident($request:ty) => $answer:ty $(, $equal:expr)?;)*) => {
        /// A call by its message; the variants have the names of the methods.
        #[derive(Clone, Debug)]
        pub enum Call {
            $($name($request),)*
        }

        impl Call {
            /// Method and message.
            pub fn request(&self) -> (Rpc, Bytes) {
                match self {
                    $(Call::$name(message) => (Rpc::$name, message.encode_to_vec().into()),)*
                }
            }

            /// The answer as text, once it has been made equal.
            pub fn show(&self, own: &Own, answer: Result<Bytes, Failure>) -> String {
                match self {
                    $(Call::$name(_) => show(answer.and_then(decode::<$answer>), |m| {
                        own.header(&mut m.header);
                        $(let equal: fn(&Own, &mut $answer) = $equal; equal(own, m);)?
                    }),)*
                }
            }
        }
    };
}

calls! {
    AuthEnable(pb::AuthEnableRequest) => pb::AuthEnableResponse;
    AuthDisable(pb::AuthDisableRequest) => pb::AuthDisableResponse;
    AuthStatus(pb::AuthStatusRequest) => pb::AuthStatusResponse;
    UserAdd(pb::AuthUserAddRequest) => pb::AuthUserAddResponse;
    UserGet(pb::AuthUserGetRequest) => pb::AuthUserGetResponse;
    UserList(pb::AuthUserListRequest) => pb::AuthUserListResponse;
    UserDelete(pb::AuthUserDeleteRequest) => pb::AuthUserDeleteResponse;
    UserChangePassword(pb::AuthUserChangePasswordRequest) => pb::AuthUserChangePasswordResponse;
    UserGrantRole(pb::AuthUserGrantRoleRequest) => pb::AuthUserGrantRoleResponse;
    UserRevokeRole(pb::AuthUserRevokeRoleRequest) => pb::AuthUserRevokeRoleResponse;
    RoleAdd(pb::AuthRoleAddRequest) => pb::AuthRoleAddResponse;
    RoleGet(pb::AuthRoleGetRequest) => pb::AuthRoleGetResponse;
    RoleList(pb::AuthRoleListRequest) => pb::AuthRoleListResponse;
    RoleDelete(pb::AuthRoleDeleteRequest) => pb::AuthRoleDeleteResponse;
    RoleGrantPermission(pb::AuthRoleGrantPermissionRequest) => pb::AuthRoleGrantPermissionResponse;
    RoleRevokePermission(pb::AuthRoleRevokePermissionRequest) => pb::AuthRoleRevokePermissionResponse;
    MemberAdd(pb::MemberAddRequest) => pb::MemberAddResponse, |own, m| {
        m.member.iter_mut().for_each(|member| own.member(member));
        own.listed(&mut m.members);
    };
    MemberRemove(pb::MemberRemoveRequest) => pb::MemberRemoveResponse, |own, m| own.listed(&mut m.members);
    MemberUpdate(pb::MemberUpdateRequest) => pb::MemberUpdateResponse, |own, m| own.listed(&mut m.members);
    MemberPromote(pb::MemberPromoteRequest) => pb::MemberPromoteResponse, |own, m| own.listed(&mut m.members);
    Downgrade(pb::DowngradeRequest) => pb::DowngradeResponse;
    Unlock(lock::UnlockRequest) => lock::UnlockResponse;
    Proclaim(election::ProclaimRequest) => election::ProclaimResponse;
    Leader(election::LeaderRequest) => election::LeaderResponse;
    Resign(election::ResignRequest) => election::ResignResponse;
}
