//! The simulated machine: verilated cards, and the hosts and wires around them.
//!
//! * [`world`]: cards with their clocks, hosts, wires and stations, all in one simulated time;
//! * [`host`]: memory, link, registers and interrupts of one card's host;
//! * [`wire`](mod@wire): cables with faults, the MAC, recording and replay of frames;
//! * [`monitor`]: rules that every card must keep in every cycle, and the trail of events;
//! * [`config_space`]: the configuration space of a card's PCI function;
//! * [`function`]: a card of a world as the driver sees it;
//! * [`socket_file`]: sockets that listen at a path;
//! * [`served`]: cards of a world as PCI functions behind vfio-user, for other processes.
//!
//! The machine knows no design: it takes any verilated model with the ports of a card.

pub mod config_space;
pub mod function;
pub mod host;
pub mod monitor;
pub mod served;
pub mod socket_file;
pub mod wire;
pub mod world;
