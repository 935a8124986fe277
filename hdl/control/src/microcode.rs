//! Microcode of every command, made from the tables of the contract.
//!
//! Offsets, legal values, reserved bits and masks come from `rnic_layout`; this file has only the order of the checks, and what is
//! copied where. All checks precede all changes.
use crate::instruction::Base::{Command, Reference, Scratch, Subject};
use crate::instruction::{Instruction, Program, Run, TO_OTHER, TO_RESET, word};
use crate::object_store::{self, BODY, Kind, LOADED_WORDS};
use rnic_layout::admin::{
    BODY_OFFSET, COMMAND_BYTES, CommandHeader, CommandOpcode, CommandStatus, CreateAddressHandle,
    CreateCompletionQueue, CreateEventQueue, CreateQueuePair, CreateRegion, CreateSharedReceiveQueue,
    Destroy, ModifyCompletionQueue, ModifyEventQueue, ModifyQueuePair, ModifyRegion,
    ModifySharedReceiveQueue, QUEUE_PAIR_QUERY_BYTES, Query, RegionKind, ResizeCompletionQueue, Translation,
};
use rnic_layout::context::PathRecord;
use rnic_layout::field::{Field, Record};
use rnic_layout::limits;
use rnic_layout::state::{ATTRIBUTES, AttributeMask, QpState, Service};
use rnic_messages::setup::{SetupKind, SrqSetupKind};
use rnic_messages::sizes::{DOORBELL_PAGE_BITS, sizes};

/// Bits of the number of an instruction.
pub const ROW_BITS: usize = 10;
/// Bits of an opcode.
pub const OPCODE_BITS: usize = 8;
/// Width of a count of users of a queue: each of all queue pairs can be two.
const USERS_BITS: usize = 64 - object_store::USERS;
/// One user more.
const USER: u64 = 1 << object_store::USERS;
/// One generation more.
const GENERATION: u64 = 1 << object_store::GENERATION;
/// First bit of the body of a command.
const COMMAND_BODY: usize = BODY_OFFSET * 8;
/// Words of a command.
const COMMAND_WORDS: usize = COMMAND_BYTES / 8;
/// Alignment of the buffer of a query, and of rings.
const BUFFER_ALIGNMENT_LOG2: usize = 6;
const RING_ALIGNMENT_LOG2: usize = limits::RING_ALIGNMENT_BYTES.trailing_zeros() as usize;
/// Scratch word that is always zero.
const ZERO_WORD: usize = 31;
/// Scratch word for comparisons and for the PSNs of a probe.
const NOTE_WORD: usize = 30;
/// The only port.
const PORT: u64 = 1;

/// All instructions, and the beginning of each program.
#[derive(Clone, Debug)]
pub struct Microcode {
    /// The instructions of all programs.
    pub instructions: Vec<Instruction>,
    /// First instruction for each opcode byte.
    pub starts: Vec<usize>,
    /// First instruction of the program that forgets an object in a reset, by kind.
    pub forgets: [usize; 6],
    /// First instruction of the program that sets event queue 0.
    pub event_queue_0: usize,
}

/// Assembles all programs.
pub fn programs() -> Microcode {
    let mut instructions = Vec::new();
    let mut append = |program: Vec<Instruction>| {
        instructions.extend(program);
        instructions.len()
    };
    let mut next = 0;
    let mut start = |program: Vec<Instruction>| core::mem::replace(&mut next, append(program));
    let unknown = start(unknown());
    let mut starts = vec![unknown; 1 << OPCODE_BITS];
    for &opcode in CommandOpcode::ALL {
        use CommandOpcode as Op;
        let program = match opcode {
            Op::Nothing => nothing(),
            Op::CreateQueuePair => create_queue_pair(),
            Op::ModifyQueuePair => modify_queue_pair(),
            Op::QueryQueuePair => query_queue_pair(),
            Op::DestroyQueuePair => destroy_queue_pair(),
            Op::CreateCompletionQueue => create_completion_queue(),
            Op::ModifyCompletionQueue => modify_completion_queue(),
            Op::ResizeCompletionQueue => resize_completion_queue(),
            Op::QueryCompletionQueue => query(Kind::CompletionQueue, Op::CreateCompletionQueue, 2),
            Op::DestroyCompletionQueue => destroy_completion_queue(),
            Op::CreateEventQueue => create_event_queue(),
            Op::ModifyEventQueue => modify_event_queue(),
            Op::QueryEventQueue => query(Kind::EventQueue, Op::CreateEventQueue, 2),
            Op::DestroyEventQueue => destroy_event_queue(),
            Op::CreateSharedReceiveQueue => create_shared_receive_queue(),
            Op::ModifySharedReceiveQueue => modify_shared_receive_queue(),
            Op::QuerySharedReceiveQueue => query_shared_receive_queue(),
            Op::DestroySharedReceiveQueue => destroy_shared_receive_queue(),
            Op::CreateRegion => create_region(),
            Op::ModifyRegion => modify_region(),
            Op::QueryRegion => query(Kind::Region, Op::CreateRegion, REGION_WORDS),
            Op::DestroyRegion => destroy_region(),
            Op::CreateAddressHandle => create_address_handle(),
            Op::ModifyAddressHandle => modify_address_handle(),
            Op::QueryAddressHandle => query(Kind::AddressHandle, Op::CreateAddressHandle, 5),
            Op::DestroyAddressHandle => destroy_address_handle(),
        };
        starts[usize::from(opcode.number())] = start(program);
    }
    let forgets = [
        Kind::QueuePair,
        Kind::Region,
        Kind::CompletionQueue,
        Kind::AddressHandle,
        Kind::EventQueue,
        Kind::SharedReceive,
    ]
    .map(|kind| start(forget(kind)));
    let event_queue_0 = start(event_queue_0());
    assert!(instructions.len() <= 1 << ROW_BITS, "{} instructions do not fit", instructions.len());
    Microcode { instructions, starts, forgets, event_queue_0 }
}

/// Gives a field of the body of the command.
fn body(field: &Field) -> Run {
    Run::field(Command, COMMAND_BODY, field)
}

/// Gives the detail of an answer that refuses a field of the body.
fn detail(field: &Field) -> usize {
    COMMAND_BODY + field.offset as usize
}

fn object_number() -> Run {
    Run::field(Command, 0, CommandHeader::RECORD.field("object_number"))
}

/// Gives a field of the path record of the subject.
fn path(name: &str) -> Run {
    Run::field(Subject, BODY, PathRecord::RECORD.field(name))
}

