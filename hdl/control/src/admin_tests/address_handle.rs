//! Address handles.
use super::*;

impl Model {
    pub(super) fn create_address_handle(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::within(number, 8)?;
        if self.handles.contains_key(&number) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        self.handles.insert(number, *bytes);
        Ok(0)
    }

    pub(super) fn modify_address_handle(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::found(&self.handles, number, 8)?;
        self.handles.insert(number, *bytes);
        Ok(0)
    }

    pub(super) fn query_address_handle(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::room(bytes, 64)?;
        let create = Self::found(&self.handles, number, 8)?;
        Ok(self.write(bytes, CommandOpcode::CreateAddressHandle, number, &create))
    }

    pub(super) fn destroy_address_handle(&mut self, number: u32) -> Result<u32, Refusal> {
        Self::found(&self.handles, number, 8)?;
        self.handles.remove(&number);
        Ok(0)
    }
}
