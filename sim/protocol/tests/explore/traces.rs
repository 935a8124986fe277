//! Traces A to J of protocol 3.12, packet by packet, with PSNs of 4 bits: E stands for FFFFFE.
use super::checker::{Witness, shortest};
use super::plan;
use rnic_protocol::trace::Frame;
use rnic_protocol::{Action, Kind, PsnSpace, Settings, Side, Status, Timer, Trace, World};

/// W0 WRITE of 3 packets, W1 READ of 3, W2 SEND, W3 FETCH_ADD.
const WORKED: [(Kind, u8); 4] = [(Kind::Write, 3), (Kind::Read, 3), (Kind::Send, 1), (Kind::Atomic, 1)];

fn worked() -> Settings {
    Settings {
        space: PsnSpace { bits: 4 },
        window: 8,
        capacity: 8,
        losses: 8,
        reorders: Some(8),
        ..Settings::new(plan(14, &WORKED))
    }
}

/// A run in which the test says what happens.
struct Run {
    settings: Settings,
    world: World,
    actions: Vec<Action>,
}

impl Run {
    fn new(settings: Settings) -> Run {
        let world = World::new(&settings);
        Run { settings, world, actions: Vec::new() }
    }

    /// Lets an action happen, which must be possible. Returns the frames that are sent.
    fn act(&mut self, action: Action) -> Vec<String> {
        let possible = self.world.actions(&self.settings);
        assert!(possible.contains(&action), "{action:?} is not among {possible:?} of {:#?}", self.world);
        let step = self.world.step(&self.settings, action);
        self.world = step.world;
        self.actions.push(action);
        assert_eq!(self.world.judge.violation, None);
        step.sent.iter().map(Frame::to_string).collect()
    }

    /// Sends all that may be sent.
    fn sends(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while self.world.requester.request(&self.settings).is_some() {
            sent.extend(self.act(Action::Send));
        }
        sent
    }

    /// Delivers all requests in order. Returns the answers.
    fn requests_arrive(&mut self) -> Vec<String> {
        let mut answers = Vec::new();
        while !self.world.requests.is_empty() {
            answers.extend(self.act(Action::DeliverRequest(0)));
        }
        answers
    }

    /// Delivers all responses in order.
    fn responses_arrive(&mut self) {
        while !self.world.responses.is_empty() {
            self.act(Action::DeliverResponse(0));
        }
    }

    fn request(&self, psn: u8) -> usize {
        self.world.requests.iter().position(|request| request.psn == psn).expect("the request is on the wire")
    }

    fn response(&self, psn: u8) -> usize {
        let mut responses = self.world.responses.iter();
        responses.position(|response| response.psn == psn).expect("the response is on the wire")
    }

    fn loses_request(&mut self, psn: u8) {
        self.act(Action::LoseRequest(self.request(psn)));
    }

    fn loses_response(&mut self, psn: u8) {
        self.act(Action::LoseResponse(self.response(psn)));
    }

    /// All frames arrive, whatever is sent, until all messages have completed.
    fn ends_well(&mut self) {
        for _ in 0..8 {
            self.sends();
            self.requests_arrive();
            self.responses_arrive();
        }
        assert!(self.world.is_done(&self.settings), "{:#?}", self.world);
    }
}

const REQUESTS: [&str; 6] =
    ["E WRITE_FIRST", "F WRITE_MIDDLE", "0 WRITE_LAST", "1 READ_REQUEST of 3", "4 SEND_ONLY", "5 FETCH_ADD"];

#[test]
fn trace_a_no_loss() {
    let mut run = Run::new(worked());
    assert_eq!(run.sends(), REQUESTS);
    let answers = [
        "0 ACK msn 1",
        "1 READ_RESP_FIRST msn 2",
        "2 READ_RESP_MIDDLE",
        "3 READ_RESP_LAST msn 2",
        "4 ACK msn 3",
        "5 ATOMIC_ACK msn 4",
    ];
    assert_eq!(run.requests_arrive(), answers);
    assert_eq!(run.settings.space.psn(run.world.responder.expected), 6);
    run.loses_response(0);
    run.responses_arrive();
    assert!(run.world.is_done(&run.settings), "the READ response acknowledges the WRITE");
    assert_eq!(run.world.judge.retries_max, 0);
}

#[test]
fn trace_b_a_request_is_lost() {
    let mut run = Run::new(worked());
    run.sends();
    run.loses_request(0xF);
    assert_eq!(run.requests_arrive(), ["F NAK 0x60 msn 0"]);
    run.responses_arrive();
    assert_eq!(run.sends(), REQUESTS[1..]);
    assert_eq!(run.world.judge.retries, 1);
    run.ends_well();
}

#[test]
fn trace_c_a_read_response_is_lost() {
    let mut run = Run::new(worked());
    run.sends();
    run.requests_arrive();
    run.loses_response(2);
    run.act(Action::DeliverResponse(run.response(0)));
    run.act(Action::DeliverResponse(run.response(1)));
    run.act(Action::DeliverResponse(run.response(3)));
    assert_eq!(run.sends(), ["2 READ_REQUEST of 2", "4 SEND_ONLY", "5 FETCH_ADD"]);
    let answers = ["2 READ_RESP_FIRST msn 4", "3 READ_RESP_LAST msn 4", "4 ACK msn 4", "5 ATOMIC_ACK msn 4"];
    assert_eq!(run.requests_arrive(), answers);
    run.ends_well();
}