fn header(base: crate::instruction::Base, bit: usize, width: usize) -> Run {
    Run::new(base, bit, width)
}

fn zeros(width: usize) -> Run {
    Run::new(Scratch, 64 * ZERO_WORD, width)
}

/// Begins a program with the checks of every command with this body.
fn begin(record: &Record) -> Program {
    let mut program = Program::default();
    let opcode = CommandHeader::RECORD.field("opcode");
    for &(first, end) in CommandHeader::RECORD.reserved {
        let run = Run::new(Command, first as usize, (end - first) as usize);
        program.nonzero(run, CommandStatus::ReservedNotZero, opcode.offset as usize);
    }
    program.parse(Command, COMMAND_BODY, record);
    program
}

fn unknown() -> Vec<Instruction> {
    let mut program = begin(&Record { bits: 0, fields: &[], reserved: &[], ..Destroy::RECORD });
    program.refuse(CommandStatus::UnknownOpcode);
    program.finish()
}

fn nothing() -> Vec<Instruction> {
    begin(&Destroy::RECORD).finish()
}

/// Refuses an object number beyond its table; keys are not checked so.
fn number_within(program: &mut Program, width: usize) {
    let number = object_number();
    program.nonzero(number.above(width), CommandStatus::NumberOutOfRange, number.bit);
}

fn number_width(kind: Kind) -> usize {
    match kind {
        Kind::QueuePair => limits::QPN_BITS as usize,
        Kind::Region => object_store::NUMBER_BITS,
        Kind::CompletionQueue => sizes().completion_queues,
        Kind::AddressHandle => sizes().address_handles,
        Kind::EventQueue => sizes().event_queues,
        Kind::SharedReceive => sizes().shared_receive_queues,
    }
}

/// Finds the object that the command is about.
fn subject(program: &mut Program, kind: Kind) {
    if number_width(kind) < object_store::NUMBER_BITS {
        number_within(program, number_width(kind));
    }
    program.exists(kind, object_number(), Subject, CommandStatus::DoesNotExist, 0);
}

/// Finds a free index for it.
fn free_index(program: &mut Program, kind: Kind) {
    if number_width(kind) < object_store::NUMBER_BITS {
        number_within(program, number_width(kind));
    }
    program.is_free(kind, object_number());
}

/// Finds an object that a field of the command names.
fn reference(program: &mut Program, kind: Kind, field: &Field) {
    program.exists(kind, body(field), Reference, CommandStatus::ReferenceDoesNotExist, detail(field));
}

fn doorbell_page_within(program: &mut Program, field: &Field) {
    program.nonzero(body(field).above(DOORBELL_PAGE_BITS), CommandStatus::ValueNotAllowed, detail(field));
}

fn ring_aligned(program: &mut Program, field: &Field) {
    program.nonzero(body(field).low(RING_ALIGNMENT_LOG2), CommandStatus::Misaligned, detail(field));
}

/// Writes the header of the subject: number and `valid`; its other bits become zero.
fn enter(program: &mut Program) {
    program.put(word(Subject, 0), 1 << object_store::VALID);
    program.copy(object_number(), header(Subject, object_store::NUMBER, object_store::NUMBER_BITS));
}

fn enter_page(program: &mut Program, field: &Field) {
    let page = header(Subject, object_store::PAGE, DOORBELL_PAGE_BITS);
    program.copy(body(field).low(DOORBELL_PAGE_BITS), page);
}

/// Clears `valid` of the subject.
fn invalidate_header(program: &mut Program) {
    program.copy(zeros(1), header(Subject, object_store::VALID, 1));
}

/// Copies the first words of the body of the command into the body of the subject.
fn keep_body(program: &mut Program, words: usize) {
    for index in 0..words {
        program.copy(word(Command, 1 + index), word(Subject, 1 + index));
    }
}

// Queue pairs.

const CREATE: Record = CreateQueuePair::RECORD;
const MODIFY: Record = ModifyQueuePair::RECORD;
const HANDLE: Record = CreateAddressHandle::RECORD;

/// Fields that have the same name in the create command and in the path record.
const CREATED: &[&str] =
    &["service", "shared_receive", "signal_all", "send_slots_log2", "receive_wqes_log2", "domain"];
/// Numbers of objects: wider in the command than in the path record.
const CREATED_NUMBERS: &[&str] = &["send_completion_queue", "receive_completion_queue"];
/// Addresses of rings, and their pages in the path record.
const CREATED_RINGS: &[(&str, &str)] =
    &[("send_base", "send_base_page"), ("receive_base", "receive_base_page")];
/// Fields of an address handle, other than the address itself, that the path record holds under the same name.
const HANDLED: &[&str] = &[
    "is_ipv6",
    "vlan_present",
    "source_address_index",
    "vlan_control",
    "source_port",
    "destination_mac",
    "traffic_class",
    "hop_limit",
    "flow_label",
];
/// The four rights, which one attribute carries.
const RIGHTS: &[&str] = &["local_write", "remote_write", "remote_read", "remote_atomic"];
/// Attributes that the path record does not hold: the life state, those that only compare, PSNs, and the address.
const ELSEWHERE: AttributeMask = AttributeMask::STATE
    .and(AttributeMask::CURRENT_STATE)
    .and(AttributeMask::PORT)
    .and(AttributeMask::ADDRESS)
    .and(AttributeMask::RECEIVE_PSN)
    .and(AttributeMask::SEND_PSN);

/// Attributes that need READ slots: whether these are the responder's, and their field.
const SLOTS: [(bool, AttributeMask, &str); 2] = [
    (false, AttributeMask::READ_ATOMIC, "read_atomic"),
    (true, AttributeMask::DESTINATION_READ_ATOMIC, "destination_read_atomic"),
];

/// The word with the shares of READ slots of the subject.
fn shares() -> Run {
    word(Subject, object_store::READ_SHARES)
}

/// Returns both shares of READ slots of the subject, which nothing in flight uses any more.
fn give_all_slots(program: &mut Program) {
    for (is_destination, ..) in SLOTS {
        program.give_slots(is_destination, shares());
    }
}

/// Attributes that have a field.
fn attributes() -> impl Iterator<Item = (usize, &'static str)> {
    let known = ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty());
    known.map(|attribute| (attribute.mask.0.trailing_zeros() as usize, attribute.field))
}

/// Gives the attributes that the path record holds: flag, and fields of the same name in command and record.
fn kept_attributes() -> impl Iterator<Item = (usize, Vec<&'static str>)> {
    let kept = attributes().filter(|(flag, _)| !ELSEWHERE.contains(AttributeMask(1 << flag)));
    kept.map(|(flag, field)| {
        (flag, if AttributeMask(1 << flag) == AttributeMask::ACCESS { RIGHTS.to_vec() } else { vec![field] })
    })
}

