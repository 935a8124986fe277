//! From Verilog to a shared library.
//!
//! ```text
//! top.v ─ verilator_bin ─> Vmodel*.cpp ─┬─ fast, at the chosen level ─┐
//!                          + shim.cpp ──┘                             ├─ link ─> model.so, ports
//!                          Vmodel*Slow.cpp ─ at -O0 ──────────────────┤
//! Verilator's include ─ once for all models, in the cache too ────────┘
//! ```
//!
//! To read Verilator's headers takes two seconds, which is most of the compilation of a small model. So they are compiled once for
//! all units of a level ([`Headers`]), by GCC: Clang reads compiled headers only where it compiled them.

use crate::Error;
use crate::cache;
use crate::model::ModelOptions;
use crate::port::PortInfo;
use crate::toolchain::{Toolchain, run};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// The shared library of a model, in its folder of the cache.
pub(crate) const LIBRARY: &str = "model.so";
/// The list of its ports.
pub(crate) const PORTS: &str = "ports";
/// How long Verilator and the C++ compiler took, in milliseconds; `scripts/test.sh` adds them up.
const TIMES: &str = "times";

/// What is compiled around each model: the functions that [`crate::library`] calls.
const SHIM: &str = include_str!("shim.cpp");
/// Only the shim's functions leave the library, so that the Verilator runtime of one model never meets another's.
const EXPORTS: &str = "{ global: verilated_*; local: *; };\n";

/// Verilator 5.048 merges `(a >> b) >> c` into `a >> (b + c)`, and likewise to the left, with a sum that wraps at the
/// width of the distances: 6-bit distances of 40 and 40 shift by 16. The two rules are therefore off.
const VERILATOR_FLAGS: &[&str] = &[
    "--cc",
    "--no-timing",
    "-O3",
    "-fno-dfg-peephole-replace-shiftl-shiftl",
    "-fno-dfg-peephole-replace-shiftr-shiftr",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--prefix",
    "Vmodel",
];
/// Warnings are the business of a lint run, not of a simulation.
const QUIET_FLAGS: &[&str] = &["-Wno-fatal", "-Wno-lint", "-Wno-style"];
const COMPILER_FLAGS: &[&str] = &["-std=c++17", "-fPIC", "-fvisibility=hidden", "-w", "-pthread"];
/// Translation units of at most this much source, so that large models use several cores.
const UNIT_BYTES_MAX: u64 = 400_000;

/// Compiles a model, or finds it in the cache. Returns its folder, and whether it was in the cache.
pub(crate) fn model(
    toolchain: &Toolchain,
    top: &str,
    verilog: &str,
    options: &ModelOptions,
) -> Result<(PathBuf, bool), Error> {
    let directory = cache::directory(options.cache_directory.as_deref());
    let mut parts = vec!["model", top, verilog, SHIM, EXPORTS, options.optimization.flag()];
    let (identity, cxx) = (toolchain.identity(), toolchain.cxx.join(" "));
    parts.extend([identity.as_str(), cxx.as_str(), if options.trace { "trace" } else { "" }]);
    parts.extend(VERILATOR_FLAGS.iter().chain(COMPILER_FLAGS).copied());
    parts.extend(options.verilator_arguments.iter().map(String::as_str));
    let key = cache::key(&parts);
    cache::entry(&directory, &key, |folder| {
        let build = Build { toolchain, top, options, folder, directory: &directory };
        let started = Instant::now();
        let ports = build.verilate(verilog)?;
        let verilated = started.elapsed();
        build.compile(&ports)?;
        let compiled = started.elapsed() - verilated;
        build.write(TIMES, &format!("{} {}\n", verilated.as_millis(), compiled.as_millis()))?;
        Ok(vec![LIBRARY, PORTS, TIMES])
    })
}

/// What each unit includes first.
const HEADERS: &str = "#include \"verilated.h\"\n#include <memory>\n";

/// The files of the headers of a level.
struct Headers {
    level: &'static str,
    text: &'static str,
    compiled: &'static str,
    /// Which ccache reads in place of `compiled`.
    sum: &'static str,
}

