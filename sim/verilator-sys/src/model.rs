//! A compiled and loaded model.

use crate::compile;
use crate::library::Functions;
use crate::port::{AnyPort, Direction, Port, PortInfo, PortValue};
use crate::{Error, Instance, Toolchain};
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Optimization level of the C++ compiler for a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimization {
    /// `-O0`: compiles fastest, runs several times slower. For models that run a few thousand cycles.
    O0,
    /// `-O1`: the default; a third less compile time than `-O2`, and about a tenth slower.
    #[default]
    O1,
    /// `-O2`: for benches.
    O2,
}

impl Optimization {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Optimization::O0 => "-O0",
            Optimization::O1 => "-O1",
            Optimization::O2 => "-O2",
        }
    }
}

/// Options with which a model is built.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Optimization level of the C++ compiler.
    pub optimization: Optimization,
    /// Whether instances can write FST waves. Traced models run about 13 times slower while a trace is open, and
    /// are cached apart, so that the plain model stays as it is.
    pub trace: bool,
    /// Further arguments of Verilator, such as `-GWIDTH=8`.
    pub verilator_arguments: Vec<String>,
    /// The cache, instead of the one that the environment names.
    pub cache_directory: Option<PathBuf>,
}

/// A compiled model: cheap to clone, and shared by its instances on any thread.
#[derive(Clone)]
pub struct Model(pub(crate) Arc<Loaded>);

pub(crate) struct Loaded {
    /// Distinguishes the handles of this model from those of others.
    pub(crate) id: u32,
    pub(crate) top: String,
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) functions: Functions,
    pub(crate) is_traced: bool,
    is_from_cache: bool,
    library: PathBuf,
}

impl Model {
    /// Builds the module `top` of a Verilog text, or takes it from the cache, and loads it. Warnings of
    /// Verilator are no errors here: lint with [`Toolchain::lint`].
    ///
    /// # Errors
    ///
    /// [`Error::VerilatorNotFound`] and [`Error::ToolNotStarted`] say what to install;
    /// [`Error::Verilation`] and [`Error::Compilation`] hold what the tool said.
    pub fn build(top: &str, verilog: &str, options: &ModelOptions) -> Result<Model, Error> {
        Model::build_with(&Toolchain::find()?, top, verilog, options)
    }

    /// As [`Model::build`], with tools that were found before.
    ///
    /// # Errors
    ///
    /// As [`Model::build`], except that Verilator need not be found.
    pub fn build_with(
        toolchain: &Toolchain,
        top: &str,
        verilog: &str,
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let (folder, is_from_cache) = compile::model(toolchain, top, verilog, options)?;
        let list_path = folder.join(compile::PORTS);
        let list = fs::read_to_string(&list_path).map_err(Error::cache("read", &list_path))?;
        let ports: Result<Vec<PortInfo>, Error> = list
            .lines()
            .map(|line| {
                PortInfo::from_line(line)
                    .ok_or_else(|| Error::PortList { top: top.into(), line: line.into() })
            })
            .collect();
        let library = folder.join(compile::LIBRARY);
        Ok(Model(Arc::new(Loaded {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            top: top.into(),
            ports: ports?,
            functions: Functions::load(&library)?,
            is_traced: options.trace,
            is_from_cache,
            library,
        })))
    }

    /// Constructs an instance with its own state, evaluated once with all inputs zero, so that raising a clock is an
    /// edge.
    pub fn instance(&self) -> Instance {
        Instance::new(self.clone())
    }

    /// The name of the top module.
    pub fn top(&self) -> &str {
        &self.0.top
    }

    /// The ports, in the order of the Verilog.
    pub fn ports(&self) -> &[PortInfo] {
        &self.0.ports
    }

    /// Whether the model was in the cache, so that nothing was compiled.
    pub fn is_from_cache(&self) -> bool {
        self.0.is_from_cache
    }

    /// The shared library, in the cache.
    pub fn library(&self) -> &Path {
        &self.0.library
    }

    /// A handle to a port that is stored as a `T`: `u8` up to 8 bits, `u16` up to 16, `u32` up to 32, `u64` up to
    /// 64, and above that words as `[u32; N]`.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchPort`] lists the ports there are; [`Error::PortType`] names port, width and right type.
    pub fn port<T: PortValue>(&self, name: &str) -> Result<Port<T>, Error> {
        let any = self.any_port(name)?;
        if !T::fits(any.words(), any.width) {
            return Err(Error::PortType {
                top: self.0.top.clone(),
                port: name.into(),
                width: any.width,
                expected: any.storage.to_string(),
                asked: T::type_name(),
            });
        }
        Ok(Port { any, value: PhantomData })
    }

    /// A handle to a port of any width.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchPort`] lists the ports there are.
    pub fn any_port(&self, name: &str) -> Result<AnyPort, Error> {
        let index = self.0.ports.iter().position(|port| port.name == name).ok_or_else(|| {
            let known = self.0.ports.iter().map(|port| port.name.clone()).collect();
            Error::NoSuchPort { top: self.0.top.clone(), port: name.into(), known }
        })?;
        let port = &self.0.ports[index];
        Ok(AnyPort {
            model: self.0.id,
            index: index as u32,
            width: port.width,
            storage: port.storage,
            is_writable: port.direction != Direction::Output,
        })
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("top", &self.0.top).field("library", &self.0.library).finish()
    }
}