/// Writes the generation of the header into the path record.
fn stamp(program: &mut Program) {
    program.copy(header(Subject, object_store::GENERATION, 8), path("generation"));
}

/// Adds to the users of the two completion queues of the subject, and of its shared receive queue.
fn use_queues(program: &mut Program, amount: u64) {
    for name in CREATED_NUMBERS {
        let number = path(name).low(number_width(Kind::CompletionQueue));
        program.exists(Kind::CompletionQueue, number, Reference, CommandStatus::DoesNotExist, 0);
        program.add(word(Reference, 0), amount);
    }
    let flags = Run::new(Subject, BODY, 64);
    let flag = path("shared_receive").bit - flags.bit;
    // The flags are 32 bits.
    program.flags(Run { bit: flags.bit + 32, width: 32, ..flags });
    program.only_if(flag - 32, |program| {
        // The field may cross words.
        let number = Run::new(Scratch, 64 * NOTE_WORD, number_width(Kind::SharedReceive));
        program.copy(path("shared_receive_queue").low(number_width(Kind::SharedReceive)), number);
        program.exists(Kind::SharedReceive, number, Reference, CommandStatus::DoesNotExist, 0);
        program.add(word(Reference, 0), amount);
    });
}

fn create_queue_pair() -> Vec<Instruction> {
    let mut program = begin(&CREATE);
    let field = |name| CREATE.field(name);
    let only = |program: &mut Program, name, legal: u64| {
        let is_legal = |value| value == legal;
        program.unlisted(body(field(name)), is_legal, CommandStatus::NotSupported, detail(field(name)));
    };
    only(&mut program, "service", u64::from(Service::ReliableConnected.number()));
    doorbell_page_within(&mut program, field("doorbell_page"));
    ring_aligned(&mut program, field("send_base"));
    ring_aligned(&mut program, field("receive_base"));
    let shared = field("shared_receive_queue");
    let status = CommandStatus::ReferenceDoesNotExist;
    program.nonzero(body(shared).above(number_width(Kind::SharedReceive)), status, detail(shared));
    free_index(&mut program, Kind::QueuePair);
    for name in CREATED_NUMBERS {
        reference(&mut program, Kind::CompletionQueue, field(name));
    }
    program.flags(Run { width: 32, ..word(Command, 1) });
    program.only_if(field("shared_receive").offset as usize, |program| {
        reference(program, Kind::SharedReceive, shared);
        let domain = Run::new(Scratch, 64 * NOTE_WORD, 24);
        program.copy(Run { base: Reference, ..path("domain") }, domain);
        program.unequal(body(field("domain")), domain, CommandStatus::DomainMismatch, detail(shared));
    });

    program.copy(zeros(object_store::GENERATION), header(Subject, 0, object_store::GENERATION));
    program.add(word(Subject, 0), 1 << object_store::VALID | GENERATION);
    program.copy(object_number(), header(Subject, object_store::NUMBER, object_store::NUMBER_BITS));
    enter_page(&mut program, field("doorbell_page"));
    for index in 1..LOADED_WORDS {
        program.put(word(Subject, index), 0);
    }
    program.copy(object_number().low(limits::QPN_BITS as usize), path("local_qp"));
    for name in CREATED {
        program.copy(body(field(name)), path(name));
    }
    for name in CREATED_NUMBERS {
        let target = path(name);
        program.copy(body(field(name)).low(target.width), target);
    }
    let number = path("shared_receive_queue");
    program.copy(body(shared).low(number.width), number);
    for (base, page) in CREATED_RINGS {
        program.copy(body(field(base)).above(RING_ALIGNMENT_LOG2), path(page));
    }
    stamp(&mut program);
    use_queues(&mut program, USER);
    program.setup(SetupKind::Restart, zeros(24));
    program.publish(Kind::QueuePair, true);
    program.finish()
}

fn modify_queue_pair() -> Vec<Instruction> {
    let mut program = begin(&MODIFY);
    let field = |name| MODIFY.field(name);
    let mask = field("mask");
    program.flags(body(mask));
    let unsupported = ATTRIBUTES.iter().filter(|attribute| attribute.field.is_empty());
    let unsupported = unsupported.fold(AttributeMask::NONE, |all, attribute| all.and(attribute.mask));
    program.ones(body(mask), u64::from(unsupported.0), CommandStatus::NotSupported, detail(mask));
    for attribute in ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty()) {
        let entry = field(attribute.field);
        let (least, most) = attribute.range;
        let flag = attribute.mask.0.trailing_zeros() as usize;
        // The rights are four fields, any of which is legal; what the record checks always is not checked again.
        let checked = entry.range.unwrap_or((0, entry.max())) == (least, most);
        if attribute.mask == AttributeMask::ACCESS || attribute.mask == AttributeMask::STATE || checked {
            continue;
        }
        program.only_if(flag, |program| {
            let status = CommandStatus::ValueNotAllowed;
            if entry.width <= 5 {
                let legal = |value| (least..=most).contains(&value);
                program.unlisted(body(entry), legal, status, detail(entry));
            } else {
                assert_eq!((least, most), (1, entry.max()), "only zero is refused of long fields");
                program.zero(body(entry), status, detail(entry));
            }
        });
    }
    subject(&mut program, Kind::QueuePair);
    program.transition(Run::new(Command, COMMAND_BODY + field("next_state").offset as usize, 16));
    program.only_if(AttributeMask::ADDRESS.0.trailing_zeros() as usize, |program| {
        let handle = field("address_handle");
        reference(program, Kind::AddressHandle, handle);
        program.copy(path("domain"), Run::new(Scratch, 64 * NOTE_WORD, 24));
        let own = Run::field(Reference, BODY, HANDLE.field("domain"));
        let status = CommandStatus::DomainMismatch;
        program.unequal(own, Run::new(Scratch, 64 * NOTE_WORD, 24), status, detail(handle));
        let index = Run::field(Reference, BODY, HANDLE.field("source_address_index"));
        program.unused_source_address(index, CommandStatus::ReferenceDoesNotExist, detail(handle));
    });

    // The last of all checks: slots that are taken stay with the queue pair.
    for (is_destination, attribute, name) in SLOTS {
        program.only_if(attribute.0.trailing_zeros() as usize, |program| {
            program.take_slots(is_destination, body(field(name)), shares(), detail(field(name)));
        });
    }

    for (flag, names) in kept_attributes() {
        program.only_if(flag, |program| {
            for name in names {
                program.copy(body(field(name)), path(name));
            }
        });
    }
    program.only_if(AttributeMask::ADDRESS.0.trailing_zeros() as usize, |program| {
        for name in HANDLED {
            program.copy(Run::field(Reference, BODY, HANDLE.field(name)), path(name));
        }
        let address = HANDLE.field("destination_address");
        program.copy_reversed(Run::field(Reference, BODY, address), path(address.name));
    });
    program.setup(SetupKind::Path, zeros(24));
    for (attribute, name, kind) in [
        (AttributeMask::SEND_PSN, "send_psn", SetupKind::SendPsn),
        (AttributeMask::RECEIVE_PSN, "receive_psn", SetupKind::ReceivePsn),
    ] {
        let flag = attribute.0.trailing_zeros() as usize;
        program.only_if(flag, |program| program.setup(kind, body(field(name))));
    }
    let state = header(Subject, object_store::STATE, object_store::STATE_BITS);
    program.only_if(TO_OTHER, |program| {
        program.copy(body(field("next_state")), state);
        program.setup(SetupKind::Life, zeros(24));
    });
    program.only_if(TO_RESET, |program| {
        program.copy(zeros(object_store::STATE_BITS), state);
        program.add(word(Subject, 0), GENERATION);
        for (_, names) in kept_attributes() {
            names.iter().for_each(|name| program.copy(zeros(path(name).width), path(name)));
        }
        for name in HANDLED {
            program.copy(zeros(path(name).width), path(name));
        }
        program.copy(zeros(64), path("destination_address").low(64));
        program.copy(zeros(64), path("destination_address").above(64));
        stamp(program);
        program.setup(SetupKind::Restart, zeros(24));
        program.wait();
        give_all_slots(program);
    });
    program.finish()
}

