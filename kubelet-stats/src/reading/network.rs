//! The network.

/// The network of a network namespace (`info.NetworkStats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkUsage {
    /// Its interfaces in the order of the kernel, without loopback and those of other containers (`lo`, `veth…`,
    /// `docker…`, `nerdctl…`).
    pub interfaces: Vec<Interface>,
    /// TCP over IPv4. The kubelet does not read it: `None`.
    pub tcp: Option<TcpConnections>,
    /// TCP over IPv6. The kubelet does not read it: `None`.
    pub tcp6: Option<TcpConnections>,
    /// UDP over IPv4. The kubelet does not read it: `None`.
    pub udp: Option<UdpSockets>,
    /// UDP over IPv6. The kubelet does not read it: `None`.
    pub udp6: Option<UdpSockets>,
}

/// The traffic of an interface since it was created (`info.InterfaceStats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Errors at receiving.
    pub rx_errors: u64,
    /// Packets dropped at receiving.
    pub rx_dropped: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Errors at sending.
    pub tx_errors: u64,
    /// Packets dropped at sending.
    pub tx_dropped: u64,
}

/// The number of TCP connections in each state (`info.TcpStat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names of TCP's states.
pub struct TcpConnections {
    pub established: u64,
    pub syn_sent: u64,
    pub syn_recv: u64,
    pub fin_wait1: u64,
    pub fin_wait2: u64,
    pub time_wait: u64,
    pub close: u64,
    pub close_wait: u64,
    pub last_ack: u64,
    pub listen: u64,
    pub closing: u64,
}

/// UDP sockets (`info.UdpStat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpSockets {
    /// The number of sockets.
    pub listen: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Bytes in receive queues.
    pub rx_queued: u64,
    /// Bytes in send queues.
    pub tx_queued: u64,
}
