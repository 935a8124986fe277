//! Choice of few runs that meet every decision of an explored space.
use crate::decision::Decision;
use crate::plan::Settings;
use crate::trace::Trace;
use crate::world::{Action, World};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

/// Most steps that a run takes from a decision to its end.
const STEPS_MAX: usize = 1000;

/// Runs that meet every decision of a space.
#[derive(Clone, Debug)]
pub struct Cover {
    /// States of the space.
    pub states: usize,
    /// Decisions in the space.
    pub decisions: usize,
    /// The runs, each to its end.
    pub traces: Vec<Trace>,
}

/// A state of the space, and how it was reached.
struct Reached {
    world: World,
    from: Option<(usize, Action)>,
}

/// Runs under one setting, and the decisions of each.
struct Run<'a> {
    settings: &'a Settings,
    actions: Vec<Action>,
    decisions: BTreeSet<Decision>,
}

impl Cover {
    /// Explores the spaces of all `settings`, and chooses runs: of the shortest run to each decision, followed to its end on a
    /// wire that is perfect from there, the one with the most decisions that no chosen run has, until all are met.
    ///
    /// # Panics
    /// If a run breaks a rule, unless a fault is planted, or does not end.
    pub fn of(settings: &[Settings]) -> Cover {
        let mut states = 0;
        let mut runs = BTreeMap::new();
        for settings in settings {
            states += explore(settings, &mut runs);
        }
        let mut missing: BTreeSet<Decision> = runs.keys().cloned().collect();
        let decisions = missing.len();
        let mut traces = Vec::new();
        while !missing.is_empty() {
            let gain = |run: &&Run| run.decisions.intersection(&missing).count();
            let best = runs.values().max_by_key(|run| (gain(run), usize::MAX - run.actions.len()));
            let best = best.expect("a decision that is missing has a run");
            missing.retain(|decision| !best.decisions.contains(decision));
            traces.push(Trace::of(best.settings, &best.actions));
        }
        Cover { states, decisions, traces }
    }
}

/// Explores a space breadth first, and adds a run for each decision that `runs` does not have. Returns the number of states.
fn explore<'a>(settings: &'a Settings, runs: &mut BTreeMap<Decision, Run<'a>>) -> usize {
    let begin = World::new(settings);
    let mut seen = HashSet::from([begin.clone()]);
    let mut reached = vec![Reached { world: begin, from: None }];
    let mut waiting = VecDeque::from([0]);
    while let Some(index) = waiting.pop_front() {
        let world = reached[index].world.clone();
        // A model with a mistake need not come to an end.
        if world.judge.violation.is_some() {
            continue;
        }
        for action in world.actions(settings) {
            let step = world.step(settings, action);
            let is_right = settings.fault.is_some() || step.world.judge.violation.is_none();
            assert!(is_right, "{:?}: {action:?} in {world:#?}", step.world.judge.violation);
            for decision in Decision::of(settings, &world, action, &step) {
                runs.entry(decision).or_insert_with(|| {
                    let mut actions = path(&reached, index);
                    actions.push(action);
                    to_the_end(settings, actions)
                });
            }
            if seen.insert(step.world.clone()) {
                reached.push(Reached { world: step.world, from: Some((index, action)) });
                waiting.push_back(reached.len() - 1);
            }
        }
    }
    reached.len()
}

fn path(reached: &[Reached], mut index: usize) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some((before, action)) = reached[index].from {
        actions.push(action);
        index = before;
    }
    actions.reverse();
    actions
}

/// Goes on with a run on a perfect wire until nothing happens any more.
fn to_the_end(settings: &Settings, mut actions: Vec<Action>) -> Run<'_> {
    let mut world = World::new(settings);
    let mut decisions = BTreeSet::new();
    let mut taken = 0;
    loop {
        if taken == actions.len() {
            let possible = world.actions(settings);
            let Some(next) = possible.into_iter().filter(|action| is_perfect(*action)).min_by_key(rank)
            else {
                return Run { settings, actions, decisions };
            };
            actions.push(next);
        }
        assert!(taken < STEPS_MAX, "the run does not end: {world:#?}");
        let step = world.step(settings, actions[taken]);
        decisions.extend(Decision::of(settings, &world, actions[taken], &step));
        world = step.world;
        taken += 1;
    }
}

/// Does a perfect wire do this?
fn is_perfect(action: Action) -> bool {
    match action {
        Action::DeliverRequest(index) | Action::DeliverResponse(index) => index == 0,
        Action::LoseRequest(_) | Action::LoseResponse(_) => false,
        Action::DuplicateRequest(_) | Action::DuplicateResponse(_) => false,
        Action::Send | Action::Answer | Action::Timeout | Action::RnrWaitEnds | Action::PostReceive => true,
    }
}

/// What happens first of several actions: the timer fires when nothing else can happen.
fn rank(action: &Action) -> u8 {
    match action {
        Action::Send | Action::Answer => 0,
        Action::PostReceive => 1,
        Action::DeliverRequest(_) => 2,
        Action::DeliverResponse(_) => 3,
        Action::RnrWaitEnds => 4,
        _ => 5,
    }
}