fn destroy_queue_pair() -> Vec<Instruction> {
    let mut program = begin(&Destroy::RECORD);
    subject(&mut program, Kind::QueuePair);
    invalidate_header(&mut program);
    program.copy(
        zeros(object_store::STATE_BITS),
        header(Subject, object_store::STATE, object_store::STATE_BITS),
    );
    program.add(word(Subject, 0), GENERATION);
    stamp(&mut program);
    program.publish(Kind::QueuePair, true);
    program.setup(SetupKind::Life, zeros(24));
    program.wait();
    give_all_slots(&mut program);
    use_queues(&mut program, USER.wrapping_neg());
    program.finish()
}

fn query_queue_pair() -> Vec<Instruction> {
    let mut program = begin(&Query::RECORD);
    check_buffer(&mut program, QUEUE_PAIR_QUERY_BYTES);
    subject(&mut program, Kind::QueuePair);
    program.probe(word(Scratch, NOTE_WORD));
    for index in 0..3 * COMMAND_WORDS {
        program.put(word(Scratch, index), 0);
    }
    let part = |index: usize| 64 * COMMAND_WORDS * index;
    let field = |index: usize, field: &Field| Run::field(Scratch, part(index) + COMMAND_BODY, field);
    let number = header(Subject, object_store::NUMBER, object_store::NUMBER_BITS);

    program.put(word(Scratch, 0), u64::from(CommandOpcode::CreateQueuePair.number()));
    program.copy(number, Run::new(Scratch, object_number().bit, object_store::NUMBER_BITS));
    for name in CREATED {
        program.copy(path(name), field(0, CREATE.field(name)));
    }
    for name in CREATED_NUMBERS {
        let source = path(name);
        program.copy(source, field(0, CREATE.field(name)).low(source.width));
    }
    let shared = path("shared_receive_queue");
    program.copy(shared, field(0, CREATE.field("shared_receive_queue")).low(shared.width));
    for (base, page) in CREATED_RINGS {
        program.copy(path(page), field(0, CREATE.field(base)).above(RING_ALIGNMENT_LOG2));
    }
    let page = header(Subject, object_store::PAGE, DOORBELL_PAGE_BITS);
    program.copy(page, field(0, CREATE.field("doorbell_page")).low(DOORBELL_PAGE_BITS));

    let modify = COMMAND_WORDS;
    program.put(word(Scratch, modify), u64::from(CommandOpcode::ModifyQueuePair.number()));
    program.copy(number, Run::new(Scratch, part(1) + object_number().bit, object_store::NUMBER_BITS));
    let mask = attributes().fold(0, |mask, (flag, _)| mask | 1 << flag);
    program.put(word(Scratch, modify + 1), mask);
    let port = field(1, MODIFY.field("port"));
    program.put(word(Scratch, port.bit / 64), PORT << (port.bit % 64));
    for (_, names) in kept_attributes() {
        names.iter().for_each(|name| program.copy(path(name), field(1, MODIFY.field(name))));
    }
    for name in ["next_state", "current_state"] {
        program.copy(
            header(Subject, object_store::STATE, object_store::STATE_BITS),
            field(1, MODIFY.field(name)),
        );
    }
    program.copy(Run::new(Scratch, 64 * NOTE_WORD, 24), field(1, MODIFY.field("send_psn")));
    program.copy(Run::new(Scratch, 64 * NOTE_WORD + 24, 1), field(1, MODIFY.field("requests_in_flight")));
    program.copy(Run::new(Scratch, 64 * NOTE_WORD + 32, 24), field(1, MODIFY.field("receive_psn")));

    let handle = 2 * COMMAND_WORDS;
    program.put(word(Scratch, handle), u64::from(CommandOpcode::CreateAddressHandle.number()));
    program.copy(path("domain"), field(2, HANDLE.field("domain")));
    for name in HANDLED {
        program.copy(path(name), field(2, HANDLE.field(name)));
    }
    let address = HANDLE.field("destination_address");
    program.copy_reversed(path(address.name), field(2, address));
    answer_query(program, 3)
}

/// Checks the buffer of a query.
fn check_buffer(program: &mut Program, bytes: usize) {
    let buffer = Query::RECORD.field("buffer");
    program.nonzero(body(buffer).low(BUFFER_ALIGNMENT_LOG2), CommandStatus::Misaligned, detail(buffer));
    let room = Query::RECORD.field("buffer_bytes");
    // The rest of its word is reserved, and zero.
    let word = Run { width: 64, ..body(room) };
    program.below(word, bytes as u64, CommandStatus::SizeNotAllowed, detail(room));
}