#[test]
fn trace_c_with_the_opcodes_of_the_places() {
    let mut run = Run::new(Settings { replays_go_on: true, ..worked() });
    run.sends();
    run.requests_arrive();
    run.loses_response(2);
    run.responses_arrive();
    assert_eq!(run.sends()[0], "2 READ_REQUEST of 2");
    let answers = run.requests_arrive();
    assert_eq!(answers[..2], ["2 READ_RESP_MIDDLE", "3 READ_RESP_LAST msn 4"]);
    run.ends_well();
}

#[test]
fn trace_d_an_ack_overtakes_the_read_responses() {
    let mut run = Run::new(worked());
    run.sends();
    run.requests_arrive();
    run.act(Action::DeliverResponse(run.response(4)));
    assert_eq!(run.world.judge.succeeded, 1, "the WRITE completes, the SEND does not");
    assert_eq!(run.sends(), ["1 READ_REQUEST of 3", "4 SEND_ONLY", "5 FETCH_ADD"]);
    run.ends_well();
}

#[test]
fn trace_e_no_receive_is_posted() {
    let mut run = Run::new(Settings { receives: 0, ..worked() });
    run.sends();
    let answers = run.requests_arrive();
    assert_eq!(
        answers.last().expect("there are answers"),
        "4 RNR NAK msn 2",
        "the packet after it is dropped"
    );
    run.responses_arrive();
    assert!(run.sends().is_empty());
    run.act(Action::PostReceive);
    assert!(run.sends().is_empty(), "the wait is not over");
    run.act(Action::RnrWaitEnds);
    assert_eq!(run.sends(), ["4 SEND_ONLY", "5 FETCH_ADD"]);
    assert_eq!(run.world.requester.retries, run.settings.retries);
    run.ends_well();
}

#[test]
fn trace_f_all_acks_are_lost() {
    let mut run = Run::new(Settings { plan: plan(14, &WORKED[..1]), ..worked() });
    run.sends();
    run.requests_arrive();
    run.loses_response(0);
    run.act(Action::Timeout);
    assert_eq!(run.sends(), REQUESTS[..3]);
    assert_eq!(run.requests_arrive(), ["0 ACK msn 1"]);
    run.responses_arrive();
    assert!(run.world.is_done(&run.settings));
}

#[test]
fn trace_g_an_atomic_ack_is_lost() {
    let mut run = Run::new(worked());
    run.sends();
    run.requests_arrive();
    run.loses_response(5);
    run.responses_arrive();
    run.act(Action::Timeout);
    assert_eq!(run.sends(), ["5 FETCH_ADD"]);
    assert_eq!(run.requests_arrive(), ["5 ATOMIC_ACK msn 4"]);
    assert_eq!(run.world.responder.word, 1);
    run.responses_arrive();
    assert!(run.world.is_done(&run.settings));
}

#[test]
fn trace_h_a_wrong_key() {
    let mut settings = worked();
    settings.plan.messages[0] = settings.plan.messages[0].refused_from(0);
    let mut run = Run::new(settings);
    run.sends();
    assert_eq!(run.requests_arrive(), ["E NAK 0x62 msn 0"]);
    assert!(run.world.responder.failed);
    run.responses_arrive();
    assert_eq!((run.world.judge.succeeded, run.world.judge.completed), (0, 4));
    assert_eq!(run.world.judge.failed, Some(Status::RemoteAccess));
}

#[test]
fn trace_i_a_region_ends_within_a_read() {
    let mut settings = worked();
    settings.plan.messages[1] = settings.plan.messages[1].refused_from(1);
    let mut run = Run::new(settings);
    run.sends();
    assert_eq!(run.requests_arrive(), ["0 ACK msn 1", "1 READ_RESP_FIRST msn 2", "2 NAK 0x62 msn 2"]);
    run.responses_arrive();
    assert_eq!((run.world.judge.succeeded, run.world.judge.completed), (1, 4));
    assert_eq!(run.world.judge.failed, Some(Status::RemoteAccess));
}

#[test]
fn trace_j_a_nak_is_lost() {
    let mut run = Run::new(worked());
    run.sends();
    run.loses_request(0xF);
    run.act(Action::DeliverRequest(0));
    assert_eq!(run.act(Action::DeliverRequest(0)), ["F NAK 0x60 msn 0"]);
    run.loses_response(0xF);
    assert!(run.requests_arrive().is_empty(), "the responder stays silent");
    run.act(Action::Timeout);
    assert_eq!(run.sends(), REQUESTS);
    run.ends_well();
}

/// The shortest run of the model in which a READ goes on from its second packet, as a trace for other implementations.
#[test]
fn a_run_of_the_model_becomes_a_trace() {
    let settings = Settings {
        capacity: 8,
        losses: 1,
        timer: Timer::Patient,
        ..Settings::new(plan(7, &[(Kind::Read, 3)]))
    };
    let restarts: Witness = ("a READ goes on and completes", |model, world| {
        world.is_done(&model.settings) && world.judge.retries_max > 0
    });
    let actions = shortest(&settings, restarts);
    let trace = Trace::of(&settings, &actions);
    let text = serde_json::to_string(&trace).expect("a trace becomes JSON");
    let read: Trace = serde_json::from_str(&text).expect("JSON becomes a trace");
    assert_eq!(read, trace);
    assert_eq!((trace.psn_bits, trace.first_psn), (3, 7));
    let lost: Vec<_> = trace.frames.iter().filter(|fate| fate.arrived.is_empty()).collect();
    assert!(!lost.is_empty(), "{text}");
    let requests = trace.frames.iter().filter(|fate| fate.frame.sender() == Side::Requester).count();
    assert_eq!(requests, 2, "the READ is asked for twice: {text}");
    for fate in &trace.frames {
        assert!(fate.arrived.iter().all(|&arrived| arrived > fate.sent), "{text}");
    }
}
