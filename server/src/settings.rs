//! What a running member was told by its flags, in the units the code works with.

use crate::tokens::Tokens;
use std::sync::Arc;
use std::time::Duration;

/// The etcd version this program stands in for: `--version`, `/version`, Status,
/// cluster and storage version.
pub(crate) const ETCD_LEVEL: &str = "3.7.3";

/// One of `--feature-gates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// ALPHA or BETA.
    pub(crate) stage: &'static str,
    pub(crate) on: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    /// `--max-request-bytes`: limit of a request's command, in bytes.
    pub(crate) max_request_bytes: u64,
    /// `--max-txn-ops`: operations in one transaction (per list).
    pub(crate) max_txn_ops: usize,
    pub(crate) election: Duration,
    pub(crate) heartbeat: Duration,
    /// `--quota-backend-bytes`; 0 = default (2 GiB), negative = no quota.
    pub(crate) quota_bytes: i64,
    /// `--scrub-interval`: everything at rest is verified in about this time; zero = never.
    pub(crate) scrub_interval: Duration,
    /// `--strict-reconfig-check`: no change of members that would cost the quorum.
    pub(crate) strict_reconfig: bool,
    /// `--max-learners`.
    pub(crate) max_learners: usize,
    /// `--auth-token`.
    pub(crate) tokens: Arc<Tokens>,
    /// `--auth-token-ttl`: seconds that a simple token lives without use.
    pub(crate) token_seconds: u64,
    /// `--bcrypt-cost`.
    pub(crate) bcrypt_cost: u32,
    pub(crate) max_concurrent_streams: u32,
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_timeout: Duration,
    pub(crate) watch_progress_interval: Duration,
    /// `--feature-gates`: all of them.
    pub(crate) gates: Vec<Gate>,
    /// `--metrics extensive`.
    pub(crate) extensive_metrics: bool,
    /// `--cors`: allowed origins, or `*`.
    pub(crate) cors: Vec<String>,
    /// `--host-whitelist`.
    pub(crate) host_whitelist: Vec<String>,
    /// `--warning-unary-request-duration`.
    pub(crate) warn_unary_after: Duration,
    /// `--warning-apply-duration`.
    pub(crate) warn_apply_after: Duration,
    /// `--client-cert-auth`: the CN of a client's certificate is a user's name.
    pub(crate) client_cert_auth: bool,
    /// `--enable-grpc-gateway`.
    pub(crate) gateway: bool,
    /// Every bound in bytes.
    pub(crate) budgets: crate::budgets::Limits,
    /// Seed of what the edge draws (lease ids): new for every start.
    pub(crate) seed: u64,
    pub(crate) etcd_level: &'static str,
}

impl Settings {
    /// etcd's limit for a request without a deadline of its own: 5 s for the disk and the
    /// network, and two elections.
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: "default".into(),
            max_request_bytes: 1_572_864,
            max_txn_ops: 128,
            election: Duration::from_millis(1000),
            heartbeat: Duration::from_millis(100),
            quota_bytes: 0,
            scrub_interval: Duration::from_secs(24 * 60 * 60),
            strict_reconfig: true,
            max_learners: 1,
            tokens: Arc::new(Tokens::Simple),
            token_seconds: 300,
            bcrypt_cost: 10,
            max_concurrent_streams: u32::MAX,
            keepalive_interval: Duration::from_secs(7200),
            keepalive_timeout: Duration::from_secs(20),
            watch_progress_interval: Duration::from_secs(600),
            gates: Vec::new(),
            extensive_metrics: false,
            cors: vec!["*".into()],
            host_whitelist: vec!["*".into()],
            warn_unary_after: Duration::from_millis(300),
            warn_apply_after: Duration::from_millis(100),
            client_cert_auth: false,
            gateway: true,
            budgets: crate::budgets::Limits::default(),
            seed: 1,
            etcd_level: ETCD_LEVEL,
        }
    }
}