/// Writes the answer that was built.
fn answer_query(mut program: Program, parts: usize) -> Vec<Instruction> {
    for index in 0..parts {
        let offset = (index * COMMAND_BYTES) as u64;
        let address = body(Query::RECORD.field("buffer"));
        program.write(word(Scratch, index * COMMAND_WORDS), address, offset);
    }
    program.finish()
}

/// Reads an object back that is kept as its create command.
fn query(kind: Kind, create: CommandOpcode, words: usize) -> Vec<Instruction> {
    let mut program = begin(&Query::RECORD);
    check_buffer(&mut program, COMMAND_BYTES);
    subject(&mut program, kind);
    program.put(word(Scratch, 0), u64::from(create.number()));
    let number = header(Subject, object_store::NUMBER, object_store::NUMBER_BITS);
    program.copy(number, Run::new(Scratch, object_number().bit, object_store::NUMBER_BITS));
    for index in 1..COMMAND_WORDS {
        if index <= words {
            program.copy(word(Subject, index), word(Scratch, index));
        } else {
            program.put(word(Scratch, index), 0);
        }
    }
    answer_query(program, 1)
}

// Queues.

fn create_completion_queue() -> Vec<Instruction> {
    const RECORD: Record = CreateCompletionQueue::RECORD;
    let mut program = begin(&RECORD);
    doorbell_page_within(&mut program, RECORD.field("doorbell_page"));
    ring_aligned(&mut program, RECORD.field("base"));
    free_index(&mut program, Kind::CompletionQueue);
    reference(&mut program, Kind::EventQueue, RECORD.field("event_queue"));
    enter(&mut program);
    enter_page(&mut program, RECORD.field("doorbell_page"));
    keep_body(&mut program, 2);
    program.add(word(Reference, 0), USER);
    program.publish(Kind::CompletionQueue, true);
    program.finish()
}

fn modify_completion_queue() -> Vec<Instruction> {
    const RECORD: Record = ModifyCompletionQueue::RECORD;
    change_completion_queue(begin(&RECORD), &RECORD)
}

fn resize_completion_queue() -> Vec<Instruction> {
    const RECORD: Record = ResizeCompletionQueue::RECORD;
    let mut program = begin(&RECORD);
    ring_aligned(&mut program, RECORD.field("base"));
    change_completion_queue(program, &RECORD)
}

/// Copies the fields of the body to those of the create command, and publishes the queue without a restart.
fn change_completion_queue(mut program: Program, record: &Record) -> Vec<Instruction> {
    subject(&mut program, Kind::CompletionQueue);
    for field in record.fields {
        let place = CreateCompletionQueue::RECORD.field(field.name);
        program.copy(body(field), Run::field(Subject, BODY, place));
    }
    program.publish(Kind::CompletionQueue, false);
    program.finish()
}

fn unused(program: &mut Program) {
    program.nonzero(header(Subject, object_store::USERS, USERS_BITS), CommandStatus::Busy, 0);
}

fn destroy_completion_queue() -> Vec<Instruction> {
    let mut program = begin(&Destroy::RECORD);
    subject(&mut program, Kind::CompletionQueue);
    unused(&mut program);
    invalidate_header(&mut program);
    program.publish(Kind::CompletionQueue, true);
    let queue = CreateCompletionQueue::RECORD.field("event_queue");
    let number = Run::field(Subject, BODY, queue);
    program.exists(Kind::EventQueue, number, Reference, CommandStatus::DoesNotExist, 0);
    program.add(word(Reference, 0), USER.wrapping_neg());
    program.finish()
}

/// Refuses event queue 0, which belongs to the registers.
fn not_queue_0(program: &mut Program, status: CommandStatus) {
    program.unlisted(object_number().low(number_width(Kind::EventQueue)), |number| number != 0, status, 0);
}

fn create_event_queue() -> Vec<Instruction> {
    const RECORD: Record = CreateEventQueue::RECORD;
    let mut program = begin(&RECORD);
    doorbell_page_within(&mut program, RECORD.field("doorbell_page"));
    ring_aligned(&mut program, RECORD.field("base"));
    number_within(&mut program, number_width(Kind::EventQueue));
    not_queue_0(&mut program, CommandStatus::AlreadyExists);
    free_index(&mut program, Kind::EventQueue);
    enter(&mut program);
    enter_page(&mut program, RECORD.field("doorbell_page"));
    keep_body(&mut program, 2);
    program.publish(Kind::EventQueue, true);
    program.finish()
}

fn modify_event_queue() -> Vec<Instruction> {
    const RECORD: Record = ModifyEventQueue::RECORD;
    let mut program = begin(&RECORD);
    subject(&mut program, Kind::EventQueue);
    not_queue_0(&mut program, CommandStatus::Busy);
    for field in RECORD.fields {
        program.copy(body(field), Run::field(Subject, BODY, CreateEventQueue::RECORD.field(field.name)));
    }
    program.publish(Kind::EventQueue, false);
    program.finish()
}

fn destroy_event_queue() -> Vec<Instruction> {
    let mut program = begin(&Destroy::RECORD);
    subject(&mut program, Kind::EventQueue);
    not_queue_0(&mut program, CommandStatus::Busy);
    unused(&mut program);
    invalidate_header(&mut program);
    program.publish(Kind::EventQueue, true);
    program.finish()
}

// Shared receive queues.

const SHARED: Record = CreateSharedReceiveQueue::RECORD;
/// Fields that are kept, by their names in the create command and in the path record.
const SHARED_KEPT: &[(&str, &str)] = &[("entries_log2", "receive_wqes_log2"), ("domain", "domain")];

/// Gives the limit of the subject.
fn limit() -> Run {
    Run::new(Subject, object_store::LIMIT, object_store::LIMIT_BITS)
}

/// Gives the limit of the subject and the generation of its setting, which a setup event carries.
fn limit_setting() -> Run {
    Run::new(Subject, object_store::LIMIT, 24)
}

/// Begins a new generation of the limit: notices of the old one are dropped.
fn renew_limit(program: &mut Program) {
    program.add(
        word(Subject, object_store::LIMIT / 64),
        1 << (object_store::LIMIT_GENERATION - object_store::LIMIT),
    );
}

