//! What went wrong in a handshake, in the words of Go, which tools look for.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::io;

/// The other side has gone, without a word of TLS.
pub(super) fn is_end(error: &io::Error) -> bool {
    inner(error).is_none() && error.kind() == io::ErrorKind::UnexpectedEof
}

fn inner(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}

/// An error of a handshake as etcd's log has it.
pub(crate) fn in_gos_words(error: &io::Error) -> String {
    match inner(error) {
        Some(error) => of_tls(error),
        None if is_end(error) => "EOF".into(),
        None => error.to_string(),
    }
}

fn of_tls(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => format!("remote error: tls: {}", of_alert(*alert)),
        Error::NoCertificatesPresented => "tls: client didn't provide a certificate".into(),
        // Only the check of allowed names and hosts says this; a name that does not fit comes with
        // its context.
        Error::InvalidCertificate(CertificateError::NotValidForName) => {
            "client certificate authentication failed".into()
        }
        Error::InvalidCertificate(error) => {
            format!("tls: failed to verify certificate: x509: {}", of_certificate(error))
        }
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic,
        ) => "tls: client offered only unsupported versions".into(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "tls: no cipher suite supported by both client and server".into()
        }
        Error::NoApplicationProtocol => "tls: client requested unsupported application protocols".into(),
        Error::DecryptError => "local error: tls: bad record MAC".into(),
        other => format!("tls: {other}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::NotValidForNameContext { expected, presented } => {
            let valid: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            format!("certificate is valid for {}, not {}", valid.join(", "), expected.to_str())
        }
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".into(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".into()
        }
        other => format!("{other:?}"),
    }
}

/// `DnsName("a")` and `IpAddress(1.2.3.4)` without what stands around the name.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn of_alert(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateRequired => "certificate required",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::InternalError => "internal error",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::AccessDenied => "access denied",
        AlertDescription::NoApplicationProtocol => "no application protocol",
        AlertDescription::UserCanceled => "user canceled",
        other => return format!("alert({})", u8::from(other)),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_gos() {
        let tls = |error: Error| in_gos_words(&io::Error::new(io::ErrorKind::InvalidData, error));
        let table = [
            (Error::AlertReceived(AlertDescription::BadCertificate), "remote error: tls: bad certificate"),
            (Error::AlertReceived(AlertDescription::Unknown(200)), "remote error: tls: alert(200)"),
            (Error::NoCertificatesPresented, "tls: client didn't provide a certificate"),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "client certificate authentication failed"),
            (
                Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                    expected: "10.0.0.1".try_into().expect("an address"),
                    presented: vec!["DnsName(\"a.example\")".into(), "IpAddress(127.0.0.1)".into()],
                }),
                "tls: failed to verify certificate: x509: certificate is valid for a.example, 127.0.0.1, not 10.0.0.1",
            ),
        ];
        for (error, text) in table {
            assert_eq!(tls(error), text);
        }
        assert_eq!(in_gos_words(&io::ErrorKind::UnexpectedEof.into()), "EOF");
    }
}
