//! What software has set up: the registers of the port, and what commands say of each queue pair.
use crate::rates::Rates;
use crate::requests::Requester;
use crate::responses::Responder;
use rnic_layout::admin::{CreateAddressHandle, ModifyQueuePair};
use rnic_layout::path::Gid;
use rnic_layout::psn::Psn;
use rnic_layout::registers::{
    OwnMac, PortControl, REG_OWN_MAC, REG_PORT_CONTROL, REG_SOURCE_ADDRESS_HIGH, REG_SOURCE_ADDRESS_LOW,
    REG_SOURCE_ADDRESS_PORT, REG_TIMER_UNIT, Register, SourceAddressPort, TimerUnit,
};
use rnic_layout::state::{AttributeMask, QpState, Service};
use rnic_layout::wire::bth::PARTITION_KEY_DEFAULT;
use rnic_layout::wire::{Filter, MacAddress};

/// A source address of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) gid: Gid,
    pub(crate) mac: [u8; 6],
}

/// Addresses of the port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) filter: Filter,
    pub(crate) sources: Vec<Source>,
    /// Unit of the acknowledgement timeouts, in picoseconds.
    pub(crate) timer_unit_ps: u64,
}

/// Unit of the acknowledgement timeouts after a reset, in picoseconds (protocol 2.6).
pub(crate) const TIMER_UNIT_PS: u64 = 4_096_000;

impl Default for Port {
    fn default() -> Port {
        let filter = Filter { own_mac: MacAddress([0; 6]), promiscuous: false, accept_multicast: true };
        let sources = vec![Source::default(); REG_SOURCE_ADDRESS_PORT.count as usize];
        Port { filter, sources, timer_unit_ps: TIMER_UNIT_PS }
    }
}

/// Returns the MAC address of a number, whose most significant byte is the first on the wire.
pub(crate) fn mac(number: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = number.to_be_bytes();
    bytes
}

/// Returns the index in an array of registers, if the offset is of one of them.
fn index(register: Register, offset: u64) -> Option<usize> {
    let inside = offset.checked_sub(register.offset.into())?;
    let stride = u64::from(register.stride.max(1));
    let is_of_it = inside.is_multiple_of(stride) && inside / stride < u64::from(register.count);
    is_of_it.then_some((inside / stride) as usize)
}

impl Port {
    /// Software writes a register of a card of these rates.
    pub(crate) fn register(&mut self, offset: u64, value: u64, rates: Rates) {
        let bytes = value.to_le_bytes();
        if index(REG_OWN_MAC, offset).is_some() {
            if let Ok(own) = OwnMac::parse(&bytes) {
                self.filter.own_mac = MacAddress(mac(own.mac));
            }
        } else if index(REG_PORT_CONTROL, offset).is_some() {
            if let Ok(control) = PortControl::parse(&bytes) {
                self.filter.promiscuous = control.promiscuous;
            }
        } else if index(REG_TIMER_UNIT, offset).is_some() {
            if let Ok(unit) = TimerUnit::parse(&bytes) {
                self.timer_unit_ps = rates.cycles_ps(unit.cycles.max(1).into());
            }
        } else if let Some(index) = index(REG_SOURCE_ADDRESS_HIGH, offset) {
            self.sources[index].gid.0[..8].copy_from_slice(&value.to_be_bytes());
        } else if let Some(index) = index(REG_SOURCE_ADDRESS_LOW, offset) {
            self.sources[index].gid.0[8..].copy_from_slice(&value.to_be_bytes());
        } else if let Some(index) = index(REG_SOURCE_ADDRESS_PORT, offset)
            && let Ok(port) = SourceAddressPort::parse(&bytes)
        {
            self.sources[index].mac = mac(port.mac);
        }
    }
}

/// What a queue pair lets its peer do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) write: bool,
    pub(crate) read: bool,
    pub(crate) atomic: bool,
}

/// What commands have set of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetUp {
    pub(crate) service: Service,
    pub(crate) state: QpState,
    pub(crate) peer: u32,
    pub(crate) pmtu_bytes: u32,
    pub(crate) partition_key: u16,
    pub(crate) reads_max: u8,
    /// READs and atomics of the peer that it must take, and what the peer may do: the least that was set since the queue pair was
    /// connected, as a command may not be executed yet.
    pub(crate) reads_taken: u8,
    pub(crate) rights: Rights,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) path: Option<CreateAddressHandle>,
}