fn create_shared_receive_queue() -> Vec<Instruction> {
    let mut program = begin(&SHARED);
    doorbell_page_within(&mut program, SHARED.field("doorbell_page"));
    ring_aligned(&mut program, SHARED.field("base"));
    free_index(&mut program, Kind::SharedReceive);
    enter(&mut program);
    enter_page(&mut program, SHARED.field("doorbell_page"));
    // The stages treat it as a queue pair that receives.
    program.add(word(Subject, 0), u64::from(QpState::ReadyToReceive.number()) << object_store::STATE);
    for index in 1..LOADED_WORDS {
        program.put(word(Subject, index), 0);
    }
    for (name, kept) in SHARED_KEPT {
        program.copy(body(SHARED.field(name)), path(kept));
    }
    program.copy(body(SHARED.field("base")).above(RING_ALIGNMENT_LOG2), path("receive_base_page"));
    program.copy(body(SHARED.field("limit")), limit());
    renew_limit(&mut program);
    program.setup_srq(SrqSetupKind::Restart, limit_setting());
    program.publish(Kind::SharedReceive, true);
    program.finish()
}

fn modify_shared_receive_queue() -> Vec<Instruction> {
    const RECORD: Record = ModifySharedReceiveQueue::RECORD;
    let mut program = begin(&RECORD);
    subject(&mut program, Kind::SharedReceive);
    program.copy(body(RECORD.field("limit")), limit());
    renew_limit(&mut program);
    program.setup_srq(SrqSetupKind::Limit, limit_setting());
    program.finish()
}

fn query_shared_receive_queue() -> Vec<Instruction> {
    let mut program = begin(&Query::RECORD);
    check_buffer(&mut program, COMMAND_BYTES);
    subject(&mut program, Kind::SharedReceive);
    program.put(word(Scratch, 0), u64::from(CommandOpcode::CreateSharedReceiveQueue.number()));
    for index in 1..COMMAND_WORDS {
        program.put(word(Scratch, index), 0);
    }
    let number = header(Subject, object_store::NUMBER, object_store::NUMBER_BITS);
    program.copy(number, Run::new(Scratch, object_number().bit, object_store::NUMBER_BITS));
    let field = |name| Run::field(Scratch, COMMAND_BODY, SHARED.field(name));
    for (name, kept) in SHARED_KEPT {
        program.copy(path(kept), field(name));
    }
    program.copy(path("receive_base_page"), field("base").above(RING_ALIGNMENT_LOG2));
    let page = header(Subject, object_store::PAGE, DOORBELL_PAGE_BITS);
    program.copy(page, field("doorbell_page").low(DOORBELL_PAGE_BITS));
    program.copy(limit(), field("limit"));
    answer_query(program, 1)
}

/// Makes the stages forget the ring of the subject.
fn end_shared_receive_queue(program: &mut Program) {
    program.copy(
        zeros(object_store::STATE_BITS),
        header(Subject, object_store::STATE, object_store::STATE_BITS),
    );
    renew_limit(program);
    program.publish(Kind::SharedReceive, true);
    program.setup_srq(SrqSetupKind::Restart, zeros(24));
}

fn destroy_shared_receive_queue() -> Vec<Instruction> {
    let mut program = begin(&Destroy::RECORD);
    subject(&mut program, Kind::SharedReceive);
    unused(&mut program);
    invalidate_header(&mut program);
    end_shared_receive_queue(&mut program);
    program.wait();
    program.finish()
}

// Regions.

/// Words of the body of a region that are kept.
const REGION_WORDS: usize = 5;
/// Scratch words for the checks of a contiguous region, zero for others: its base, its length, twice that, and the word with the
/// fields that only a region of pages may set.
const CONTIGUOUS_WORD: usize = 26;
const LENGTH_WORD: usize = 27;
const DOUBLE_WORD: usize = 28;
const PAGED_WORD: usize = 29;
const REGION: Record = CreateRegion::RECORD;

/// Gives a field of the region that is built in the scratch words.
fn built(name: &str) -> Run {
    Run::field(Scratch, BODY, REGION.field(name))
}

/// Refuses what this card cannot translate.
fn translatable(program: &mut Program, record: &Record) {
    let translation = record.field("translation");
    let known = [Translation::Contiguous, Translation::PageList];
    let legal = |value| known.iter().any(|known| value == u64::from(known.number()));
    program.unlisted(body(translation), legal, CommandStatus::NotSupported, detail(translation));
}

/// Gives the flag that [`check_place`] sets for a list of pages.
fn brings_pages() -> usize {
    assert!(
        Translation::PageList.number() == 1 && Translation::Contiguous.number() == 0,
        "bit 0 tells them apart"
    );
    REGION.field("translation").offset as usize
}

/// Checks the place of the region, if `flag` is set or is none. A contiguous region begins at its base; the first byte of one of
/// pages comes from [`Program::pages`].
fn check_place(program: &mut Program, flag: Option<usize>) {
    for index in [CONTIGUOUS_WORD, LENGTH_WORD, DOUBLE_WORD, PAGED_WORD, NOTE_WORD] {
        program.put(word(Scratch, index), 0);
    }
    let collect = |program: &mut Program| {
        let base = built("translation_base");
        program.copy(base, word(Scratch, CONTIGUOUS_WORD));
        program.copy(base, word(Scratch, object_store::FIRST_BYTE));
        program.copy(built("length"), word(Scratch, LENGTH_WORD));
        program.copy(word(Scratch, REGION_WORDS), word(Scratch, PAGED_WORD));
        let translation = Run::field(Scratch, 64 * NOTE_WORD, REGION.field("translation"));
        program.copy(built("translation"), translation);
    };
    match flag {
        Some(flag) => program.only_if(flag, collect),
        None => collect(program),
    }
    program.flags(Run { width: 32, ..word(Scratch, NOTE_WORD) });
    program.only_if(brings_pages(), |program| {
        for index in [CONTIGUOUS_WORD, LENGTH_WORD, PAGED_WORD] {
            program.put(word(Scratch, index), 0);
        }
        let base = REGION.field("translation_base");
        let place = built("translation_base").low(limits::PAGE_LOG2_MIN.into());
        program.nonzero(place, CommandStatus::Misaligned, detail(base));
    });
    // A contiguous region ends at 2^63 at the latest: addresses above are those of regions of pages.
    let at = |index: usize, bit: usize, width: usize| Run::new(Scratch, 64 * index + bit, width);
    let (status, base) = (CommandStatus::RangeNotAllowed, detail(REGION.field("translation_base")));
    program.nonzero(at(CONTIGUOUS_WORD, 63, 1), status, base);
    program.nonzero(at(LENGTH_WORD, 63, 1), status, base);
    program.copy(at(LENGTH_WORD, 0, 63), at(DOUBLE_WORD, 1, 63));
    program.wraps(at(CONTIGUOUS_WORD, 63, 1), word(Scratch, DOUBLE_WORD), status, base);
    for name in ["first_offset", "first_entry"] {
        let field = REGION.field(name);
        let run = Run::new(Scratch, 64 * PAGED_WORD + field.offset as usize % 64, field.width as usize);
        program.nonzero(run, CommandStatus::ValueNotAllowed, detail(field));
    }
}