impl Headers {
    fn of(level: &str) -> Headers {
        match level {
            "-O0" => Headers { level: "-O0", text: "h0.h", compiled: "h0.h.gch", sum: "h0.h.gch.sum" },
            "-O1" => Headers { level: "-O1", text: "h1.h", compiled: "h1.h.gch", sum: "h1.h.gch.sum" },
            _ => Headers { level: "-O2", text: "h2.h", compiled: "h2.h.gch", sum: "h2.h.gch.sum" },
        }
    }

    fn names(&self) -> [&'static str; 3] {
        [self.text, self.compiled, self.sum]
    }
}

struct Build<'a> {
    toolchain: &'a Toolchain,
    top: &'a str,
    options: &'a ModelOptions,
    /// Where this build works.
    folder: &'a Path,
    /// The cache.
    directory: &'a Path,
}

impl Build<'_> {
    /// Runs Verilator, and writes the port list and the shim that belongs to it.
    fn verilate(&self, verilog: &str) -> Result<Vec<PortInfo>, Error> {
        self.write("top.v", verilog)?;
        let mut command = self.toolchain.verilator();
        command.current_dir(self.folder).args(VERILATOR_FLAGS).args(QUIET_FLAGS);
        command.args(["--Mdir", ".", "--top-module", self.top]);
        if self.options.trace {
            command.args(["--trace-fst", "--trace-structs"]);
        }
        let output = run(command.args(&self.options.verilator_arguments).arg("top.v"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Verilation { top: self.top.into(), stderr });
        }

        let header_path = self.folder.join("Vmodel.h");
        let header = fs::read_to_string(&header_path).map_err(Error::cache("read", &header_path))?;
        let mut ports = Vec::new();
        for line in header.lines() {
            match PortInfo::parse(line) {
                None => {}
                Some(Ok(port)) => ports.push(port),
                Some(Err(())) => return Err(Error::PortList { top: self.top.into(), line: line.into() }),
            }
        }
        let (mut list, mut addresses) = (String::new(), String::new());
        for (index, port) in ports.iter().enumerate() {
            writeln!(list, "{}", port.to_line()).expect("a String takes any text");
            writeln!(addresses, "    ports[{index}] = &model.{};", port.member)
                .expect("a String takes any text");
        }
        self.write(PORTS, &list)?;
        self.write("shim.cpp", &SHIM.replace("    // PORTS\n", &addresses))?;
        Ok(ports)
    }

    /// Compiles and links what Verilator wrote.
    fn compile(&self, ports: &[PortInfo]) -> Result<(), Error> {
        debug_assert!(ports.iter().all(|port| !port.member.is_empty()));
        let (mut fast, mut slow) = (vec!["shim.cpp".to_string()], Vec::new());
        let mut sources: Vec<String> = fs::read_dir(self.folder)
            .map_err(Error::cache("read", self.folder))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("Vmodel") && name.ends_with(".cpp"))
            .collect();
        // The order of a folder is not fixed, and ccache wants equal text.
        sources.sort();
        for source in sources {
            // Files marked slow hold what runs once: construction, settling, names of traced signals.
            if source.contains("Slow") { slow.push(source) } else { fast.push(source) }
        }
        const SLOW_LEVEL: &str = "-O0";
        let level = self.options.optimization.flag();
        if level == SLOW_LEVEL {
            fast.append(&mut slow);
        }
        let mut units = self.units("fast", &fast, level)?;
        units.extend(self.units("slow", &slow, SLOW_LEVEL)?);
        // Traced models are rare.
        if !self.options.trace && self.toolchain.headers_move() {
            for level in [level, SLOW_LEVEL] {
                self.take_headers(level)?;
            }
        }
        let commands = units.iter().map(|(name, level)| self.compiler(name, level, "."));
        self.run_all(self.top, commands.collect())?;

        let runtime = self.runtime()?;
        self.write("exports.map", EXPORTS)?;
        let mut command = self.toolchain.compiler();
        command.current_dir(self.folder).args(["-shared", "-pthread", "-o", LIBRARY]);
        command.arg("-Wl,--version-script=exports.map");
        command.args(units.iter().map(|(name, _)| format!("{name}.o")));
        command.args(self.runtime_sources().iter().map(|name| runtime.join(format!("{name}.o"))));
        if self.options.trace {
            command.args(["-lz", "-llz4"]);
        }
        self.run_all(self.top, vec![command])
    }

    /// Joins sources into translation units: headers are read once for each unit, which is most of the work
    /// for a small model. Returns the names of the units with their optimization level.
    fn units<'l>(
        &self,
        prefix: &str,
        files: &[String],
        level: &'l str,
    ) -> Result<Vec<(String, &'l str)>, Error> {
        let mut units = Vec::new();
        let (mut text, mut bytes) = (String::new(), 0);
        for (index, file) in files.iter().enumerate() {
            writeln!(text, "#include \"{file}\"").expect("a String takes any text");
            bytes += fs::metadata(self.folder.join(file)).map(|metadata| metadata.len()).unwrap_or_default();
            if bytes >= UNIT_BYTES_MAX || index + 1 == files.len() {
                let name = format!("{prefix}_{}", units.len());
                self.write(&format!("{name}.cpp"), &text)?;
                units.push((name, level));
                (text, bytes) = (String::new(), 0);
            }
        }
        Ok(units)
    }

    fn runtime_sources(&self) -> &'static [&'static str] {
        if self.options.trace {
            &["verilated", "verilated_threads", "verilated_fst_c"]
        } else {
            &["verilated", "verilated_threads"]
        }
    }

    /// Verilator's own sources, compiled once for all models that share compiler and flags.
    fn runtime(&self) -> Result<PathBuf, Error> {
        const OBJECTS: [&str; 3] = ["verilated.o", "verilated_threads.o", "verilated_fst_c.o"];
        let sources = self.runtime_sources();
        let (identity, cxx) = (self.toolchain.identity(), self.toolchain.cxx.join(" "));
        let mut parts = vec!["runtime", identity.as_str(), cxx.as_str(), RUNTIME_LEVEL];
        parts.extend(COMPILER_FLAGS.iter().chain(sources).copied());
        let key = cache::key(&parts);
        let (folder, _) = cache::entry(self.directory, &key, |folder| {
            let build = Build { folder, ..*self };
            let include = self.toolchain.root.join("include");
            for source in sources {
                build.write(&format!("{source}.unit.cpp"), &format!("#include \"{source}.cpp\"\n"))?;
            }
            let commands = sources.iter().map(|source| {
                let mut command = build.compiler(&format!("{source}.unit"), RUNTIME_LEVEL, ".");
                command.arg("-o").arg(format!("{source}.o")).arg("-I").arg(&include);
                command
            });
            build.run_all("the Verilator runtime", commands.collect())?;
            Ok(OBJECTS[..sources.len()].to_vec())
        })?;
        Ok(folder)
    }

    /// Makes the headers of a level known in the folder of this build, where [`Build::compiler`] looks for them.
    fn take_headers(&self, level: &str) -> Result<(), Error> {
        let headers = Headers::of(level);
        if self.folder.join(headers.text).exists() {
            return Ok(());
        }
        let (identity, cxx) = (self.toolchain.identity(), self.toolchain.cxx.join(" "));
        let mut parts = vec!["headers", HEADERS, identity.as_str(), cxx.as_str(), level];
        parts.extend(COMPILER_FLAGS);
        let key = cache::key(&parts);
        // The check of an entry reads all of it, and these files are large. Another cache has headers of its own, since it may go
        // away before this build ends.
        static CHECKED: Mutex<BTreeMap<(PathBuf, String), PathBuf>> = Mutex::new(BTreeMap::new());
        let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (self.directory.to_path_buf(), key);
        let folder = match checked.get(&place) {
            Some(folder) if folder.is_dir() => folder.clone(),
            _ => {
                let compile = |folder: &Path| Build { folder, ..*self }.compile_headers(&headers, &place.1);
                cache::entry(self.directory, &place.1, compile)?.0
            }
        };
        for name in headers.names() {
            let (from, to) = (folder.join(name), self.folder.join(name));
            symlink(&from, &to).map_err(Error::cache("link", &to))?;
        }
        checked.insert(place, folder);
        Ok(())
    }

    /// Compiles the headers; returns the files of the entry.
    fn compile_headers(&self, headers: &Headers, key: &str) -> Result<Vec<&'static str>, Error> {
        self.write(headers.text, HEADERS)?;
        let mut command = self.command(headers.level, ".");
        command.args(["-x", "c++-header", headers.text, "-o", headers.compiled]);
        self.run_all("Verilator's headers", vec![command])?;
        // In the place of the compiled headers, whose content depends on where they are.
        self.write(headers.sum, key)?;
        Ok(headers.names().to_vec())
    }

    /// The command that compiles `<name>.cpp` into `<name>.o`.
    fn compiler(&self, name: &str, level: &str, include: &str) -> Command {
        let mut command = self.command(level, include);
        let headers = Headers::of(level);
        if self.folder.join(headers.text).exists() {
            command.args(["-include", headers.text]);
        }
        command.arg("-c").arg(format!("{name}.cpp"));
        command
    }

    /// A compiler with all flags of a level.
    fn command(&self, level: &str, include: &str) -> Command {
        let root = self.toolchain.root.join("include");
        let mut command = self.toolchain.compiler();
        // ccache knows compiled headers by their sum.
        command.env("CCACHE_PCH_EXTSUM", "true").env("CCACHE_SLOPPINESS", "pch_defines,time_macros");
        command.current_dir(self.folder).arg(level).args(COMPILER_FLAGS);
        for define in ["VM_COVERAGE", "VM_SC", "VM_TIMING", "VM_TRACE_VCD", "VM_TRACE_SAIF"] {
            command.arg(format!("-D{define}=0"));
        }
        for define in ["VM_TRACE", "VM_TRACE_FST"] {
            command.arg(format!("-D{define}={}", u8::from(self.options.trace)));
        }
        command.arg("-I").arg(include).arg("-I").arg(&root).arg("-I").arg(root.join("vltstd"));
        command
    }

    /// Runs compilers side by side, as many as there are cores. After a failure no other is started.
    fn run_all(&self, what: &str, commands: Vec<Command>) -> Result<(), Error> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.min(commands.len());
        let waiting = Mutex::new(commands.into_iter());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> Result<(), Error> {
            while let Some(command) = next() {
                self.run_one(what, command).inspect_err(|_| while next().is_some() {})?;
            }
            Ok(())
        };
        // The scope waits for every child, also after a failure, because the scratch folder goes away.
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    /// Runs one compiler.
    fn run_one(&self, what: &str, mut command: Command) -> Result<(), Error> {
        let text = format!("{command:?}");
        let output = command.stdin(Stdio::null()).output().map_err(|reason| Error::ToolNotStarted {
            program: command.get_program().to_string_lossy().into_owned(),
            reason,
        })?;
        if output.status.success() {
            return Ok(());
        }
        Err(self.failure(what, text, String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// A missing library of the trace writer deserves an error of its own, since it is installed in one step.
    fn failure(&self, what: &str, command: String, stderr: String) -> Error {
        let missing = ["zlib.h", "lz4.h", "-lz:", "-llz4:"].iter().find(|name| {
            stderr.lines().any(|line| {
                let absent = line.contains("No such file")
                    || line.contains("not found")
                    || line.contains("cannot find");
                absent && format!("{line}:").contains(**name)
            })
        });
        match missing {
            Some(missing) if self.options.trace => {
                Error::TraceLibraryMissing { missing: missing.trim_end_matches(':').into() }
            }
            _ => Error::Compilation { top: what.into(), command, stderr },
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(Error::cache("write", &path))
    }
}

/// The runtime is compiled once, so it is worth optimizing whatever the model is built with.
const RUNTIME_LEVEL: &str = "-O2";
