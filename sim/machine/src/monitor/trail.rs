//! Trail: what was seen at the ports of a card, with its time, for whoever measures. It is off unless somebody asks.

/// Something that happened at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Software's write to the doorbell of a send queue has begun.
    SendDoorbell,
    /// A read request was taken from the card.
    ReadAsked,
    /// The last word of an answer to a read was given to the card.
    ReadAnswered,
    /// The first beat of a frame was taken by the MAC.
    FrameBegins,
    /// The last beat of a frame was given to the card.
    FrameReceived,
    /// The card has proven the ICRC of a frame and accepted it; only if the card shows it.
    FrameAccepted,
    /// The last word of a write that is not to a ring was taken from the card.
    PayloadHanded,
    /// A write that is not to a ring is visible.
    PayloadVisible,
    /// The card was told that its oldest write is done.
    WriteDone,
    /// The last word of a completion was taken from the card.
    CompletionHanded,
    /// A completion is visible.
    CompletionVisible,
    /// An event is visible.
    EventVisible,
    /// The card has handed an interrupt over.
    Interrupt,
}

/// What has happened since somebody asked.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    moments: Option<Vec<(u64, Moment)>>,
}

impl Trail {
    /// Begins anew.
    pub fn start(&mut self) {
        self.moments = Some(Vec::new());
    }

    /// Ends it, and gives what has happened, in order.
    pub fn stop(&mut self) -> Vec<(u64, Moment)> {
        self.moments.take().unwrap_or_default()
    }

    /// Whether anybody has asked.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.moments.is_some()
    }

    /// Notes something.
    #[inline]
    pub fn note(&mut self, time_ps: u64, moment: Moment) {
        if let Some(moments) = &mut self.moments {
            moments.push((time_ps, moment));
        }
    }
}
