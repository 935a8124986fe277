//! Numbers that the queues share with `libibverbs`, as its header `verbs.h` lists them, so that a provider passes them on without
//! a table: statuses and opcodes of completions, opcodes of work requests, and asynchronous events.
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::queue::send::WqeOpcode;

/// Checks that a list of verbs, in its order from `first` on, gives the same numbers as ours. `None` stands for a number of
/// verbs that the card never uses.
#[track_caller]
fn check<T: Copy + std::fmt::Debug>(first: u8, verbs: &[(&str, Option<T>)], number: fn(T) -> u8) {
    for ((name, own), expected) in verbs.iter().zip(first..) {
        if let Some(own) = own {
            assert_eq!(number(*own), expected, "{name} is {own:?} here");
        }
    }
}

#[test]
fn statuses_of_completions_have_the_numbers_of_verbs() {
    use CompletionStatus as Own;
    let verbs = [
        ("IBV_WC_SUCCESS", Some(Own::Success)),
        ("IBV_WC_LOC_LEN_ERR", Some(Own::LocalLength)),
        ("IBV_WC_LOC_QP_OP_ERR", Some(Own::LocalQueuePairOperation)),
        ("IBV_WC_LOC_EEC_OP_ERR", Some(Own::LocalEndToEndContext)),
        ("IBV_WC_LOC_PROT_ERR", Some(Own::LocalProtection)),
        ("IBV_WC_WR_FLUSH_ERR", Some(Own::Flushed)),
        ("IBV_WC_MW_BIND_ERR", Some(Own::WindowBind)),
        ("IBV_WC_BAD_RESP_ERR", Some(Own::BadResponse)),
        ("IBV_WC_LOC_ACCESS_ERR", Some(Own::LocalAccess)),
        ("IBV_WC_REM_INV_REQ_ERR", Some(Own::RemoteInvalidRequest)),
        ("IBV_WC_REM_ACCESS_ERR", Some(Own::RemoteAccess)),
        ("IBV_WC_REM_OP_ERR", Some(Own::RemoteOperation)),
        ("IBV_WC_RETRY_EXC_ERR", Some(Own::RetryExceeded)),
        ("IBV_WC_RNR_RETRY_EXC_ERR", Some(Own::RnrRetryExceeded)),
        ("IBV_WC_LOC_RDD_VIOL_ERR", Some(Own::LocalDomainViolation)),
        ("IBV_WC_REM_INV_RD_REQ_ERR", Some(Own::RemoteInvalidReadRequest)),
        ("IBV_WC_REM_ABORT_ERR", Some(Own::RemoteAborted)),
        ("IBV_WC_INV_EECN_ERR", Some(Own::InvalidEndToEndNumber)),
        ("IBV_WC_INV_EEC_STATE_ERR", Some(Own::InvalidEndToEndState)),
        ("IBV_WC_FATAL_ERR", Some(Own::Fatal)),
        ("IBV_WC_RESP_TIMEOUT_ERR", Some(Own::ResponseTimeout)),
        ("IBV_WC_GENERAL_ERR", Some(Own::General)),
        ("IBV_WC_TM_ERR", Some(Own::TagMatching)),
        ("IBV_WC_TM_RNDV_INCOMPLETE", Some(Own::TagMatchingIncomplete)),
    ];
    check(0, &verbs, Own::number);
    assert_eq!(Own::ALL.len(), verbs.len(), "each status is one of verbs");
}

#[test]
fn opcodes_of_completions_have_the_numbers_of_verbs() {
    use CompletionOpcode as Own;
    let sends = [
        ("IBV_WC_SEND", Some(Own::Send)),
        ("IBV_WC_RDMA_WRITE", Some(Own::Write)),
        ("IBV_WC_RDMA_READ", Some(Own::Read)),
        ("IBV_WC_COMP_SWAP", Some(Own::CompareSwap)),
        ("IBV_WC_FETCH_ADD", Some(Own::FetchAdd)),
        ("IBV_WC_BIND_MW", Some(Own::BindWindow)),
        ("IBV_WC_LOCAL_INV", Some(Own::LocalInvalidate)),
        ("IBV_WC_TSO", None),
        ("IBV_WC_FLUSH", Some(Own::Flush)),
        ("IBV_WC_ATOMIC_WRITE", Some(Own::AtomicWrite)),
    ];
    check(0, &sends, Own::number);
    let receives =
        [("IBV_WC_RECV", Some(Own::Receive)), ("IBV_WC_RECV_RDMA_WITH_IMM", Some(Own::ReceiveWrite))];
    check(1 << 7, &receives, Own::number);
    let named = sends.iter().chain(&receives).filter(|verb| verb.1.is_some()).count();
    assert_eq!(Own::ALL.len(), named, "each opcode is one of verbs");
}

