//! Runs judges over mutants, and tells what became of each mutant.
use crate::judges::{JUDGES, Judge, judge};
use crate::verdict::{End, Verdict, verdict};
use crate::{Fault, UNCHANGED, VARIABLE};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Shortest limit of time of a judge.
const LIMIT_MIN: Duration = Duration::from_secs(60);
/// A judge may take this many times as long as it took on the unchanged card.
const LIMIT_FACTOR: u32 = 8;
/// How often a judge is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// Where the programs of the judges are, and where output goes.
pub struct Gate {
    /// Test programs by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// Current folder of a judge: that of the package `rnic-sim`.
    pub package: PathBuf,
    /// Folder for the output of judges.
    pub output: PathBuf,
    /// Mutants that are judged side by side.
    pub jobs: usize,
    /// Whether a mutant meets only its own judge, in place of all.
    pub own: bool,
    /// Longest time of a judge on the unchanged card, which includes compiling the model.
    pub first_limit: Duration,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The mutant.
    pub fault: &'static Fault,
    /// Judge that caught it, with the first line of its failure.
    pub caught: Option<(&'static str, String)>,
    /// Judges that broke, with the reason.
    pub broken: Vec<(&'static str, String)>,
    /// Time of all judges that ran.
    pub elapsed: Duration,
}

impl Outcome {
    /// How it ended, in the table.
    pub fn status(&self) -> &'static str {
        match (&self.caught, self.broken.is_empty()) {
            (Some(_), _) => "caught",
            (None, true) => "SURVIVED",
            (None, false) => "BROKEN",
        }
    }
}

/// The judges in the order in which a mutant meets them: its own goes first.
fn order(fault: &Fault, judges: &[&'static Judge]) -> Vec<&'static Judge> {
    let own = judge(fault.judge).filter(|own| judges.contains(own));
    own.into_iter().chain(judges.iter().copied().filter(|judge| Some(*judge) != own)).collect()
}

impl Gate {
    /// Runs one judge on one mutant. Its output goes to a file.
    fn run(&self, judge: &Judge, mutant: &str, limit: Duration) -> Result<(Verdict, Duration)> {
        let program = self.programs.get(judge.program);
        let program = program.with_context(|| format!("there is no test program `{}`", judge.program))?;
        let path = self.output.join(format!("{mutant}-{}.log", judge.name));
        let log = File::create(&path).with_context(|| format!("{}", path.display()))?;
        let mut command = Command::new(program);
        command.args(["--exact", "--nocapture", &judge.full_test()]).current_dir(&self.package);
        command.env(VARIABLE, mutant).env("RNIC_SEEDS", judge.seeds.to_string());
        command.env("CARGO_MANIFEST_DIR", &self.package);
        command.env("RNIC_FAILURES", self.output.join("failures")).env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let end = loop {
            if let Some(status) = child.try_wait()? {
                break match (status.code(), status.signal()) {
                    (Some(code), _) => End::Code(code),
                    (None, signal) => End::Signal(signal.unwrap_or_default()),
                };
            }
            if started.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                break End::Limit(limit);
            }
            thread::sleep(POLL);
        };
        let bytes = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
        Ok((verdict(&end, &String::from_utf8_lossy(&bytes)), started.elapsed()))
    }

    /// Runs the judges on the unchanged card, in the model with all faults. Returns the limit of time of each.
    ///
    /// # Errors
    ///
    /// When a judge does not pass, since it then says nothing about a mutant.
    pub fn unchanged(&self, judges: &[&'static Judge]) -> Result<BTreeMap<&'static str, Duration>> {
        // The first judge compiles the model, so that none is stopped for that.
        let first = judges.first().context("there is no judge")?;
        let (verdict, _) = self.run(first, UNCHANGED, self.first_limit)?;
        ensure!(verdict == Verdict::Passed, "{} on the unchanged card: {verdict:?}", first.name);
        let limits = self.each(judges, |judge| {
            let (verdict, elapsed) = self.run(judge, UNCHANGED, self.first_limit)?;
            ensure!(verdict == Verdict::Passed, "{} on the unchanged card: {verdict:?}", judge.name);
            println!("{:<32} {:<12} passed in {:.1} s", "unchanged", judge.name, elapsed.as_secs_f64());
            Ok((judge.name, LIMIT_MIN.max(elapsed * LIMIT_FACTOR)))
        });
        limits.into_iter().collect()
    }

    /// Runs the judges on each mutant until one sees it.
    ///
    /// # Errors
    ///
    /// When a judge cannot be started.
    pub fn judge(
        &self,
        faults: &[&'static Fault],
        judges: &[&'static Judge],
        limits: &BTreeMap<&'static str, Duration>,
    ) -> Result<Vec<Outcome>> {
        let outcomes = self.each(faults, |fault| {
            let mut outcome = Outcome { fault, caught: None, broken: Vec::new(), elapsed: Duration::ZERO };
            let count = if self.own { 1 } else { judges.len() };
            for judge in order(fault, judges).into_iter().take(count) {
                let (verdict, elapsed) = self.run(judge, fault.name, limits[judge.name])?;
                outcome.elapsed += elapsed;
                match verdict {
                    Verdict::Passed => {}
                    Verdict::Broken(reason) => outcome.broken.push((judge.name, reason)),
                    Verdict::Caught(reason) => {
                        outcome.caught = Some((judge.name, reason));
                        break;
                    }
                }
            }
            println!("{}", row(&outcome));
            Ok(outcome)
        });
        outcomes.into_iter().collect()
    }

    /// Calls a function with each item, as many at a time as there are jobs. Results are in the order of the items.
    fn each<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
        let next = Mutex::new(0..items.len());
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, items.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.lock().expect("nobody has panicked").next();
                        let Some(index) = index else { return };
                        let result = work(&items[index]);
                        done.lock().expect("nobody has panicked").push((index, result));
                    }
                });
            }
        });
        let mut done = done.into_inner().expect("nobody has panicked");
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// The judges that are in a list of names; all if there is none.
///
/// # Errors
///
/// When a name is of no judge.
pub fn chosen_judges(names: &[String]) -> Result<Vec<&'static Judge>> {
    if names.is_empty() {
        return Ok(JUDGES.iter().collect());
    }
    names.iter().map(|name| judge(name).with_context(|| format!("there is no judge `{name}`"))).collect()
}

