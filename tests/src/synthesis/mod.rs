//! Size of the generated Verilog: Yosys maps it to UltraScale+, and the cells of the netlist are counted here.
//!
//! Nothing is placed or routed, so these are sizes and logic levels, not timing.
mod netlist;

pub use netlist::{Figures, Netlist};

use anyhow::{Context, Result, ensure};
use rnic_kernel::Design;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Synthesises modules of one design, and counts their cells.
///
/// Yosys reads a module and those in it, and nothing else of the design: it numbers what it reads, and its mapper breaks ties by
/// these numbers, so the figures of a block would depend on others (`hdl/BUDGET.md`).
pub struct Synthesis<'a> {
    yosys: PathBuf,
    directory: PathBuf,
    design: &'a Design,
}

impl Synthesis<'_> {
    /// Netlists and logs go to `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// If Yosys has not been installed, or the directory cannot be created.
    pub fn new<'a>(root: &Path, directory: &Path, design: &'a Design) -> Result<Synthesis<'a>> {
        let yosys = root.join(".venv/bin/yosys");
        ensure!(yosys.exists(), "{} is missing; run scripts/setup.sh", yosys.display());
        std::fs::create_dir_all(directory)?;
        Ok(Synthesis { yosys, directory: directory.to_path_buf(), design })
    }

    /// Synthesises `module` with everything below it, flattened.
    ///
    /// # Errors
    /// If the design has no such module, or if Yosys fails; the log is in the directory.
    pub fn figures(&self, module: &str) -> Result<Figures> {
        let verilog =
            self.design.verilog_of(module).with_context(|| format!("the design has no module {module}"))?;
        std::fs::write(self.directory.join(format!("{module}.v")), verilog)?;
        let script = format!(
            "read_verilog {module}.v; synth_xilinx -family xcup -flatten -noiopad -top {module}; write_json {module}.json"
        );
        let log = format!("{module}.log");
        let status = Command::new(&self.yosys)
            .args(["-q", "-l", &log, "-p", &script])
            .current_dir(&self.directory)
            .output()
            .with_context(|| format!("{} does not start", self.yosys.display()))?
            .status;
        ensure!(status.success(), "Yosys fails on {module}; see {}", self.directory.join(log).display());
        let netlist = std::fs::read_to_string(self.directory.join(format!("{module}.json")))?;
        Netlist::parse(&netlist, module)?.figures()
    }
}
