#![no_std]
//! Every bit that two parties of the rnic card must agree on.
