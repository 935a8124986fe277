//! The contract between card, driver and wire, against other people's programs and documents.
mod c_header;
mod frames_of_others;
mod frames_of_our_own;
mod numbers_of_verbs;
mod pci_config;
mod records_read_back;
mod registers_manual;
