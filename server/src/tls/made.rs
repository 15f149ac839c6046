//! A certificate that a member makes for itself (`--auto-tls`): it hides the traffic from those who
//! only listen, and proves nothing.

use super::unfit::Unfit;
use crate::sockets;
use disk::urls::Url;
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Certificate and key. They are kept in memory until [`Made::keep`]: a founder writes nothing
/// before it may.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    folder: PathBuf,
    cert_pem: String,
    key_pem: Secret,
}

#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Made {
    /// Takes what a start before this one kept in `folder`, or makes it anew for the hosts of
    /// `urls`, valid for so many years.
    ///
    /// # Errors
    /// No years, or what is kept cannot be read.
    pub(crate) fn find_or_make(folder: &Path, urls: &[&Url], years: u64) -> Result<Made, Unfit> {
        if years == 0 {
            return Err(Unfit::NoYears);
        }
        let folder = folder.to_path_buf();
        let read = |name: &str| match fs::read_to_string(folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Unfit::content(&folder.join(name), error)),
            Ok(text) => Ok(Some(text)),
        };
        if let (Some(cert_pem), Some(key_pem)) = (read("cert.pem")?, read("key.pem")?) {
            return Ok(Made { cert_pem, key_pem: Secret(key_pem), folder });
        }
        let (cert_pem, key_pem) = make(urls, years).map_err(Unfit::refused)?;
        Ok(Made { folder, cert_pem, key_pem: Secret(key_pem) })
    }

    /// Where the certificate is kept.
    pub(crate) fn cert_file(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    /// Where its key is kept.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// Certificate and key as rustls takes them.
    ///
    /// # Errors
    /// What was kept is none.
    pub(crate) fn pair(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Unfit> {
        use rustls::pki_types::pem::PemObject;
        let bad = |path: PathBuf| move |error| Unfit::content(&path, error);
        let chain = CertificateDer::pem_slice_iter(self.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.0.as_bytes());
        Ok((chain.map_err(bad(self.cert_file()))?, key.map_err(bad(self.key_file()))?))
    }

    /// Writes both files, unless they are there. The key is for the owner alone.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn keep(&self) -> io::Result<()> {
        if self.cert_file().exists() && self.key_file().exists() {
            return Ok(());
        }
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        write(&self.key_file(), &self.key_pem.0)?;
        write(&self.cert_file(), &self.cert_pem)?;
        File::open(&self.folder)?.sync_all()
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn make(urls: &[&Url], years: u64) -> Result<(String, String), rcgen::Error> {
    let mut hosts: Vec<String> =
        urls.iter().map(|url| sockets::host(url).to_string()).filter(|host| !host.is_empty()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "etcd");
    let today = TimeZone::UTC.to_datetime(Timestamp::now()).date();
    // The calendar ends with the year 9999.
    let days = i64::try_from(years).unwrap_or(i64::MAX).min(1000) * 365;
    let last = today.saturating_add(days.days());
    let at = |date: Date| date_time_ymd(i32::from(date.year()), date.month() as u8, date.day() as u8);
    (params.not_before, params.not_after) = (at(today), at(last));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_made_once_and_kept_for_the_owner_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = dir.path().join("fixtures/peer");
        let urls = [Url::parse("https://127.0.0.1:1").expect("good"), Url::parse("https://localhost:2").expect("good")];
        let made = Made::find_or_make(&folder, &urls.iter().collect::<Vec<_>>(), 1).expect("made");
        assert!(!folder.exists(), "nothing is written before it may be");
        made.keep().expect("kept");
        let mode = |path: PathBuf| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!((mode(made.key_file()), mode(folder.clone())), (0o600, 0o700));
        let again = Made::find_or_make(&folder, &[], 1).expect("found");
        assert_eq!(again.pair().expect("good"), made.pair().expect("good"));
        let shown = &made.pair().expect("good").0[0];
        assert!(tls::is_valid_for(shown, "127.0.0.1") && tls::is_valid_for(shown, "localhost"));
        assert!(!format!("{made:?}").contains("PRIVATE"));
        assert!(Made::find_or_make(&folder, &[], 0).is_err());
    }
}
