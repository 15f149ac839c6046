//! Users, roles and permissions.

use wire::{
    Rpc,
    authpb::{Permission, UserAddOptions},
    etcdserverpb::*,
};

use crate::{Client, KeyRange, Result};

/// What a permission allows.
pub use wire::authpb::permission::Type as PermissionType;

impl Client {
    /// Makes the cluster ask for users. It needs a user `root` with the role
    /// `root`.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn auth_enable(&self) -> Result<AuthEnableResponse> {
        self.call(Rpc::AuthEnable, &AuthEnableRequest {}).await
    }

    /// Makes the cluster take requests of anyone.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn auth_disable(&self) -> Result<AuthDisableResponse> {
        self.call(Rpc::AuthDisable, &AuthDisableRequest {}).await
    }

    /// Whether users are asked for, and the revision of what is known of them.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn auth_status(&self) -> Result<AuthStatusResponse> {
        self.call(Rpc::AuthStatus, &AuthStatusRequest {}).await
    }

    /// Adds a user with a password.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_add(&self, name: impl Into<String>, password: impl Into<String>) -> Result<AuthUserAddResponse> {
        self.user_add_with(AuthUserAddRequest {
            name: name.into(),
            password: password.into(),
            options: Some(UserAddOptions { no_password: false }),
            ..Default::default()
        })
        .await
    }

    /// Adds a user, with every option the protocol has.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_add_with(&self, request: AuthUserAddRequest) -> Result<AuthUserAddResponse> {
        self.call(Rpc::UserAdd, &request).await
    }

    /// The roles of a user.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_get(&self, name: impl Into<String>) -> Result<AuthUserGetResponse> {
        self.call(Rpc::UserGet, &AuthUserGetRequest { name: name.into() }).await
    }

    /// The names of all users.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_list(&self) -> Result<AuthUserListResponse> {
        self.call(Rpc::UserList, &AuthUserListRequest {}).await
    }

    /// Removes a user; its tokens end with it.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_delete(&self, name: impl Into<String>) -> Result<AuthUserDeleteResponse> {
        self.call(Rpc::UserDelete, &AuthUserDeleteRequest { name: name.into() }).await
    }

    /// Gives a user another password; its tokens end with the old one.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_change_password(
        &self,
        name: impl Into<String>,
        password: impl Into<String>,
    ) -> Result<AuthUserChangePasswordResponse> {
        let (name, password) = (name.into(), password.into());
        self.call(
            Rpc::UserChangePassword,
            &AuthUserChangePasswordRequest { name, password, hashed_password: String::new() },
        )
        .await
    }

    /// Gives a role to a user.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_grant_role(
        &self,
        user: impl Into<String>,
        role: impl Into<String>,
    ) -> Result<AuthUserGrantRoleResponse> {
        self.call(Rpc::UserGrantRole, &AuthUserGrantRoleRequest { user: user.into(), role: role.into() }).await
    }

    /// Takes a role from a user.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn user_revoke_role(
        &self,
        name: impl Into<String>,
        role: impl Into<String>,
    ) -> Result<AuthUserRevokeRoleResponse> {
        self.call(Rpc::UserRevokeRole, &AuthUserRevokeRoleRequest { name: name.into(), role: role.into() }).await
    }

    /// Adds a role, which allows nothing yet.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn role_add(&self, name: impl Into<String>) -> Result<AuthRoleAddResponse> {
        self.call(Rpc::RoleAdd, &AuthRoleAddRequest { name: name.into() }).await
    }

    /// The permissions of a role.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn role_get(&self, role: impl Into<String>) -> Result<AuthRoleGetResponse> {
        self.call(Rpc::RoleGet, &AuthRoleGetRequest { role: role.into() }).await
    }

    /// The names of all roles.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn role_list(&self) -> Result<AuthRoleListResponse> {
        self.call(Rpc::RoleList, &AuthRoleListRequest {}).await
    }

    /// Removes a role, from its users too.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn role_delete(&self, role: impl Into<String>) -> Result<AuthRoleDeleteResponse> {
        self.call(Rpc::RoleDelete, &AuthRoleDeleteRequest { role: role.into() }).await
    }

    /// Allows a role to read, write or both in a range.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn role_grant_permission(
        &self,
        role: impl Into<String>,
        allowed: PermissionType,
        range: KeyRange,
    ) -> Result<AuthRoleGrantPermissionResponse> {
        let perm = Permission { perm_type: allowed.into(), key: range.key, range_end: range.range_end };
        let request = AuthRoleGrantPermissionRequest { name: role.into(), perm: Some(perm) };
        self.call(Rpc::RoleGrantPermission, &request).await
    }

    /// Takes back what was granted for exactly this range.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn role_revoke_permission(
        &self,
        role: impl Into<String>,
        range: KeyRange,
    ) -> Result<AuthRoleRevokePermissionResponse> {
        let KeyRange { key, range_end } = range;
        self.call(Rpc::RoleRevokePermission, &AuthRoleRevokePermissionRequest { role: role.into(), key, range_end })
            .await
    }

    /// A token for a user, from the server. A client with
    /// [`crate::Options::user`] does this by itself.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn authenticate(
        &self,
        name: impl Into<String>,
        password: impl Into<String>,
    ) -> Result<AuthenticateResponse> {
        self.call(Rpc::Authenticate, &AuthenticateRequest { name: name.into(), password: password.into() }).await
    }
}
