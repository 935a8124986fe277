//! Trail: events at the ports of a card with their times, for measurements. It is off by default.

/// An event at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Software begins to write the doorbell of a send queue.
    SendDoorbell,
    /// The card issues a read request.
    ReadAsked,
    /// The card receives the last word of a read answer.
    ReadAnswered,
    /// The MAC takes the first beat of a frame.
    FrameBegins,
    /// The card receives the last beat of a frame.
    FrameReceived,
    /// The card accepts a frame after its ICRC check; only if the card has an output for it.
    FrameAccepted,
    /// The card delivers the last word of a write that is not to a ring.
    PayloadHanded,
    /// A write that is not to a ring becomes visible.
    PayloadVisible,
    /// The card receives the report that its oldest write is done.
    WriteDone,
    /// The card delivers the last word of a CQE.
    CompletionHanded,
    /// A CQE becomes visible.
    CompletionVisible,
    /// An EQE becomes visible.
    EventVisible,
    /// The card sends an interrupt.
    Interrupt,
}

/// Events since the trail was started.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    moments: Option<Vec<(u64, Moment)>>,
}

impl Trail {
    /// Starts a new trail.
    pub fn start(&mut self) {
        self.moments = Some(Vec::new());
    }

    /// Ends the trail and returns its events, in order.
    pub fn stop(&mut self) -> Vec<(u64, Moment)> {
        self.moments.take().unwrap_or_default()
    }

    /// Returns whether events are recorded.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.moments.is_some()
    }

    /// Records an event.
    #[inline]
    pub fn note(&mut self, time_ps: u64, moment: Moment) {
        if let Some(moments) = &mut self.moments {
            moments.push((time_ps, moment));
        }
    }
}
