//! Size of the generated Verilog: Yosys maps it to UltraScale+, and the cells of the netlist are counted here.
//!
//! Nothing is placed or routed, so these are sizes and logic levels, not timing.
mod netlist;

pub use netlist::{Figures, Netlist};

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Synthesises modules of one Verilog file, and counts their cells.
pub struct Synthesis {
    yosys: PathBuf,
    directory: PathBuf,
}

impl Synthesis {
    /// Writes `verilog` to `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// If Yosys has not been installed, or the directory cannot be written.
    pub fn new(root: &Path, directory: &Path, verilog: &str) -> Result<Synthesis> {
        let yosys = root.join(".venv/bin/yosys");
        ensure!(yosys.exists(), "{} is missing; run scripts/setup.sh", yosys.display());
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("rnic.v"), verilog)?;
        Ok(Synthesis { yosys, directory: directory.to_path_buf() })
    }

    /// Synthesises `module` with everything below it, flattened.
    ///
    /// # Errors
    /// If Yosys fails; the log is in the directory.
    pub fn figures(&self, module: &str) -> Result<Figures> {
        let script = format!(
            "read_verilog rnic.v; synth_xilinx -family xcup -flatten -noiopad -top {module}; write_json {module}.json"
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
