//! A station that sends back each frame that it receives, as a loopback plug does: the card at its wire is its own peer.
use super::{Frame, Station};
use std::collections::VecDeque;

/// The plug.
#[derive(Clone, Debug, Default)]
pub struct Loopback(VecDeque<Frame>);

impl Station for Loopback {
    fn receive(&mut self, _now_ps: u64, frame: &Frame) {
        self.0.push_back(frame.clone());
    }

    fn wakes_ps(&self) -> Option<u64> {
        (!self.0.is_empty()).then_some(0)
    }

    fn transmit(&mut self, _now_ps: u64) -> Option<Frame> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_in_order_and_as_they_were() {
        let mut plug = Loopback::default();
        assert_eq!((plug.wakes_ps(), plug.transmit(0)), (None, None));
        let frames = [1, 2].map(|number| Frame { is_damaged: number == 2, ..Frame::new(vec![number; 70]) });
        frames.iter().for_each(|frame| plug.receive(5, frame));
        assert_eq!(plug.wakes_ps(), Some(0));
        assert_eq!([plug.transmit(9), plug.transmit(9)], frames.map(Some));
        assert_eq!(plug.wakes_ps(), None);
    }
}
