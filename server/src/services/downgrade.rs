//! `Maintenance.Downgrade`: what a target version is, and that there is none to go down to here.
//!
//! A cluster of etcd goes down a minor version so that members of the version before may join it.
//! There is one version of kvorum's protocol, so a downgrade is checked and never begun.

use crate::transport::call::Call;
use crate::transport::status::{Code, Status};
use node::{Answer, Request};
use store::protobuf::{self, Fields};

const WRONG_FORMAT: Status = Status::new(Code::InvalidArgument, "etcdserver: wrong downgrade target version format");
const WRONG_TARGET: Status = Status::new(Code::InvalidArgument, "etcdserver: invalid downgrade target version");
const NO_VERSION: Status =
    Status::new(Code::FailedPrecondition, "etcdserver: cluster version not found during downgrade");
const UNKNOWN: Status = Status::new(Code::Unknown, "etcdserver: unknown method");

const VALIDATE: i32 = 0;
const ENABLE: i32 = 1;
const CANCEL: i32 = 2;

/// Major and minor of a version with two or three numbers, and whatever semantic versions allow
/// behind three.
fn parse(version: &str) -> Option<(u64, u64)> {
    let full = |version: &str| {
        let version = version.split_once('+').map_or(version, |(version, _)| version);
        let numbers = version.split_once('-').map_or(version, |(numbers, _)| numbers);
        let numbers: Vec<&str> = numbers.split('.').collect();
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match numbers[..] {
            [major, minor, patch] if numbers.iter().all(digits) => {
                patch.parse::<i64>().ok()?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            }
            _ => None,
        }
    };
    full(version).or_else(|| full(&format!("{version}.0")))
}

pub(crate) async fn downgrade(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (mut action, mut target) = (0, String::new());
    let mut fields = Fields::new(&request);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => action = value.int32(),
            (2, value) => target = String::from_utf8_lossy(value.bytes()).into_owned(),
            _ => {}
        }
    }
    call.read(Request::Admin).await?;
    if !matches!(action, VALIDATE | ENABLE | CANCEL) {
        return Err(UNKNOWN);
    }
    let wanted = match action {
        CANCEL => None,
        _ => Some(parse(&target).ok_or(WRONG_FORMAT)?),
    };
    let asked = call.read(Request::Status).await?;
    let Answer::Status(now) = asked.answer else { return Err(Status::unexpected("status")) };
    let (major, minor) = parse(&now.cluster_version).ok_or(NO_VERSION)?;
    if let Some(wanted) = wanted {
        if Some(wanted) != minor.checked_sub(1).map(|minor| (major, minor)) {
            return Err(WRONG_TARGET);
        }
        if action == ENABLE {
            let text =
                format!("kvorum: a downgrade is not begun: no version of it speaks as {}.{} alone", wanted.0, wanted.1);
            return Err(Status::with(Code::Unimplemented, text));
        }
    }
    let mut rest = Vec::new();
    protobuf::write_bytes(&mut rest, 2, format!("{major}.{minor}").as_bytes());
    call.answer(now.revision, now.term, &rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_etcd_reads_them() {
        for version in ["3.6", "3.6.0", "3.6.5", "3.6.0-rc.1", "3.6.0+x"] {
            assert_eq!(parse(version), Some((3, 6)), "{version}");
        }
        for version in ["", "x", "3", "v3.6", "3.6-rc", "3.6.0.1", "-1.0", "3.6.", ".6", "3..6"] {
            assert_eq!(parse(version), None, "{version}");
        }
    }
}
