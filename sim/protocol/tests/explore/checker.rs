//! The model checker, and the walk that bounds the length of every run.
use rnic_protocol::trace::Frame;
use rnic_protocol::{Action, Settings, Violation, World};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Something that a run must be able to reach, so that an exploration is not empty.
pub(crate) type Witness = (&'static str, fn(&Explored, &World) -> bool);

/// All messages have completed.
pub(crate) const DONE: Witness = ("all messages complete", |model, world| world.is_done(&model.settings));

/// A model for the checker.
#[derive(Clone)]
pub(crate) struct Explored {
    pub(crate) settings: Settings,
    /// All runs end with all messages completed.
    pub(crate) ends_well: bool,
    pub(crate) witnesses: Vec<Witness>,
}

impl Model for Explored {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.settings)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.judge.violation.is_none() {
            actions.extend(world.actions(&self.settings));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(world.after(&self.settings, action))
    }

    fn properties(&self) -> Vec<Property<Explored>> {
        let mut properties = vec![
            Property::<Explored>::always(name(Violation::Delivery), |_, world| {
                keeps(world, Violation::Delivery)
            }),
            Property::<Explored>::always(name(Violation::Atomic), |_, world| keeps(world, Violation::Atomic)),
            Property::<Explored>::always(name(Violation::Data), |_, world| keeps(world, Violation::Data)),
            Property::<Explored>::always(name(Violation::Completion), |_, world| {
                keeps(world, Violation::Completion)
            }),
            Property::<Explored>::always(name(Violation::Error), |_, world| keeps(world, Violation::Error)),
            Property::<Explored>::always(name(Violation::Nak), |_, world| keeps(world, Violation::Nak)),
            Property::<Explored>::always(name(Violation::Window), |_, world| keeps(world, Violation::Window)),
            Property::<Explored>::always(name(Violation::RnrWait), |_, world| {
                keeps(world, Violation::RnrWait)
            }),
        ];
        if self.ends_well {
            properties.push(Property::eventually(ENDS_WELL, |model: &Explored, world: &World| {
                world.is_done(&model.settings)
            }));
        }
        let witnesses = self.witnesses.iter().map(|&(name, condition)| Property::sometimes(name, condition));
        properties.extend(witnesses);
        properties
    }
}

fn keeps(world: &World, violation: Violation) -> bool {
    world.judge.violation != Some(violation)
}

/// Name of the property that all messages complete in the end.
pub(crate) const ENDS_WELL: &str = "all messages complete with success";

/// What a rule demands.
pub(crate) fn name(violation: Violation) -> &'static str {
    match violation {
        Violation::Delivery => "every packet is executed once and in order",
        Violation::Atomic => "every atomic is applied once and returns the value before it",
        Violation::Data => "data of READs is written once, in order, to its place",
        Violation::Completion => "messages complete once, in order, none before it is done",
        Violation::Error => "a message fails only when its retries are used up or its region refuses",
        Violation::Nak => "a gap is answered by one NAK",
        Violation::Window => "at most half of the PSN space is unacknowledged",
        Violation::RnrWait => "nothing is sent, and no timer fires, during the wait after an RNR NAK",
    }
}

/// Explores all states, of which there are so many. Every property holds, and every witness is reached.
pub(crate) fn holds(about: &str, settings: &Settings, states: usize, witnesses: &[Witness]) {
    let model = Explored { settings: settings.clone(), ends_well: false, witnesses: witnesses.to_vec() };
    let checker = model.checker().threads(1).spawn_dfs().join();
    println!("\n{about}: {} states, none breaks a rule", checker.unique_state_count());
    assert_all(about, &checker);
    assert_states(about, checker.unique_state_count(), states);
}

/// The number of states shows how much was explored: a bound or a rule that cuts runs off changes it.
///
/// # Panics
/// If it is another one than that of the model as it was reviewed.
fn assert_states(about: &str, explored: usize, reviewed: usize) {
    assert_eq!(explored, reviewed, "{about}: the space is another one; say why with the new number");
}

/// # Panics
/// With a run for each property that does not hold.
fn assert_all(about: &str, checker: &impl Checker<Explored>) {
    assert!(checker.is_done(), "{about}: the exploration is complete");
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        match (property.expectation, discoveries.get(property.name)) {
            (Expectation::Sometimes, None) => panic!("{about}: no run reaches \"{}\"", property.name),
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                let world = path.last_state();
                let run = describe(&checker.model().settings, &path.clone().into_actions());
                panic!("{about}: \"{}\" does not hold:\n{run}ends in {world:#?}", property.name);
            }
            _ => {}
        }
    }
}

/// Lists what happens in a run, one action in a line.
fn describe(settings: &Settings, actions: &[Action]) -> String {
    let mut world = World::new(settings);
    let mut lines = String::new();
    for &action in actions {
        let frame = match action {
            Action::DeliverRequest(index) | Action::LoseRequest(index) | Action::DuplicateRequest(index) => {
                world.requests[index].to_string()
            }
            Action::DeliverResponse(index)
            | Action::LoseResponse(index)
            | Action::DuplicateResponse(index) => world.responses[index].to_string(),
            _ => String::new(),
        };
        let step = world.step(settings, action);
        let sent: Vec<String> = step.sent.iter().map(Frame::to_string).collect();
        lines += &format!("{action:?} {frame} -> {}\n", sent.join(", "));
        world = step.world;
    }
    lines
}

