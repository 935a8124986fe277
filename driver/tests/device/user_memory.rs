//! Memory of the application in regions, at any address and of any length, and back again.

use crate::fake::Faults;
use crate::rig::{LONG, card, pair, pattern};
use rnic_driver::raw::{Access, Buffer};
use rnic_driver::{
    Error, PageSize, ReceiveRequest, ReleaseError, RemoteRights, SendRequest, UserMemory, raw,
};
use rnic_layout::admin::{CommandOpcode, CommandStatus};

/// Names a part of a vector.
fn buffer(block: &mut [u8], offset: usize, bytes: usize) -> Buffer {
    let part = &mut block[offset..][..bytes];
    // SAFETY: The tests access the block only while no request is in flight, and drop the region before it.
    #[expect(unsafe_code, reason = "bytes at a given address")]
    unsafe {
        Buffer::new(part.as_mut_ptr(), bytes)
    }
}

#[test]
fn a_vector_moves_into_a_request_and_comes_back() {
    let mut pair = pair();
    for length in [1, 7, 1000, 4096, 9001] {
        let sent = pattern(length, 3);
        let (address, capacity) = (sent.as_ptr(), sent.capacity());
        let region = pair.domain.register(sent).unwrap();
        assert_eq!((region.len(), &*region.bytes()), (length, &pattern(length, 3)[..]));
        let mut room = pair.domain.register(vec![0xee; length + 5]).unwrap();
        room.bytes_mut()[length] = 0xdd;
        pair.right.post_receive(ReceiveRequest::new(1).sge(room)).unwrap();
        pair.left.post_send(SendRequest::send(2).sge(region).signalled()).unwrap();
        let mut received = pair.next(1);
        assert_eq!(received.message(), pattern(length, 3));
        let room = received.sg_list.pop().unwrap().release().unwrap().into_vec().unwrap();
        assert_eq!(
            (&room[..length], &room[length..]),
            (&*pattern(length, 3), &[0xdd, 0xee, 0xee, 0xee, 0xee][..])
        );
        let sent = pair.next(0).sg_list.pop().unwrap().release().unwrap().into_vec().unwrap();
        assert_eq!((sent.as_ptr(), sent.capacity()), (address, capacity), "the same vector");
    }
}

#[test]
fn peers_write_memory_that_nobody_has_as_a_slice() {
    let mut pair = pair();
    let block = UserMemory::in_file(5000, PageSize::Base).unwrap();
    let target = pair.domain.register_shared(block, RemoteRights::ALL).unwrap();
    assert_eq!(target.len(), 8192, "whole pages");
    target.write(100, b"before").unwrap();
    let remote = target.remote().part(102, 5).unwrap();
    let source = pair.filled(b"WRITE");
    pair.left.post_send(SendRequest::write(1, remote).sge(source).signalled()).unwrap();
    assert!(pair.next(0).is_success());
    let mut seen = [0; 8];
    target.read(100, &mut seen).unwrap();
    assert_eq!(&seen, b"beWRITE\0");
    let clone = target.clone();
    let Err(ReleaseError::NotWhole(target)) = target.release() else { panic!("a clone has it too") };
    drop(clone);
    let block = target.release().unwrap();
    assert_eq!(&block[100..108], b"beWRITE\0");
}

#[test]
fn memory_is_given_back_when_all_of_it_is_there() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let mappings = function.card().mappings();
    let region = domain.register(vec![5; 100]).unwrap();
    let (front, back) = region.split_at(30).unwrap();
    let Err(ReleaseError::NotWhole(front)) = front.release() else { panic!("a part is elsewhere") };
    let region = front.join(back).unwrap();
    assert_eq!(*region.release().unwrap(), [5; 100]);
    assert_eq!(function.card().mappings(), mappings);
    assert!(matches!(domain.allocate(10).unwrap().release(), Err(ReleaseError::NotWhole(_))));

    let refused = domain.register(Vec::new()).unwrap_err();
    assert!(matches!(refused.error, Error::Option { name: "region.bytes", .. }) && refused.memory.is_some());
    let refuse = Some((CommandOpcode::CreateRegion, CommandStatus::NoResources, 0));
    function.misbehave(Faults { refuse, ..Faults::default() });
    let refused = domain.register(vec![6; 10]).unwrap_err();
    assert_eq!(**refused.memory.unwrap(), [6; 10]);
    function.misbehave(Faults::default());
    let region = domain.register(vec![7; 10]).unwrap();
    function.misbehave(Faults { mute: true, ..Faults::default() });
    assert!(matches!(region.release(), Err(ReleaseError::Kept)), "the card may still write it");
}

#[test]
fn buffers_stay_where_they_are_and_overlap() {
    let mut pair = pair();
    let mut block = pattern(3 * 4096, 9);
    let access = Access { local_write: true, rights: RemoteRights::ALL, ..Access::default() };
    let address = block.as_ptr() as u64 + 77;
    let whole = raw::Region::register(&pair.domain, buffer(&mut block, 77, 8000), &access).unwrap();
    let part = raw::Region::register(&pair.domain, buffer(&mut block, 1077, 500), &access).unwrap();
    assert_eq!(whole.remote().address, address, "requests name the address in this process");
    assert_eq!((part.remote().address, part.remote().bytes), (address + 1000, 500));
    let zero = Access { first_address: Some(0), ..access };
    let zero = raw::Region::register(&pair.domain, buffer(&mut block, 0, 1), &zero).unwrap();
    assert_eq!(zero.remote().address, 0);

    let source = pair.filled(b"both see it");
    let remote = part.remote().part(10, 11).unwrap();
    pair.left.post_send(SendRequest::write(1, remote).sge(source).signalled()).unwrap();
    assert!(pair.next(0).is_success());
    let room = pair.room(20);
    let remote = whole.remote().part(1005, 20).unwrap();
    pair.left.post_send(SendRequest::read(2, remote).sge(room).signalled()).unwrap();
    let read = pair.next(0).message();
    assert_eq!(&read[5..16], b"both see it");
    part.deregister().unwrap();
    pair.function.misbehave(Faults { mute: true, ..Faults::default() });
    assert!(matches!(whole.deregister(), Err(ReleaseError::Kept)), "the card may still access it");
    drop((zero, pair));
    let mut expected = pattern(3 * 4096, 9);
    expected[1087..1098].copy_from_slice(b"both see it");
    assert_eq!(block, expected);
}

#[test]
fn entries_name_parts_of_a_buffer() {
    let pair = pair();
    let mut block = vec![0; 100];
    let address = block.as_ptr() as u64;
    let region = raw::Region::register(&pair.domain, buffer(&mut block, 0, 100), &Access::default()).unwrap();
    // SAFETY: The key is that of a region of `raw`.
    #[expect(unsafe_code, reason = "an entry of its parts")]
    let same = unsafe { raw::Sge::from_parts(address + 90, region.key(), 10) };
    assert_eq!(region.sge(address + 90, 10), Ok(same));
    for (address, length) in [(address + 90, 11), (address - 1, 1), (address + 101, 0), (0, 1)] {
        assert!(region.sge(address, length).is_err());
    }
    assert!(pair.queues[0].spin(LONG).unwrap().is_none());
}
