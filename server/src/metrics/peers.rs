//! Lines to the other members.

use super::{Maker, histograms};
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};

/// Labels are ids in hexadecimal.
pub(crate) struct OfPeers {
    pub(crate) round_trip: HistogramVec,
    pub(crate) sent_bytes: IntCounterVec,
    pub(crate) received_bytes: IntCounterVec,
    pub(crate) sent_failures: IntCounterVec,
    pub(crate) received_failures: IntCounterVec,
    pub(crate) active: IntGaugeVec,
    known: IntGaugeVec,
    pub(crate) disconnected: IntCounterVec,
    /// Connections to peers that are of another founding.
    pub(crate) other_foundings: IntCounter,
    pub(super) lost: IntCounterVec,
}

impl OfPeers {
    pub(super) fn new(m: &Maker) -> OfPeers {
        let (to, from, pair) = (&["To"][..], &["From"][..], &["Local", "Remote"][..]);
        let (name, help) = ("etcd_network_peer_round_trip_time_seconds", "Seconds of a round trip to a peer.");
        OfPeers {
            round_trip: m.add(histograms(name, help, (0.0001, 16), to)),
            sent_bytes: m.counters("etcd_network_peer_sent_bytes_total", "Bytes sent to a peer.", to),
            received_bytes: m.counters("etcd_network_peer_received_bytes_total", "Bytes received from a peer.", from),
            sent_failures: m.counters(
                "etcd_network_peer_sent_failures_total",
                "Connections to a peer that failed or broke.",
                to,
            ),
            received_failures: m.counters(
                "etcd_network_peer_received_failures_total",
                "Connections from a peer that broke, or on which it said what cannot be read.",
                from,
            ),
            active: m.gauges("etcd_network_active_peers", "1: the peer is connected.", pair),
            known: m.gauges("etcd_network_known_peers", "1: the member is known, this one too.", pair),
            disconnected: m.counters("etcd_network_disconnected_peers_total", "Connections to a peer lost.", pair),
            other_foundings: m.counter(
                "kvorum_peer_foundings_refused_total",
                "Connections to peers that were refused because their data directory is of another founding.",
            ),
            lost: m.counters(
                "kvorum_peer_frames_lost_total",
                "Frames for peers given up: too many waited (full), or there was no connection (closed).",
                &["lane", "reason"],
            ),
        }
    }

    /// A member is spoken to from now on.
    pub(crate) fn know(&self, ours: &str, peer: &str) {
        for member in [ours, peer] {
            self.known.with_label_values(&[ours, member]).set(1);
        }
    }

    /// Takes the series of a peer away that is spoken to no more.
    pub(crate) fn forget(&self, ours: &str, peer: &str) {
        // A series that never began is none that could be left.
        let _ = self.round_trip.remove_label_values(&[peer]);
        let counters = [&self.sent_bytes, &self.received_bytes, &self.sent_failures, &self.received_failures];
        for counters in counters {
            let _ = counters.remove_label_values(&[peer]);
        }
        for gauges in [&self.active, &self.known] {
            let _ = gauges.remove_label_values(&[ours, peer]);
        }
        let _ = self.disconnected.remove_label_values(&[ours, peer]);
    }
}
