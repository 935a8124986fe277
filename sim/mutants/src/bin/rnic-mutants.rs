//! Runs the mutation gate; `scripts/mutants.sh` builds what it needs.
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rnic_mutants::gate::{Gate, chosen_judges, table, write_summary};
use rnic_mutants::judges::JUDGES;
use rnic_mutants::{Fault, faults};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Judges mutants, and tells which judge saw which mutant.
#[derive(Parser)]
struct Arguments {
    /// Lists mutants and judges.
    #[arg(long)]
    list: bool,
    /// Judges the mutants whose name contains this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Shows each mutant only to the judge that saw it soonest before.
    #[arg(long)]
    own: bool,
    /// Judges the mutants of the sample, as with `--own`.
    #[arg(long)]
    sample: bool,
    /// Runs this judge; may be given several times.
    #[arg(long)]
    judge: Vec<String>,
    /// Mutants that are judged side by side.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Limit of time of each judge in seconds. The unchanged card is not judged then, which otherwise gives the limits.
    #[arg(long)]
    limit: Option<u64>,
    /// A test program, as <name>=<path>.
    #[arg(long)]
    program: Vec<String>,
    /// Folder of the package `rnic-sim`.
    #[arg(long, default_value = "sim")]
    package: PathBuf,
    /// Folder for the summary, and for the output of judges.
    #[arg(long, default_value = "build/mutants")]
    output: PathBuf,
}

/// Longest time for a judge on the unchanged card, with the time to compile the model.
const FIRST_LIMIT: Duration = Duration::from_secs(3600);

fn list() {
    println!("judges, in their order:");
    for judge in JUDGES {
        println!("  {:<12} {:<10} {}", judge.name, judge.program, judge.about);
    }
    println!("mutants:");
    for fault in faults() {
        println!("  {:<32} {:<18} {:<12} {}", fault.name, fault.stage(), fault.kind.name(), fault.means);
    }
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Fault>> {
    let is_wanted = |fault: &&Fault| {
        let is_only = arguments.only.iter().any(|part| fault.name.contains(part.as_str()));
        match (arguments.only.is_empty(), arguments.sample) {
            (false, _) => is_only,
            (true, true) => rnic_mutants::SAMPLE.contains(&fault.name),
            (true, false) => true,
        }
    };
    let chosen: Vec<&Fault> = faults().filter(is_wanted).collect();
    ensure!(!chosen.is_empty(), "no mutant is chosen");
    Ok(chosen)
}

fn run(arguments: &Arguments) -> Result<bool> {
    let faults = chosen(arguments)?;
    let own = arguments.own || arguments.sample;
    let judges = match own && arguments.judge.is_empty() {
        true => JUDGES.iter().filter(|judge| faults.iter().any(|fault| fault.judge == judge.name)).collect(),
        false => chosen_judges(&arguments.judge)?,
    };
    let mut gate = Gate {
        programs: Default::default(),
        package: std::path::absolute(&arguments.package)?,
        output: std::path::absolute(&arguments.output)?,
        jobs: arguments.jobs,
        own,
        first_limit: FIRST_LIMIT,
    };
    for program in &arguments.program {
        let Some((name, path)) = program.split_once('=') else { bail!("--program {program} has no `=`") };
        gate.programs.insert(name.into(), path.into());
    }
    std::fs::create_dir_all(&gate.output).with_context(|| format!("{}", gate.output.display()))?;
    let limits = match arguments.limit {
        Some(seconds) => judges.iter().map(|judge| (judge.name, Duration::from_secs(seconds))).collect(),
        None => gate.unchanged(&judges)?,
    };
    let outcomes = gate.judge(&faults, &judges, &limits)?;
    let summary = gate.output.join("summary.txt");
    write_summary(&summary, &outcomes)?;
    println!("\n{}", table(&outcomes));
    Ok(outcomes.iter().all(|outcome| outcome.caught.is_some()))
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    Ok(if run(&arguments)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