/// Explores all states, of which there are so many, and proves that every run ends, and ends with all messages completed.
/// Returns the largest number of retries that were taken without progress.
pub(crate) fn ends_well(about: &str, settings: &Settings, states: usize) -> u8 {
    let model = Explored { settings: settings.clone(), ends_well: true, witnesses: Vec::new() };
    let checker = model.checker().threads(1).spawn_dfs().join();
    assert_all(about, &checker);
    let walk = Walk::of(settings);
    assert!(walk.cycle.is_none(), "{about}: a run comes back to {:#?}", walk.cycle);
    assert!(walk.bad_end.is_none(), "{about}: a run ends in {:?}", walk.bad_end);
    assert_eq!(
        walk.states,
        checker.unique_state_count(),
        "{about}: the walk and the checker see the same states"
    );
    println!(
        "\n{about}: {} states, every run completes all messages in at most {} steps and {} retries without progress",
        walk.states, walk.steps, walk.retries
    );
    assert_states(about, walk.states, states);
    walk.retries
}

/// Finds a run that breaks the property of this name, and returns its actions.
pub(crate) fn breaks(settings: &Settings, ends_well: bool, property: &'static str) -> Vec<Action> {
    let model = Explored { settings: settings.clone(), ends_well, witnesses: Vec::new() };
    let checker =
        model.checker().threads(1).finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    let path = checker.discovery(property);
    let found: Vec<&str> = checker.discoveries().into_keys().collect();
    let path = path.unwrap_or_else(|| panic!("no run breaks \"{property}\", but {found:?} are found"));
    println!("\n\"{property}\" is broken after {} states explored", checker.unique_state_count());
    path.into_actions()
}

/// Finds the shortest run that reaches a witness, and returns its actions.
pub(crate) fn shortest(settings: &Settings, witness: Witness) -> Vec<Action> {
    let model = Explored { settings: settings.clone(), ends_well: false, witnesses: vec![witness] };
    let names = [witness.0].into();
    let checker = model.checker().threads(1).finish_when(HasDiscoveries::AnyOf(names)).spawn_bfs().join();
    checker.assert_any_discovery(witness.0).into_actions()
}

/// Does a run come back to a state, so that it may go on for ever?
pub(crate) fn comes_back(settings: &Settings) -> bool {
    Walk::of(settings).cycle.is_some()
}

/// All runs, followed to their ends. The checker cannot tell a cycle from a state that is reached twice; this can. What holds in
/// all runs needs no fairness here, since the faults of the wire are bounded: without a cycle, every run ends.
struct Walk {
    states: usize,
    /// Length of the longest run.
    steps: usize,
    retries: u8,
    /// State in which a run ends without all messages completed.
    bad_end: Option<World>,
    /// State that is reached again from itself, at which the walk stops.
    cycle: Option<World>,
}

/// A state whose successors are being visited.
struct Open {
    fingerprint: u64,
    successors: Vec<World>,
    longest: usize,
}

impl Walk {
    fn of(settings: &Settings) -> Walk {
        let mut walk = Walk { states: 0, steps: 0, retries: 0, bad_end: None, cycle: None };
        let mut steps_from: HashMap<u64, Option<usize>> = HashMap::new();
        let begin = World::new(settings);
        let mut path = vec![walk.open(settings, &begin, &mut steps_from)];
        while let Some(top) = path.last_mut() {
            let Some(successor) = top.successors.pop() else {
                let closed = path.pop().expect("the path has a last state");
                steps_from.insert(closed.fingerprint, Some(closed.longest));
                match path.last_mut() {
                    Some(top) => top.longest = top.longest.max(closed.longest + 1),
                    None => walk.steps = closed.longest,
                }
                continue;
            };
            match steps_from.get(&fingerprint(&successor)) {
                Some(Some(steps)) => top.longest = top.longest.max(steps + 1),
                Some(None) => {
                    walk.cycle = Some(successor);
                    break;
                }
                None => path.push(walk.open(settings, &successor, &mut steps_from)),
            }
        }
        walk
    }

    fn open(
        &mut self,
        settings: &Settings,
        world: &World,
        steps_from: &mut HashMap<u64, Option<usize>>,
    ) -> Open {
        let fingerprint = fingerprint(world);
        steps_from.insert(fingerprint, None);
        let actions = world.actions(settings);
        self.states += 1;
        self.retries = self.retries.max(world.judge.retries_max);
        if actions.is_empty() && !world.is_done(settings) {
            self.bad_end = Some(world.clone());
        }
        let successors = actions.into_iter().map(|action| world.after(settings, action)).collect();
        Open { fingerprint, successors, longest: 0 }
    }
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
