//! Admin ring and sequencer, joined, against an interpreter of commands in plain Rust.
//!
//! The interpreter knows the layout's parser, its tables of states and its records, and nothing of microcode and store. The tests
//! play the host, the stages and the sections of the card, with random delays. Each object has its part of the interpreter and
//! its tests in a file of its own.
mod address_handle;
mod completion_queue;
mod draw;
mod event_queue;
mod invalidate;
mod model;
mod queue_pair;
mod region;
mod reset;
mod ring;
mod shared_receive_queue;
mod world;

use crate::admin_ring::AdminRing;
use crate::invalidate::BUSY_CYCLES;
use crate::messages::{PageWrite, SECTIONS};
use crate::object_store::Kind;
use crate::sequencer::Sequencer;
use draw::probe;
use model::{Model, QueuePair};
use num_bigint::BigUint;
use queue_pair::{goes_to, prepare};
use rand::Rng;
use rand::seq::IndexedRandom;
use region::{make_region, paged};
use rnic_blocks::bench::{Bench, Random, random};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{
    Answer, BODIES, BODY_OFFSET, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus,
    CreateAddressHandle, CreateCompletionQueue, CreateEventQueue, CreateQueuePair, CreateRegion,
    CreateSharedReceiveQueue, ModifyQueuePair, ModifyRegion, ModifySharedReceiveQueue, Query, RegionKind,
    ResizeCompletionQueue,
};
use rnic_layout::context::PathRecord;
use rnic_layout::field::Record;
use rnic_layout::queue::event::{AsyncEvent, EventKind};
use rnic_layout::registers::FatalCode;
use rnic_layout::state::{
    ATTRIBUTES, AttributeMask, Cause, QpState, Service, TransitionError, after, check_transition, transition,
};
use rnic_messages::complete::{CompletionQueueSetup, EventQueueSetup};
use rnic_messages::host::Slot;
use rnic_messages::protect::{Invalidated, Invalidation, PageEntryWrite, Region, RegionWrite};
use rnic_messages::read::{READ_UNIT_BITS, ReadShare};
use rnic_messages::setup::{
    InFlight, NoticeKind, QpNotice, SetupEvent, SetupKind, SrqLimitNotice, SrqSetup, SrqSetupKind,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use world::World;

type Bytes = [u8; COMMAND_BYTES];

type Refusal = (CommandStatus, u32);

const COMMAND_BASE: u64 = 0x1234_5678_9000;

const ANSWER_BASE: u64 = 0xffff_0000_1000;

/// What leaves the blocks.
#[derive(Clone, Debug, PartialEq)]
enum Message {
    Setup(Box<SetupEvent>),
    SrqSetup(SrqSetup),
    Region(RegionWrite),
    CompletionQueue(CompletionQueueSetup),
    EventQueue(EventQueueSetup),
    Page(PageWrite),
    PageEntry(PageEntryWrite),
    Write(u64, Vec<u8>),
    Event(u64, u64, u64, u64),
}

/// A notice of a stage.
#[derive(Clone, Copy)]
enum Notice {
    OfQueuePair(QpNotice),
    OfLimit(SrqLimitNotice),
}

fn body(bytes: &Bytes) -> &[u8] {
    &bytes[BODY_OFFSET..]
}

fn get(record: &Record, bytes: &Bytes, name: &str) -> u64 {
    record.field(name).get(body(bytes))
}

fn put(record: &Record, bytes: &mut Bytes, name: &str, value: u64) {
    record.field(name).set(&mut bytes[BODY_OFFSET..], value).expect("the value fits");
}

fn at(record: &Record, name: &str) -> u32 {
    BODY_OFFSET as u32 * 8 + record.field(name).offset
}

fn refuse<T>(status: CommandStatus, detail: u32) -> Result<T, Refusal> {
    Err((status, detail))
}

/// Makes a command whose body has its reset values.
fn blank(opcode: CommandOpcode, number: u32, random: &mut Random) -> Bytes {
    let mut bytes = [0; COMMAND_BYTES];
    if let Some(record) = record_of(opcode) {
        record.reset(&mut bytes[BODY_OFFSET..]);
    }
    CommandHeader { opcode, tag: random.random(), object_number: number }
        .emit(&mut bytes[..8])
        .expect("it fits");
    bytes
}

fn record_of(opcode: CommandOpcode) -> Option<&'static Record> {
    BODIES.iter().find(|(opcodes, _)| opcodes.contains(&opcode)).map(|entry| entry.1)
}
