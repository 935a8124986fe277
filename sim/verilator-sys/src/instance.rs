//! A running model: its state, and the pointers to its ports.
#![allow(unsafe_code)]

use crate::port::{AnyPort, Port, PortInfo, PortValue, Storage, words_are_within};
use crate::{Error, Model};
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// One instance of a model. It is independent of all others and may be moved to another thread.
///
/// Inputs take effect and outputs change at [`Instance::eval`] or [`Instance::step`], never in between. Handles come
/// from [`Instance::port`] or [`Model::port`]; using the handle of another model panics.
pub struct Instance {
    model: Model,
    state: NonNull<c_void>,
    /// The address of each port's storage in `state`, in the order of the port list.
    ports: Box<[*mut u8]>,
}

// SAFETY: the state belongs to this value alone, with a Verilator context of its own; Verilator's runtime has no
// state that is bound to the thread which constructed a model. Methods that evaluate take `&mut self`.
unsafe impl Send for Instance {}

impl Instance {
    pub(crate) fn new(model: Model) -> Instance {
        let functions = &model.0.functions;
        let state = functions.create();
        // SAFETY: the state was created just now, and the port list was written together with the library.
        let ports = unsafe { functions.ports(state, model.0.ports.len()) };
        Instance { model, state, ports }
    }

    /// The model of which this is an instance.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The ports, in the order of the Verilog.
    pub fn ports(&self) -> &[PortInfo] {
        self.model.ports()
    }

    /// A handle to a port that is stored as a `T`; see [`Model::port`].
    ///
    /// # Errors
    ///
    /// As [`Model::port`].
    pub fn port<T: PortValue>(&self, name: &str) -> Result<Port<T>, Error> {
        self.model.port(name)
    }

    /// A handle to a port of any width.
    ///
    /// # Errors
    ///
    /// As [`Model::any_port`].
    pub fn any_port(&self, name: &str) -> Result<AnyPort, Error> {
        self.model.any_port(name)
    }

    /// The storage of a port. It is at least as large and as aligned as the port's [`Storage`] says.
    #[inline]
    fn address(&self, port: AnyPort) -> *mut u8 {
        assert!(port.model == self.model.0.id, "the port handle belongs to another model");
        self.ports[port.index as usize]
    }

    /// The storage of a port that the test may drive.
    #[inline]
    fn input_address(&self, port: AnyPort) -> *mut u8 {
        assert!(port.is_writable, "port `{}` is an output", self.ports()[port.index as usize].name());
        self.address(port)
    }

    #[cold]
    fn too_wide(&self, port: AnyPort) -> ! {
        let name = self.ports()[port.index as usize].name();
        panic!("the value has bits beyond the {} bits of port `{name}`", port.width)
    }

    /// Reads a port.
    #[inline]
    pub fn get<T: PortValue>(&self, port: Port<T>) -> T {
        *self.view(port)
    }

    /// Drives a port.
    ///
    /// # Panics
    ///
    /// When the port is an output, or the value has bits beyond its width, which Verilator does not allow.
    #[inline]
    pub fn set<T: PortValue>(&mut self, port: Port<T>, value: T) {
        if !value.is_within(port.any.width) {
            self.too_wide(port.any);
        }
        let address = self.input_address(port.any).cast::<T>();
        // SAFETY: `Model::port` hands out a `Port<T>` only when `T` is the type of the storage, and `address`
        // checked that the handle belongs to this model; `&mut self` excludes every other access.
        unsafe { address.write(value) }
    }

    /// Looks at the storage of a port, without a copy.
    #[inline]
    pub fn view<T: PortValue>(&self, port: Port<T>) -> &T {
        let address = self.address(port.any).cast::<T>();
        // SAFETY: as in `set`; the model changes its ports only in methods that take `&mut self`.
        unsafe { &*address }
    }

    /// Changes the storage of an input in place. Bits beyond the width of the port must stay zero.
    ///
    /// # Panics
    ///
    /// When the port is an output.
    #[inline]
    pub fn view_mut<T: PortValue>(&mut self, port: Port<T>) -> &mut T {
        let address = self.input_address(port.any).cast::<T>();
        // SAFETY: as in `set`. Surplus bits make the model compute nonsense, but nothing indexes memory by them
        // unchecked: Verilator guards array indices, and every bit pattern is a value of `T`.
        unsafe { &mut *address }
    }

