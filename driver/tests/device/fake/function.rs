//! The fake card as a back end of the driver.

use super::*;

/// BAR of the fake card.
struct FakeBar {
    card: Arc<Mutex<Card>>,
    bytes: u64,
    doorbells: bool,
}

impl Bar for FakeBar {
    fn bytes(&self) -> u64 {
        let wrong = self.card.lock().unwrap().faults.doorbell_bytes.filter(|_| self.doorbells);
        wrong.unwrap_or(self.bytes)
    }

    fn read32(&self, offset: u64) -> u32 {
        (self.read64(offset & !7) >> (offset % 8 * 8)) as u32
    }

    fn write32(&self, _: u64, _: u32) {
        panic!("the driver writes 64 bits");
    }

    fn read64(&self, offset: u64) -> u64 {
        let mut card = self.card.lock().unwrap();
        if card.command() & COMMAND_MEMORY == 0 {
            return u64::MAX;
        }
        if self.doorbells { 0 } else { card.read_register(offset as u32) }
    }

    fn write64(&self, offset: u64, value: u64) {
        let mut card = self.card.lock().unwrap();
        if card.command() & COMMAND_MEMORY == 0 {
            return;
        }
        if self.doorbells {
            card.write_doorbell(offset as u32, value);
        } else {
            card.write_register(offset as u32, value);
        }
    }
}

/// The fake card, as the driver accesses it.
pub(crate) struct FakeFunction {
    card: Arc<Mutex<Card>>,
    registers: FakeBar,
    doorbells: FakeBar,
    vectors: u32,
    ownership: Ownership,
}

impl FakeFunction {
    /// Creates a card without faults, with `vectors` interrupt vectors.
    pub(crate) fn new(vectors: u32) -> Arc<Self> {
        let config = pci::config_image(0).to_vec();
        let card = Card { next_address: FIRST_ADDRESS, config, ..Card::default() };
        let card = Arc::new(Mutex::new(card));
        let bar = |bytes, doorbells| FakeBar { card: Arc::clone(&card), bytes, doorbells };
        let registers = bar(pci::REGISTER_BAR_BYTES, false);
        let doorbells = bar(pci::DOORBELL_BAR_BYTES, true);
        Arc::new(Self { card, registers, doorbells, vectors, ownership: Ownership::default() })
    }

    /// Locks the card, for inspection.
    pub(crate) fn card(&self) -> MutexGuard<'_, Card> {
        self.card.lock().unwrap()
    }

    /// Sets the faults that the card injects.
    pub(crate) fn misbehave(&self, faults: Faults) {
        self.card().faults = faults;
    }
}

impl Drop for FakeFunction {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let (unmapped, changed) = {
                let mut card = self.card();
                (card.unmapped_in_use.clone(), card.take_changed())
            };
            assert!(
                unmapped.is_empty(),
                "the driver has unmapped memory that the card could access: {unmapped:?}"
            );
            assert!(
                changed.is_empty(),
                "the driver has changed WQEs or commands after their doorbell: {changed:?}"
            );
        }
    }
}

impl Function for FakeFunction {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        let card = self.card();
        let mut config = card.config.clone();
        if let Some((offset, value)) = card.faults.config_byte {
            config[offset] = value;
        }
        config.truncate(card.faults.config_bytes.unwrap_or(config.len()));
        Ok(config)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        let mask = pci::config_write_mask();
        let mut card = self.card();
        for (place, byte) in (usize::from(offset)..).zip(bytes) {
            card.config[place] = card.config[place] & !mask[place] | byte & mask[place];
        }
        Ok(())
    }

    fn isolates_memory(&self) -> bool {
        self.card().faults.is_isolated
    }

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        match index {
            0 => Ok(&self.registers),
            2 => Ok(&self.doorbells),
            _ => Err(FunctionError::NoBar { index }),
        }
    }

    fn limit_addresses(&self, bits: u32) -> Result<(), FunctionError> {
        let mut card = self.card();
        assert!(card.memory.is_empty(), "memory is mapped before the addresses are limited");
        card.address_bits = Some(bits);
        Ok(())
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let mut card = self.card();
        let address = card.next_address;
        // An unmapped page after each mapping detects accesses that are too long.
        card.next_address += memory.bytes() as u64 + 0x1000;
        card.memory.insert(address, memory.device_view());
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        let mut card = self.card();
        if card.uses(device_address) && !card.faults.is_isolated {
            card.unmapped_in_use.push(device_address);
        }
        let removed = card.memory.remove(&device_address);
        drop(card);
        removed.map(drop).ok_or(FunctionError::NotMapped { device_address })
    }

    fn interrupt_vectors(&self) -> u32 {
        self.vectors
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        if vector >= self.vectors {
            return Err(FunctionError::NoVector { vector });
        }
        let mut card = self.card();
        let was = card.pending_interrupts >> vector & 1 == 1;
        card.pending_interrupts &= !(1 << vector);
        Ok(was)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        let mut card = self.card();
        if card.faults.resets == Some(0) {
            return Err(FunctionError::Unsupported { what: "reset the function" });
        }
        card.function_resets += 1;
        card.config = pci::config_image(0).to_vec();
        card.resetting = 0;
        card.faults.reset_steps = 0;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.card().time
    }

    fn idle(&self) {
        self.card().step();
    }
}