/// Writes the pages of the region, the last of all checks.
fn write_pages(program: &mut Program) {
    program.only_if(brings_pages(), |program| program.pages(word(Scratch, object_store::FIRST_BYTE)));
}

/// Checks the region that was built for contradictions.
fn check_consistent(program: &mut Program) {
    let rights = Run { width: RIGHTS.len(), ..built("local_write") };
    let bit = |name| 1u64 << (built(name).bit - rights.bit);
    let contradicts = |value: u64| {
        value & (bit("remote_write") | bit("remote_atomic")) != 0 && value & bit("local_write") == 0
    };
    program.unlisted(rights, |value| !contradicts(value), CommandStatus::RightsContradict, 0);
    let first = built("first_address");
    program.flags(word(Scratch, 1));
    program.only_if(REGION.field("zero_based").offset as usize, |program| {
        let status = CommandStatus::ValueNotAllowed;
        program.nonzero(first, status, detail(REGION.field("first_address")));
    });
    let status = CommandStatus::RangeNotAllowed;
    program.wraps(first, built("length"), status, detail(REGION.field("first_address")));
}

/// Copies the region that was built, without its kind, which an invalidation may change.
fn keep_built(program: &mut Program) {
    // The kind was written when the region was created, or an invalidation has cleared it since.
    let kind = Run::field(Subject, BODY, REGION.field("kind"));
    let rest = Run::new(Subject, kind.bit + kind.width, 64 - kind.width);
    program.copy(Run { base: Scratch, ..rest }, rest);
    for index in 2..=object_store::FIRST_BYTE {
        program.copy(word(Scratch, index), word(Subject, index));
    }
}

fn create_region() -> Vec<Instruction> {
    let mut program = begin(&REGION);
    let kind = REGION.field("kind");
    let number = |kind: RegionKind| u64::from(kind.number());
    let (free, region) = (number(RegionKind::Free), number(RegionKind::Region));
    program.unlisted(body(kind), |value| value != free, CommandStatus::ValueNotAllowed, detail(kind));
    program.unlisted(body(kind), |value| value == region, CommandStatus::NotSupported, detail(kind));
    translatable(&mut program, &REGION);
    for index in 1..=REGION_WORDS {
        program.copy(word(Command, index), word(Scratch, index));
    }
    check_consistent(&mut program);
    check_place(&mut program, None);
    free_index(&mut program, Kind::Region);
    write_pages(&mut program);
    // The header is written last: from then on the key may be invalidated.
    program.put(word(Subject, 0), 0);
    program.copy(built("kind"), Run::field(Subject, BODY, kind));
    keep_built(&mut program);
    program.copy(object_number(), header(Subject, object_store::NUMBER, object_store::NUMBER_BITS));
    program.add(word(Subject, 0), 1 << object_store::VALID);
    program.publish(Kind::Region, true);
    program.finish()
}

fn modify_region() -> Vec<Instruction> {
    const RECORD: Record = ModifyRegion::RECORD;
    const RIGHTS_CHANGED: &[&str] =
        &["local_write", "remote_write", "remote_read", "remote_atomic", "window_bind", "relaxed_order"];
    const TRANSLATION_CHANGED: &[&str] = &[
        "zero_based",
        "translation",
        "page_log2",
        "first_address",
        "length",
        "translation_base",
        "first_offset",
        "first_entry",
    ];
    let mut program = begin(&RECORD);
    translatable(&mut program, &RECORD);
    subject(&mut program, Kind::Region);
    for index in 1..=object_store::FIRST_BYTE {
        program.copy(word(Subject, index), word(Scratch, index));
    }
    program.flags(Run { width: 32, ..word(Command, 1) });
    for (change, names) in [
        ("change_rights", RIGHTS_CHANGED),
        ("change_domain", &["domain"]),
        ("change_translation", TRANSLATION_CHANGED),
    ] {
        program.only_if(RECORD.field(change).offset as usize, |program| {
            names.iter().for_each(|name| program.copy(body(RECORD.field(name)), built(name)));
        });
    }
    check_consistent(&mut program);
    program.flags(Run { width: 32, ..word(Command, 1) });
    check_place(&mut program, Some(RECORD.field("change_translation").offset as usize));
    write_pages(&mut program);
    // Accesses that the old rights permitted leave the card before the change.
    invalidate_header(&mut program);
    program.publish(Kind::Region, true);
    program.wait();
    keep_built(&mut program);
    program.add(word(Subject, 0), 1 << object_store::VALID);
    program.publish(Kind::Region, true);
    program.finish()
}

fn destroy_region() -> Vec<Instruction> {
    let mut program = begin(&Destroy::RECORD);
    subject(&mut program, Kind::Region);
    invalidate_header(&mut program);
    program.publish(Kind::Region, true);
    program.wait();
    program.finish()
}

// Address handles.

/// Words of the body of an address handle.
const HANDLE_WORDS: usize = 5;

fn create_address_handle() -> Vec<Instruction> {
    let mut program = begin(&HANDLE);
    free_index(&mut program, Kind::AddressHandle);
    enter(&mut program);
    keep_body(&mut program, HANDLE_WORDS);
    program.finish()
}

fn modify_address_handle() -> Vec<Instruction> {
    let mut program = begin(&HANDLE);
    subject(&mut program, Kind::AddressHandle);
    keep_body(&mut program, HANDLE_WORDS);
    program.finish()
}

fn destroy_address_handle() -> Vec<Instruction> {
    let mut program = begin(&Destroy::RECORD);
    subject(&mut program, Kind::AddressHandle);
    invalidate_header(&mut program);
    program.finish()
}

// Programs without a command.

/// Forgets an object in a reset.
fn forget(kind: Kind) -> Vec<Instruction> {
    let mut program = Program::default();
    invalidate_header(&mut program);
    match kind {
        Kind::QueuePair => {
            program.copy(
                zeros(object_store::STATE_BITS),
                header(Subject, object_store::STATE, object_store::STATE_BITS),
            );
            program.add(word(Subject, 0), GENERATION);
            program.put(shares(), 0);
            stamp(&mut program);
            program.publish(kind, true);
            program.setup(SetupKind::Restart, zeros(24));
        }
        Kind::AddressHandle => {}
        Kind::Region => program.publish(kind, true),
        Kind::CompletionQueue | Kind::EventQueue => {
            program.copy(zeros(USERS_BITS), header(Subject, object_store::USERS, USERS_BITS));
            program.publish(kind, true);
        }
        Kind::SharedReceive => {
            program.copy(zeros(USERS_BITS), header(Subject, object_store::USERS, USERS_BITS));
            end_shared_receive_queue(&mut program);
        }
    }
    program.finish()
}

