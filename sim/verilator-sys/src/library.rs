//! The loaded shared library of a model: the one place that calls into C++.
#![allow(unsafe_code)]

use crate::Error;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_ulonglong, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::NonNull;

/// The functions of `shim.cpp`.
pub(crate) struct Functions {
    create: unsafe extern "C" fn() -> *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    ports: unsafe extern "C" fn(*mut c_void, *mut *mut c_void),
    eval: unsafe extern "C" fn(*mut c_void),
    step: unsafe extern "C" fn(*mut c_void, *mut c_uchar, c_ulonglong),
    trace_open: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    trace_dump: unsafe extern "C" fn(*mut c_void, c_ulonglong),
    trace_close: unsafe extern "C" fn(*mut c_void),
    /// Never unloaded: Verilator's runtime keeps thread-local and static objects, whose destructors must still
    /// have their code at the end of a thread. A process loads a bounded number of models.
    _library: ManuallyDrop<Library>,
}

impl Functions {
    /// Loads the library that [`crate::compile`] built at `path`.
    pub(crate) fn load(path: &Path) -> Result<Functions, Error> {
        let error = |reason| Error::Load { path: path.to_path_buf(), reason };
        // SAFETY: the file was built from `shim.cpp` and Verilator's output, and its hash was checked against
        // the manifest; its initializers only construct objects of the C++ runtime and of Verilator's.
        let library = unsafe { Library::new(path) }.map_err(error)?;
        // SAFETY: the names and types are those of `shim.cpp`, whose text is part of the cache key. The pointers
        // stay valid because the library is never unloaded.
        unsafe {
            Ok(Functions {
                create: *library.get(b"verilated_create\0").map_err(error)?,
                destroy: *library.get(b"verilated_destroy\0").map_err(error)?,
                ports: *library.get(b"verilated_ports\0").map_err(error)?,
                eval: *library.get(b"verilated_eval\0").map_err(error)?,
                step: *library.get(b"verilated_step\0").map_err(error)?,
                trace_open: *library.get(b"verilated_trace_open\0").map_err(error)?,
                trace_dump: *library.get(b"verilated_trace_dump\0").map_err(error)?,
                trace_close: *library.get(b"verilated_trace_close\0").map_err(error)?,
                _library: ManuallyDrop::new(library),
            })
        }
    }

    /// Constructs an instance, to be destroyed by [`Functions::destroy`].
    pub(crate) fn create(&self) -> NonNull<c_void> {
        // SAFETY: the function has no preconditions.
        NonNull::new(unsafe { (self.create)() }).expect("`new` of C++ returns an object or does not return")
    }

    /// Destroys an instance.
    ///
    /// # Safety
    ///
    /// `instance` is from [`Functions::create`] of this library, and neither it nor its ports are used again.
    pub(crate) unsafe fn destroy(&self, instance: NonNull<c_void>) {
        // SAFETY: the caller's promise is the function's precondition.
        unsafe { (self.destroy)(instance.as_ptr()) }
    }

    /// The addresses of the ports, in the order of the port list.
    ///
    /// # Safety
    ///
    /// `instance` is alive and from this library, which has exactly `count` ports.
    pub(crate) unsafe fn ports(&self, instance: NonNull<c_void>, count: usize) -> Box<[*mut u8]> {
        let mut ports = vec![std::ptr::null_mut::<u8>(); count].into_boxed_slice();
        // SAFETY: the function writes `count` pointers; a pointer to bytes and one to nothing are alike.
        unsafe { (self.ports)(instance.as_ptr(), ports.as_mut_ptr().cast()) };
        ports
    }

    /// Evaluates the model.
    ///
    /// # Safety
    ///
    /// `instance` is alive, from this library, and nothing else uses it or its ports meanwhile.
    pub(crate) unsafe fn eval(&self, instance: NonNull<c_void>) {
        // SAFETY: the caller's promise is the function's precondition.
        unsafe { (self.eval)(instance.as_ptr()) }
    }

    /// Evaluates with `clock` high and then low, `count` times.
    ///
    /// # Safety
    ///
    /// As for [`Functions::eval`], and `clock` is the address of an input of this instance of 8 bits or fewer.
    pub(crate) unsafe fn step(&self, instance: NonNull<c_void>, clock: *mut u8, count: u64) {
        // SAFETY: the caller's promise is the function's precondition.
        unsafe { (self.step)(instance.as_ptr(), clock, count) }
    }

    /// Opens a trace file, and says whether that succeeded.
    ///
    /// # Safety
    ///
    /// As for [`Functions::eval`].
    pub(crate) unsafe fn trace_open(&self, instance: NonNull<c_void>, path: &CStr) -> bool {
        // SAFETY: the caller's promise is the function's precondition; the path ends with a zero.
        unsafe { (self.trace_open)(instance.as_ptr(), path.as_ptr()) != 0 }
    }

    /// Writes the state of all signals to the trace, if one is open.
    ///
    /// # Safety
    ///
    /// As for [`Functions::eval`].
    pub(crate) unsafe fn trace_dump(&self, instance: NonNull<c_void>, time: u64) {
        // SAFETY: the caller's promise is the function's precondition.
        unsafe { (self.trace_dump)(instance.as_ptr(), time) }
    }

    /// Ends the trace, if one is open.
    ///
    /// # Safety
    ///
    /// As for [`Functions::eval`].
    pub(crate) unsafe fn trace_close(&self, instance: NonNull<c_void>) {
        // SAFETY: the caller's promise is the function's precondition.
        unsafe { (self.trace_close)(instance.as_ptr()) }
    }
}