/// One mutant in the table of results.
pub fn row(outcome: &Outcome) -> String {
    let Fault { name, kind, .. } = outcome.fault;
    let (judge, reason) = match (&outcome.caught, outcome.broken.first()) {
        (Some((judge, reason)), _) => (*judge, reason.as_str()),
        (None, Some((judge, reason))) => (*judge, reason.as_str()),
        (None, None) => ("-", outcome.fault.means),
    };
    let (status, stage, seconds) = (outcome.status(), outcome.fault.stage(), outcome.elapsed.as_secs_f64());
    format!("{name:<32} {stage:<18} {:<12} {status:<9} {judge:<11} {seconds:>6.1} s  {reason}", kind.name())
}

/// The table of results with its heading and its sums.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<32} {:<18} {:<12} {:<9} {:<11} {:>8}  {}\n",
        "mutant", "stage", "kind", "status", "judge", "time", "first failure"
    );
    for outcome in outcomes {
        writeln!(text, "{}", row(outcome)).expect("a String takes any text");
    }
    let count = |status| outcomes.iter().filter(|outcome| outcome.status() == status).count();
    let (caught, survived, broken) = (count("caught"), count("SURVIVED"), count("BROKEN"));
    writeln!(
        text,
        "\n{} mutants: {caught} caught, {survived} survived, {broken} broke their judge",
        outcomes.len()
    )
    .expect("a String takes any text");
    text
}

