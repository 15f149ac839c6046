//! Who this member is: ids from the initial cluster as etcd computes them, or from the data
//! directory's `identity` file (`disk::identity`) when there is one.

use crate::options::Options;
pub use disk::founding::Founding;
pub use disk::identity::{Found, find, write as write_identity};
use disk::urls::texts;

/// Level of all formats this program writes. A higher one is refused.
pub const FORMAT_LEVEL: u32 = disk::LEVEL;

/// Checks the initial cluster (`disk::founding`) of the flags.
pub fn founding(options: &Options) -> Result<Founding, String> {
    let cluster = options.initial_cluster.iter().map(|(name, url)| (&name[..], &url.text[..]));
    let founding = disk::founding::founding(&options.name, cluster, &options.token, &texts(&options.advertise_peer))?;
    if options.existing {
        return Err(
            "--initial-cluster-state=existing: joining a running cluster is not supported by this version".into()
        );
    }
    Ok(founding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parse;
    use crate::options::options;
    use disk::Identity;

    fn found(line: &str) -> Result<Founding, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        founding(&options(&parse(&args, &[]).expect("parses"), 1).expect("valid"))
    }

    #[test]
    fn the_flags_found_a_cluster() {
        let one = found("").expect("good");
        assert_eq!(one.identity, Identity { cluster: 0xcdf8_1819_4e3a_8c32, member: 0x8e9e_05c5_2164_694d });
    }

    #[test]
    fn a_wrong_initial_cluster_is_refused_in_etcds_words() {
        let table = [
            (
                "--initial-cluster a=http://localhost:2380",
                "couldn't find local name \"default\" in the initial cluster configuration",
            ),
            (
                "--initial-cluster-state existing",
                "--initial-cluster-state=existing: joining a running cluster is not supported by this version",
            ),
        ];
        for (line, text) in table {
            assert_eq!(found(line).expect_err(line), text, "{line}");
        }
    }
}