    /// Reads a port of any width into words, the lowest first. Words beyond the port's become zero.
    ///
    /// # Panics
    ///
    /// When there are fewer words than the port has.
    pub fn read_words(&self, port: AnyPort, words: &mut [u32]) {
        let (address, count) = (self.address(port), port.words());
        let (value, rest) = words.split_at_mut(count);
        rest.fill(0);
        // SAFETY: the storage is of the type that `port.storage` names, and `address` checked the model.
        unsafe {
            match port.storage {
                Storage::U8 => value[0] = address.read().into(),
                Storage::U16 => value[0] = address.cast::<u16>().read().into(),
                Storage::U32 => value[0] = address.cast::<u32>().read(),
                Storage::U64 => {
                    let both = address.cast::<u64>().read();
                    (value[0], value[1]) = (both as u32, (both >> 32) as u32);
                }
                Storage::Words(_) => {
                    value.copy_from_slice(std::slice::from_raw_parts(address.cast::<u32>(), count));
                }
            }
        }
    }

    /// Drives a port of any width from words, the lowest first. Missing words are zero.
    ///
    /// # Panics
    ///
    /// When the port is an output, or the words have bits beyond its width.
    pub fn write_words(&mut self, port: AnyPort, words: &[u32]) {
        if !words_are_within(words, port.width) {
            self.too_wide(port);
        }
        let (address, count) = (self.input_address(port), port.words());
        let words = &words[..words.len().min(count)];
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        // SAFETY: as in `read_words`; `&mut self` excludes every other access.
        unsafe {
            match port.storage {
                Storage::U8 => address.write(word(0) as u8),
                Storage::U16 => address.cast::<u16>().write(word(0) as u16),
                Storage::U32 => address.cast::<u32>().write(word(0)),
                Storage::U64 => {
                    address.cast::<u64>().write(u64::from(word(0)) | u64::from(word(1)) << 32);
                }
                Storage::Words(_) => {
                    let storage = std::slice::from_raw_parts_mut(address.cast::<u32>(), count);
                    let (value, rest) = storage.split_at_mut(words.len());
                    value.copy_from_slice(words);
                    rest.fill(0);
                }
            }
        }
    }

    /// Lets the inputs take effect.
    #[inline]
    pub fn eval(&mut self) {
        // SAFETY: the state is alive until `drop`, and `&mut self` excludes every other access.
        unsafe { self.model.0.functions.eval(self.state) }
    }

    /// One clock cycle in one call: raises `clock`, evaluates, lowers it, and evaluates. Inputs that were set
    /// before count as settled at the rising edge. Afterwards the registers and every output show the new state,
    /// under the inputs as they still are.
    ///
    /// # Panics
    ///
    /// When `clock` is an output.
    #[inline]
    pub fn step(&mut self, clock: Port<u8>) {
        self.steps(clock, 1);
    }

    /// As many cycles with the same inputs, in one call.
    ///
    /// # Panics
    ///
    /// When `clock` is an output.
    #[inline]
    pub fn steps(&mut self, clock: Port<u8>, count: u64) {
        let address = self.input_address(clock.any);
        // SAFETY: as in `eval`; the clock is an input of this instance that is stored in one byte.
        unsafe { self.model.0.functions.step(self.state, address, count) }
    }

    /// Starts to write an FST wave file, ending the one before. The model must be built with
    /// [`ModelOptions::trace`](crate::ModelOptions::trace).
    ///
    /// # Errors
    ///
    /// [`Error::NotTraced`] when it is not; [`Error::TraceFile`] when the file cannot be written.
    pub fn trace_open(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        if !self.model.0.is_traced {
            return Err(Error::NotTraced { top: self.model.top().into() });
        }
        let failed = || Error::TraceFile { path: path.to_path_buf() };
        // Verilator's writer ends the process when it can't create the file, so this is tried here first.
        std::fs::File::create(path).map_err(|_| failed())?;
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed())?;
        // SAFETY: as in `eval`.
        if unsafe { self.model.0.functions.trace_open(self.state, &text) } { Ok(()) } else { Err(failed()) }
    }

    /// Writes all signals to the trace as they are, at a time that must grow from call to call, also from file to
    /// file; its unit is the time precision of the Verilog, 1 ps where it says nothing. Does nothing while no trace
    /// is open.
    pub fn trace_dump(&mut self, time: u64) {
        // SAFETY: as in `eval`.
        unsafe { self.model.0.functions.trace_dump(self.state, time) }
    }

    /// Completes the trace; dropping the instance does so too.
    pub fn trace_close(&mut self) {
        // SAFETY: as in `eval`.
        unsafe { self.model.0.functions.trace_close(self.state) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the state is from this model, and this is its last use; `ports` is not read again.
        unsafe { self.model.0.functions.destroy(self.state) }
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("model", &self.model).finish()
    }
}