/// Writes the table to a file.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_summary(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    std::fs::write(path, table(outcomes)).with_context(|| format!("{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::FAULTS;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{MutexGuard, PoisonError};

    /// A gate whose judges are shell scripts.
    fn gate(folder: &Path, script: &str) -> Gate {
        let programs = ["card", "hostile", "protocol_runs", "refusals", "replay"].map(|name| {
            let path = folder.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            (name.to_string(), path)
        });
        let (package, output) = (folder.to_path_buf(), folder.to_path_buf());
        Gate {
            programs: BTreeMap::from(programs),
            package,
            output,
            jobs: 2,
            own: false,
            first_limit: Duration::from_secs(20),
        }
    }

    /// A script that another test writes while a program is started could not be started itself.
    fn one_at_a_time() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const PASS: &str = "echo 'test result: ok. 1 passed; 0 failed'";

    fn outcomes(script: &str, limit_seconds: u64) -> Vec<Outcome> {
        let _turn = one_at_a_time();
        let limits = JUDGES.iter().map(|judge| (judge.name, Duration::from_secs(limit_seconds))).collect();
        let folder = tempfile::tempdir().unwrap();
        let judges = chosen_judges(&[]).unwrap();
        gate(folder.path(), script).judge(&[&FAULTS[0], &FAULTS[1]], &judges, &limits).unwrap()
    }

    #[test]
    fn a_mutant_that_all_judges_pass_survives() {
        let outcomes = outcomes(PASS, 60);
        assert_eq!(outcomes.len(), 2);
        assert!(outcomes.iter().all(|outcome| outcome.status() == "SURVIVED"));
        assert!(table(&outcomes).ends_with("2 mutants: 0 caught, 2 survived, 0 broke their judge\n"));
    }

    #[test]
    fn a_failing_judge_catches_and_is_the_last() {
        let script = format!(
            "if [ $RNIC_MUTANT = {} ]; then echo 'Error: bad PSN'; echo 'test result: FAILED'; exit 101; fi\n{PASS}",
            FAULTS[0].name
        );
        let outcomes = outcomes(&script, 60);
        assert_eq!(outcomes[0].caught, Some((FAULTS[0].judge, "bad PSN".into())));
        assert_eq!(outcomes[1].status(), "SURVIVED");
    }

    #[test]
    fn a_hanging_judge_is_stopped_and_catches() {
        let script = format!("if [ $RNIC_MUTANT = {} ]; then exec sleep 60; fi\n{PASS}", FAULTS[1].name);
        let outcomes = outcomes(&script, 2);
        assert!(outcomes[1].caught.as_ref().is_some_and(|(_, reason)| reason.contains("limit of time")));
    }

    #[test]
    fn a_judge_that_dies_is_not_a_judge_that_sees() {
        let outcomes = outcomes("kill -SEGV $$", 60);
        assert!(outcomes.iter().all(|outcome| outcome.status() == "BROKEN"));
        assert_eq!(outcomes[0].broken.len(), JUDGES.len());
    }

    #[test]
    fn a_mutant_can_be_left_to_its_own_judge() {
        let _turn = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let judges = chosen_judges(&[]).unwrap();
        let limits = JUDGES.iter().map(|judge| (judge.name, Duration::from_secs(60))).collect();
        let gate = Gate { own: true, ..gate(folder.path(), "exit 3") };
        let outcomes = gate.judge(&[&FAULTS[0]], &judges, &limits).unwrap();
        assert_eq!(outcomes[0].broken.iter().map(|broken| broken.0).collect::<Vec<_>>(), [FAULTS[0].judge]);
    }

    #[test]
    fn an_unchanged_card_that_fails_ends_the_gate() {
        let _turn = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let judges = chosen_judges(&["message".into(), "keys".into()]).unwrap();
        let error = gate(folder.path(), "exit 3").unchanged(&judges).unwrap_err();
        assert!(error.to_string().contains("unchanged card"), "{error}");
        let limits = gate(folder.path(), PASS).unchanged(&judges).unwrap();
        assert_eq!(limits.into_keys().collect::<Vec<_>>(), ["keys", "message"]);
    }

    #[test]
    fn the_judge_of_a_fault_goes_first_and_each_goes_once() {
        let judges = chosen_judges(&[]).unwrap();
        let order = order(&FAULTS[0], &judges);
        assert_eq!((order[0].name, order.len()), (FAULTS[0].judge, judges.len()));
        assert!(chosen_judges(&["nobody".into()]).is_err());
    }
}
