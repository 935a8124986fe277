//! The syndrome byte of an AETH: ACK with a credit code, RNR NAK with a timer code, or NAK with a code (protocol 1.6).

/// Credits of each credit code. `None` for code 31: the responder does not limit the requester (protocol 1.6).
pub const CREDITS: [Option<u16>; 32] = {
    let mut credits = [None; 32];
    // Codes 0 to 3 are the number itself; from code 4 on, each pair of codes is 2^n and 1.5 * 2^n.
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

/// RNR delay of each timer code, in steps of 10 us. Code 0 is the longest (protocol 1.6).
pub const RNR_TIMER_STEPS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, //
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The credit code that disables end-to-end flow control.
pub const CREDITS_UNLIMITED: u8 = 31;

/// NAK code: bits 4:0 of a NAK syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// 0x60: a packet before this one is missing; the requester retransmits.
    PsnSequenceError = 0,
    /// 0x61: the request is invalid; fatal.
    InvalidRequest = 1,
    /// 0x62: key, rights or bounds refuse the access; fatal.
    RemoteAccessError = 2,
    /// 0x63: the responder failed; fatal.
    RemoteOperationalError = 3,
    /// 0x64: RD only; never sent for RC.
    InvalidRdRequest = 4,
}

/// The parsed syndrome byte. Every byte has exactly one reading, so `parse` and `emit` are inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// ACK; the code gives the number of posted receive WQEs, see [`CREDITS`].
    Ack {
        /// Credit code, 0 to 31.
        credit_code: u8,
    },
    /// RNR NAK: no receive WQE is posted; the code gives the delay, see [`RNR_TIMER_STEPS`].
    RnrNak {
        /// Timer code, 0 to 31.
        timer_code: u8,
    },
    /// NAK with its code.
    Nak(NakCode),
    /// Reserved value, which the requester ignores; its timer keeps running.
    Reserved(u8),
}

impl Syndrome {
    /// Parses a syndrome byte.
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

    /// Returns the syndrome byte. Codes are truncated to five bits.
    pub const fn emit(self) -> u8 {
        match self {
            Self::Ack { credit_code } => credit_code & 0x1F,
            Self::RnrNak { timer_code } => 0x20 | timer_code & 0x1F,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Returns the largest credit code whose credits do not exceed `ready` posted receive WQEs.
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

/// Returns the RNR delay of a timer code, in microseconds. Only the low five bits of the code are used.
pub const fn rnr_timer_us(code: u8) -> u32 {
    RNR_TIMER_STEPS[(code & 0x1F) as usize] * RNR_TIMER_STEP_US
}

/// Returns the timer code of the shortest RNR delay of at least `delay_us`, or of the longest delay if none is as long.
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
