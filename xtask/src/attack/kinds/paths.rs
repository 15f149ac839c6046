//! The paths of calls.

pub(super) const PUT: &str = "/etcdserverpb.KV/Put";
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";
pub(super) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