#[test]
fn opcodes_of_work_requests_have_the_numbers_of_verbs() {
    use WqeOpcode as Own;
    let verbs = [
        ("IBV_WR_RDMA_WRITE", Some(Own::Write)),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", Some(Own::WriteImmediate)),
        ("IBV_WR_SEND", Some(Own::Send)),
        ("IBV_WR_SEND_WITH_IMM", Some(Own::SendImmediate)),
        ("IBV_WR_RDMA_READ", Some(Own::Read)),
        ("IBV_WR_ATOMIC_CMP_AND_SWP", Some(Own::CompareSwap)),
        ("IBV_WR_ATOMIC_FETCH_AND_ADD", Some(Own::FetchAdd)),
        ("IBV_WR_LOCAL_INV", Some(Own::LocalInvalidate)),
        ("IBV_WR_BIND_MW", Some(Own::BindWindow)),
        ("IBV_WR_SEND_WITH_INV", Some(Own::SendInvalidate)),
        ("IBV_WR_TSO", None),
        // Verbs leave 11 to drivers, and this card's is the fast registration.
        ("IBV_WR_DRIVER1", Some(Own::FastRegister)),
        ("unassigned", None),
        ("unassigned", None),
        ("IBV_WR_FLUSH", Some(Own::Flush)),
        ("IBV_WR_ATOMIC_WRITE", Some(Own::AtomicWrite)),
    ];
    check(0, &verbs, Own::number);
    assert_eq!(Own::ALL.len(), verbs.iter().filter(|verb| verb.1.is_some()).count());
}

#[test]
fn asynchronous_events_have_the_numbers_of_verbs() {
    use AsyncEvent as Own;
    let verbs = [
        ("IBV_EVENT_CQ_ERR", Some(Own::CompletionQueueError)),
        ("IBV_EVENT_QP_FATAL", Some(Own::QueuePairFatal)),
        ("IBV_EVENT_QP_REQ_ERR", Some(Own::QueuePairRequestError)),
        ("IBV_EVENT_QP_ACCESS_ERR", Some(Own::QueuePairAccessError)),
        ("IBV_EVENT_COMM_EST", Some(Own::CommunicationEstablished)),
        ("IBV_EVENT_SQ_DRAINED", Some(Own::SendQueueDrained)),
        ("IBV_EVENT_PATH_MIG", Some(Own::PathMigrated)),
        ("IBV_EVENT_PATH_MIG_ERR", Some(Own::PathMigrationError)),
        ("IBV_EVENT_DEVICE_FATAL", Some(Own::DeviceFatal)),
        ("IBV_EVENT_PORT_ACTIVE", Some(Own::PortActive)),
        ("IBV_EVENT_PORT_ERR", Some(Own::PortError)),
        ("IBV_EVENT_LID_CHANGE", Some(Own::LidChange)),
        ("IBV_EVENT_PKEY_CHANGE", Some(Own::PartitionChange)),
        ("IBV_EVENT_SM_CHANGE", Some(Own::SubnetManagerChange)),
        ("IBV_EVENT_SRQ_ERR", Some(Own::SharedReceiveError)),
        ("IBV_EVENT_SRQ_LIMIT_REACHED", Some(Own::SharedReceiveLimit)),
        ("IBV_EVENT_QP_LAST_WQE_REACHED", Some(Own::LastWqeReached)),
        ("IBV_EVENT_CLIENT_REREGISTER", Some(Own::ClientReregister)),
        ("IBV_EVENT_GID_CHANGE", Some(Own::AddressChange)),
        ("IBV_EVENT_WQ_FATAL", Some(Own::WorkQueueFatal)),
        ("IBV_EVENT_DEVICE_SPEED_CHANGE", Some(Own::SpeedChange)),
    ];
    check(0, &verbs, Own::number);
    assert_eq!(Own::ALL.len(), verbs.len(), "each event is one of verbs");
}
