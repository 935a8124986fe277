//! What the syndrome byte of an AETH says: acknowledgement with credits, RNR NAK with a delay, or NAK (protocol 1.6).

/// Credits by code; code 31 means that the responder does not limit the requester (protocol 1.6).
pub const CREDITS: [Option<u16>; 32] = {
    let mut credits = [None; 32];
    // 0 to 4 count singly; from code 4 on, each pair of codes is 2^n and one and a half times that.
    let mut code = 0;
    while code < 31 {
        credits[code] = Some(if code < 4 {
            code as u16
        } else if code % 2 == 0 {
            1 << (code / 2)
        } else {
            3 << (code / 2 - 1)
        });
        code += 1;
    }
    credits
};

/// Microseconds of one step of [`RNR_TIMER_STEPS`].
pub const RNR_TIMER_STEP_US: u32 = 10;

/// RNR delays by code, in steps of ten microseconds. Code 0 is the longest (protocol 1.6).
pub const RNR_TIMER_STEPS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, //
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The credit code that switches end-to-end flow control off.
pub const CREDITS_UNLIMITED: u8 = 31;

/// Why a responder refuses a request for good. Bits 4:0 of a NAK syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing before this one; the requester goes back (0x60).
    PsnSequenceError = 0,
    /// The request makes no sense here (0x61).
    InvalidRequest = 1,
    /// Key, rights or range do not allow it (0x62).
    RemoteAccessError = 2,
    /// The responder itself failed (0x63).
    RemoteOperationalError = 3,
    /// RD only; never sent for RC (0x64).
    InvalidRdRequest = 4,
}

/// The syndrome byte, taken apart. Every byte has exactly one reading, so parsing and emitting are inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Acknowledged; the code says how many receive WQEs stand ready, see [`CREDITS`].
    Ack {
        /// 0 to 31.
        credit_code: u8,
    },
    /// No receive WQE; the code says how long to wait, see [`RNR_TIMER_STEPS`].
    RnrNak {
        /// 0 to 31.
        timer_code: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// A value without meaning. The requester ignores it and lets its timer run.
    Reserved(u8),
}

impl Syndrome {
    /// Reads a syndrome byte.
    pub const fn parse(byte: u8) -> Self {
        let code = byte & 0x1F;
        match (byte >> 5, code) {
            (0b000, _) => Self::Ack { credit_code: code },
            (0b001, _) => Self::RnrNak { timer_code: code },
            (0b011, 0) => Self::Nak(NakCode::PsnSequenceError),
            (0b011, 1) => Self::Nak(NakCode::InvalidRequest),
            (0b011, 2) => Self::Nak(NakCode::RemoteAccessError),
            (0b011, 3) => Self::Nak(NakCode::RemoteOperationalError),
            (0b011, 4) => Self::Nak(NakCode::InvalidRdRequest),
            _ => Self::Reserved(byte),
        }
    }

    /// Returns the syndrome byte. Codes wider than five bits lose what is above.
    pub const fn emit(self) -> u8 {
        match self {
            Self::Ack { credit_code } => credit_code & 0x1F,
            Self::RnrNak { timer_code } => 0x20 | timer_code & 0x1F,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Returns the code that promises as many of `ready` receive WQEs as it can, and never more.
pub const fn credit_code(ready: u32) -> u8 {
    let mut code = CREDITS_UNLIMITED - 1;
    while let Some(credits) = CREDITS[code as usize] {
        if credits as u32 <= ready {
            break;
        }
        code -= 1;
    }
    code
}

/// Returns the RNR delay of a code in microseconds. Only the low five bits of the code count.
pub const fn rnr_timer_us(code: u8) -> u32 {
    RNR_TIMER_STEPS[(code & 0x1F) as usize] * RNR_TIMER_STEP_US
}

/// Returns the code of the shortest RNR delay that lasts at least `delay_us`, or of the longest when none does.
pub const fn rnr_timer_code(delay_us: u32) -> u8 {
    let mut code = 1;
    while code < 32 {
        if rnr_timer_us(code) >= delay_us {
            return code;
        }
        code += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_reads_one_way_and_back() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::parse(byte).emit(), byte);
        }
    }

    #[test]
    fn syndromes_are_those_of_protocol_1_6() {
        assert_eq!(Syndrome::parse(0x1F), Syndrome::Ack { credit_code: CREDITS_UNLIMITED });
        assert_eq!(Syndrome::parse(0x2C), Syndrome::RnrNak { timer_code: 12 });
        assert_eq!(Syndrome::parse(0x60), Syndrome::Nak(NakCode::PsnSequenceError));
        assert_eq!(Syndrome::parse(0x62), Syndrome::Nak(NakCode::RemoteAccessError));
        assert_eq!(Syndrome::parse(0x64), Syndrome::Nak(NakCode::InvalidRdRequest));
        for reserved in [0x65, 0x7F, 0x40, 0x5F, 0x80, 0xFF] {
            assert_eq!(Syndrome::parse(reserved), Syndrome::Reserved(reserved));
        }
    }

    #[test]
    fn credits_are_those_of_protocol_1_6() {
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        assert!(table.iter().zip(CREDITS).all(|(&listed, credits)| credits == Some(listed)));
        assert_eq!(CREDITS[31], None);
    }

    #[test]
    fn a_credit_code_never_promises_more_than_is_ready() {
        for (ready, code) in
            [(0, 0), (1, 1), (5, 4), (6, 5), (7, 5), (32767, 29), (32768, 30), (u32::MAX, 30)]
        {
            assert_eq!(credit_code(ready), code, "{ready} ready");
        }
    }

    #[test]
    fn rnr_delays_double_every_second_code_and_code_zero_is_the_longest() {
        assert_eq!(rnr_timer_us(0), 655_360);
        assert_eq!(rnr_timer_us(1), 10);
        assert_eq!(rnr_timer_us(12), 640);
        assert_eq!(rnr_timer_us(25), 61_440);
        assert_eq!(rnr_timer_us(31), 491_520);
        for code in 4..30 {
            assert_eq!(RNR_TIMER_STEPS[code + 2], 2 * RNR_TIMER_STEPS[code], "code {code}");
        }
    }

    #[test]
    fn an_rnr_code_waits_at_least_as_long_as_asked() {
        for (delay_us, code) in
            [(0, 1), (10, 1), (11, 2), (61_440, 25), (61_441, 26), (491_520, 31), (491_521, 0), (u32::MAX, 0)]
        {
            assert_eq!(rnr_timer_code(delay_us), code, "{delay_us} us");
        }
    }
}
