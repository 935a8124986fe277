//! Tests of the driver over a fake card.

/// In an `impl Function` of a type with a field `card`: the methods that are those of the card.
macro_rules! forward_to_card {
    () => {
        fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
            self.card.config_space()
        }

        fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
            self.card.write_config(offset, bytes)
        }

        fn ownership(&self) -> &rnic_driver::Ownership {
            self.card.ownership()
        }

        fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
            self.card.bar(index)
        }

        fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
            self.card.map(memory)
        }

        fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
            self.card.unmap(device_address)
        }

        fn interrupt_vectors(&self) -> u32 {
            self.card.interrupt_vectors()
        }

        fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
            self.card.take_interrupt(vector)
        }

        fn reset(&self) -> Result<(), FunctionError> {
            self.card.reset()
        }

        fn now(&self) -> Duration {
            self.card.now()
        }

        fn idle(&self) {
            self.card.idle();
        }
    };
}

mod fake;
mod resize;
mod rig;

mod any_number;
mod back_end;
mod bounds;
mod completions;
mod events;
mod lifecycle;
mod messages;
mod paths;
mod posting;
mod shared_receives;
mod start;
mod unconfirmed;
mod untyped;
mod user_memory;
mod waits;
