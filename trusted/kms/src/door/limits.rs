use std::time::Duration;

/// What one caller, and all together, may take.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Connections of a listener at the same time.
    pub(crate) connections: usize,
    /// Those of one network address. Guests behind one node's address translation share one.
    pub(crate) connections_per_peer: usize,
    /// New connections of one network address within a second, over some time.
    pub(crate) handshakes_per_second: f64,
    /// As many at once.
    pub(crate) handshakes_at_once: f64,
    /// Requests of one network address within a second, over some time.
    pub(crate) requests_per_second: f64,
    /// As many at once.
    pub(crate) requests_at_once: f64,
    /// Longest wait for the head of a request, and for the first byte of the next one.
    pub(crate) head: Duration,
    /// Longest wait for the body of a request.
    pub(crate) body: Duration,
    /// Longest time without a request.
    pub(crate) idle: Duration,
    /// Longest life of a connection: whoever stays longer shakes hands again, and is verified again.
    pub(crate) age: Duration,
    /// How long a connection may take to end once it was told to.
    pub(crate) farewell: Duration,
    /// Requests of one HTTP/2 connection at the same time.
    pub(crate) streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            connections_per_peer: 512,
            handshakes_per_second: 100.0,
            handshakes_at_once: 400.0,
            requests_per_second: 20_000.0,
            requests_at_once: 20_000.0,
            head: Duration::from_secs(30),
            body: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            age: Duration::from_mins(10),
            farewell: Duration::from_secs(10),
            streams: 128,
        }
    }
}

/// Longest head of a request, in bytes.
pub(crate) const MAX_HEAD_BYTES: u32 = 16 << 10;
/// Most fields of a head.
pub(crate) const MAX_HEADERS: usize = 64;
