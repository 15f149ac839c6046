//! What the system says of this process, beside what the library knows (CPU, memory, open files).

use super::{Maker, signed};
use prometheus::{IntCounter, IntGauge};
use rustix::process::{Resource, getrlimit};

/// Read when somebody looks.
pub(super) struct OfProcess {
    fd_used: IntGauge,
    fd_limit: IntGauge,
    memory_most: IntGauge,
    received: IntCounter,
    sent: IntCounter,
}

impl OfProcess {
    pub(super) fn new(m: &Maker) -> OfProcess {
        let received = "Bytes received over the network by everything in the namespace of this process.";
        let sent = "Bytes sent over the network by everything in the namespace of this process.";
        OfProcess {
            fd_used: m.gauge("os_fd_used", "Descriptors open now."),
            fd_limit: m.gauge("os_fd_limit", "Most descriptors that may be open."),
            memory_most: m.gauge("process_virtual_memory_max_bytes", "Most bytes of address space that it may have."),
            received: m.counter("process_network_receive_bytes_total", received),
            sent: m.counter("process_network_transmit_bytes_total", sent),
        }
    }

    pub(super) fn look(&self) {
        // The one that lists the others does not count.
        let used = std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count().saturating_sub(1));
        self.fd_used.set(signed(used as u64));
        self.fd_limit.set(signed(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)));
        self.memory_most.set(signed(getrlimit(Resource::As).current.unwrap_or(u64::MAX)));
        let (received, sent) = std::fs::read_to_string("/proc/self/net/netstat")
            .map_or((0, 0), |text| (octets(&text, "InOctets"), octets(&text, "OutOctets")));
        for (counter, bytes) in [(&self.received, received), (&self.sent, sent)] {
            counter.inc_by(bytes.saturating_sub(counter.get()));
        }
    }
}

/// A number of `IpExt`: a line of names, and a line of numbers below it.
fn octets(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split(' ').zip(numbers.split(' ')).find(|(known, _)| *known == name);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_their_names() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 123 456\n";
        assert_eq!((octets(text, "InOctets"), octets(text, "OutOctets"), octets(text, "None")), (123, 456, 0));
        assert_eq!(octets("", "InOctets"), 0);
    }
}
