//! The methods of a function or a BAR between the driver and another one that are those of the other one.

/// In an `impl` of [`Function`](rnic_driver::Function) or [`Bar`](rnic_driver::Bar): makes the named methods, each of which
/// calls that of `self.inner()`.
#[macro_export]
macro_rules! forward_to_inner {
    ($($method:ident)+) => {
        $($crate::forward_to_inner!(@ $method);)+
    };
    (@ config_space) => {
        fn config_space(&self) -> Result<Vec<u8>, ::rnic_driver::FunctionError> {
            self.inner().config_space()
        }
    };
    (@ write_config) => {
        fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), ::rnic_driver::FunctionError> {
            self.inner().write_config(offset, bytes)
        }
    };
    (@ ownership) => {
        fn ownership(&self) -> &::rnic_driver::Ownership {
            self.inner().ownership()
        }
    };
    (@ map) => {
        fn map(&self, memory: &::std::sync::Arc<::rnic_driver::Memory>) -> Result<u64, ::rnic_driver::FunctionError> {
            self.inner().map(memory)
        }
    };
    (@ map_scattered) => {
        fn map_scattered(
            &self,
            memory: &::std::sync::Arc<::rnic_driver::Memory>,
        ) -> Result<Vec<::rnic_driver::function::DmaSegment>, ::rnic_driver::FunctionError> {
            self.inner().map_scattered(memory)
        }
    };
    (@ unmap) => {
        fn unmap(&self, device_address: u64) -> Result<(), ::rnic_driver::FunctionError> {
            self.inner().unmap(device_address)
        }
    };
    (@ interrupt_vectors) => {
        fn interrupt_vectors(&self) -> u32 {
            self.inner().interrupt_vectors()
        }
    };
    (@ take_interrupt) => {
        fn take_interrupt(&self, vector: u32) -> Result<bool, ::rnic_driver::FunctionError> {
            self.inner().take_interrupt(vector)
        }
    };
    (@ wait_interrupt) => {
        fn wait_interrupt(
            &self,
            vector: u32,
            until: ::std::time::Duration,
        ) -> Result<bool, ::rnic_driver::FunctionError> {
            self.inner().wait_interrupt(vector, until)
        }
    };
    (@ reset) => {
        fn reset(&self) -> Result<(), ::rnic_driver::FunctionError> {
            self.inner().reset()
        }
    };
    (@ now) => {
        fn now(&self) -> ::std::time::Duration {
            self.inner().now()
        }
    };
    (@ idle) => {
        fn idle(&self) {
            self.inner().idle();
        }
    };
    (@ bytes) => {
        fn bytes(&self) -> u64 {
            self.inner().bytes()
        }
    };
    (@ read32) => {
        fn read32(&self, offset: u64) -> u32 {
            self.inner().read32(offset)
        }
    };
    (@ write32) => {
        fn write32(&self, offset: u64, value: u32) {
            self.inner().write32(offset, value);
        }
    };
    (@ read64) => {
        fn read64(&self, offset: u64) -> u64 {
            self.inner().read64(offset)
        }
    };
}