/// Sets event queue 0, whose header and body are in the words of the command; its users are kept.
fn event_queue_0() -> Vec<Instruction> {
    let mut program = Program::default();
    program.copy(Run::new(Command, 0, object_store::USERS), header(Subject, 0, object_store::USERS));
    keep_body(&mut program, 2);
    program.publish(Kind::EventQueue, true);
    program.finish()
}

/// Gives the required and the optional attributes of a transition of a queue pair, or none if the transition is not allowed.
pub fn transition(from: u64, to: u64) -> Option<(AttributeMask, AttributeMask)> {
    let (from, to) = (QpState::from_number(from)?, QpState::from_number(to)?);
    let row = rnic_layout::state::transition(Service::ReliableConnected, from, to)?;
    Some((row.required, row.optional))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Action;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::random;
    use rnic_kernel::prelude::Bits;
    use rnic_layout::admin::{BODIES, Command as AdminCommand};

    /// No check follows a change: a command that is refused has changed nothing.
    #[test]
    fn checks_precede_changes() {
        let programs = programs();
        println!("{} instructions", programs.instructions.len());
        let mut starts = programs.starts.clone();
        starts.sort_unstable();
        starts.dedup();
        for start in starts {
            let mut changed = false;
            for instruction in programs.instructions[start..]
                .iter()
                .take_while(|instruction| instruction.action != Action::Finish)
            {
                // Queues that are in use exist, so looking them up again refuses nothing.
                let refuses = instruction.status != 0 && instruction.action != Action::Find;
                assert!(!(changed && refuses), "{instruction:?}");
                changed |= match instruction.action {
                    Action::Put | Action::Move | Action::Add => instruction.target.base != Scratch,
                    Action::Setup => instruction.constant != SetupKind::Probe as u64,
                    Action::Publish => true,
                    _ => false,
                };
            }
        }
    }

    /// Runs the checks that need nothing but the command; gives status and detail of a refusal.
    fn first_refusal(programs: &Microcode, command: &[u8; COMMAND_BYTES]) -> Option<(u64, u64)> {
        let word = |index: usize| {
            let bytes = command[8 * index..8 * index + 8].try_into().expect("a word has eight bytes");
            u64::from_le_bytes(bytes)
        };
        for instruction in &programs.instructions[programs.starts[usize::from(command[0])]..] {
            if instruction.is_conditional || instruction.action == Action::Flags {
                continue;
            }
            if instruction.action == Action::Finish || instruction.source.base != Command {
                return None;
            }
            let source = word(instruction.source.word.to_u64() as usize)
                .rotate_right(instruction.rotate.to_u64() as u32);
            let constant = instruction.constant.to_u64();
            let refuses = match instruction.action {
                Action::RefuseOnes => source & constant != 0,
                Action::RefuseZeros => source & constant == 0,
                Action::RefuseUnlisted => constant >> (source & constant >> 32) & 1 == 0,
                Action::RefuseBelow => source < constant.wrapping_neg(),
                _ => return None,
            };
            if refuses {
                return Some((instruction.status.to_u64(), instruction.detail.to_u64()));
            }
        }
        None
    }

    #[test]
    fn every_command_that_the_contract_refuses_is_refused_for_the_same_reason() {
        let mut random = random();
        let programs = programs();
        let (mut refused, mut accepted) = (0, 0);
        for _ in 0..20_000 {
            let opcode = *CommandOpcode::ALL.choose(&mut random).expect("there are opcodes");
            let mut bytes = [0; COMMAND_BYTES];
            bytes[0] = if random.random_bool(0.02) { random.random() } else { opcode.number() };
            let record = BODIES.iter().find(|(opcodes, _)| opcodes.contains(&opcode)).map(|entry| entry.1);
            if let Some(record) = record {
                record.reset(&mut bytes[BODY_OFFSET..]);
                // Some fields have random values.
                for field in record.fields.iter().filter(|field| field.width <= 64) {
                    if random.random_bool(0.2) {
                        let _ = field.set(&mut bytes[BODY_OFFSET..], random.random::<u64>() & field.max());
                    }
                }
            }
            if random.random_bool(0.5) {
                let bit = random.random_range(8..8 * COMMAND_BYTES);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let found = first_refusal(&programs, &bytes);
            match AdminCommand::parse(&bytes) {
                Err(refusal) => {
                    let expected = (u64::from(refusal.status.number()), u64::from(refusal.detail));
                    assert_eq!(found, Some(expected), "{refusal}: {bytes:x?}");
                    refused += 1;
                }
                Ok(_) => {
                    let reserved = u64::from(CommandStatus::ReservedNotZero.number());
                    let unknown = u64::from(CommandStatus::UnknownOpcode.number());
                    assert!(found.is_none_or(|found| found.0 != reserved && found.0 != unknown));
                    accepted += 1;
                }
            }
        }
        assert!(refused > 1000 && accepted > 1000, "{refused} refused, {accepted} accepted");
    }

    /// Compares a copy in pieces with the same copy bit by bit.
    #[test]
    fn copies_move_every_bit_once() {
        let mut random = random();
        for _ in 0..500 {
            let width = random.random_range(1..200);
            let (from, to) = (random.random_range(0..300usize), random.random_range(0..300usize));
            let source: Vec<u64> = (0..8).map(|_| random.random()).collect();
            let before: Vec<u64> = (0..8).map(|_| random.random()).collect();
            let mut program = Program::default();
            program.copy(Run::new(Command, from, width), Run::new(Scratch, to, width));
            let mut target = before.clone();
            for instruction in &program.instructions {
                let of = |word: Bits<5>| word.to_u64() as usize;
                let value =
                    source[of(instruction.source.word)].rotate_right(instruction.rotate.to_u64() as u32);
                let mask = instruction.constant.to_u64();
                let place = &mut target[of(instruction.target.word)];
                *place = *place & !mask | value & mask;
            }
            let bit = |words: &[u64], bit: usize| words[bit / 64] >> (bit % 64) & 1;
            for index in 0..512 {
                let inside = (to..to + width).contains(&index);
                let expected = if inside { bit(&source, index - to + from) } else { bit(&before, index) };
                assert_eq!(bit(&target, index), expected);
            }
        }
    }
}