impl SetUp {
    /// A queue pair in RESET.
    pub(crate) fn new(service: Service) -> SetUp {
        SetUp {
            service,
            state: QpState::Reset,
            peer: 0,
            pmtu_bytes: 0,
            partition_key: PARTITION_KEY_DEFAULT,
            reads_max: 0,
            reads_taken: 0,
            rights: Rights::default(),
            min_rnr_timer: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            path: None,
        }
    }
}

/// A queue pair: what commands have set, and what has crossed the port.
#[derive(Clone, Debug)]
pub(crate) struct QueuePair {
    pub(crate) set_up: SetUp,
    pub(crate) requester: Option<Requester>,
    pub(crate) responder: Option<Responder>,
    /// Packets that arrived with the mark of the network, and for which no CNP was sent.
    pub(crate) marked: u32,
}

impl QueuePair {
    /// A queue pair in RESET.
    pub(crate) fn new(service: Service) -> QueuePair {
        QueuePair { set_up: SetUp::new(service), requester: None, responder: None, marked: 0 }
    }

    /// Takes over what has crossed the port from another state of the same connection.
    pub(crate) fn take_history(&mut self, other: &QueuePair) {
        if self.requester.is_some() {
            self.requester.clone_from(&other.requester);
        }
        if self.responder.is_some() {
            self.responder.clone_from(&other.responder);
        }
        self.marked = other.marked;
    }

    /// Changes it as a command to a card of these rates says. `handle` is the address handle that the command names.
    pub(crate) fn modify(
        &mut self,
        body: &ModifyQueuePair,
        handle: Option<CreateAddressHandle>,
        rates: Rates,
    ) {
        let mask = AttributeMask(body.mask);
        let is_connected = self.responder.is_some();
        let set_up = &mut self.set_up;
        if mask.contains(AttributeMask::ACCESS) {
            let Rights { write, read, atomic } =
                if is_connected { set_up.rights } else { Rights { write: true, read: true, atomic: true } };
            set_up.rights = Rights {
                write: write && body.remote_write,
                read: read && body.remote_read,
                atomic: atomic && body.remote_atomic,
            };
        }
        if mask.contains(AttributeMask::DESTINATION_READ_ATOMIC) {
            let most = if is_connected { set_up.reads_taken } else { u8::MAX };
            set_up.reads_taken = body.destination_read_atomic.min(most);
        }
        if mask.contains(AttributeMask::PARTITION) {
            set_up.partition_key = body.partition_key;
        }
        if mask.contains(AttributeMask::ADDRESS) {
            set_up.path = handle;
        }
        if mask.contains(AttributeMask::PATH_MTU) {
            set_up.pmtu_bytes = body.path_mtu.size().map_or(0, |pmtu| pmtu.bytes());
        }
        if mask.contains(AttributeMask::TIMEOUT) {
            set_up.timeout = body.timeout;
        }
        if mask.contains(AttributeMask::RETRY_COUNT) {
            set_up.retry_count = body.retry_count;
        }
        if mask.contains(AttributeMask::RNR_RETRY) {
            set_up.rnr_retry = body.rnr_retry;
        }
        if mask.contains(AttributeMask::READ_ATOMIC) {
            set_up.reads_max = body.read_atomic;
        }
        if mask.contains(AttributeMask::MIN_RNR_TIMER) {
            set_up.min_rnr_timer = body.min_rnr_timer;
        }
        if mask.contains(AttributeMask::DESTINATION_QP) {
            set_up.peer = body.destination_qp;
        }
        if mask.contains(AttributeMask::RECEIVE_PSN) {
            self.responder = Some(Responder::new(Psn::wrapping(body.receive_psn)));
        }
        if mask.contains(AttributeMask::SEND_PSN) {
            self.requester = Some(Requester::new(Psn::wrapping(body.send_psn), rates));
        }
        if mask.contains(AttributeMask::STATE) {
            set_up.state = body.next_state;
            if body.next_state == QpState::Reset {
                *self = QueuePair::new(self.set_up.service);
            }
        }
    }
}
