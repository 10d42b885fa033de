//! What decides whatever is left to chance.

/// What decides: numbers that are the same for the same seed (SplitMix64), or
/// first of all what somebody says.
pub struct Random {
    state: u64,
    /// Bytes, the next one last.
    told: Vec<u8>,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random {
            state: seed,
            told: Vec::new(),
        }
    }

    /// These bytes decide, one a time, as long as there are any.
    #[allow(dead_code, reason = "only fuzzing says what happens")]
    pub fn told(bytes: &[u8]) -> Random {
        Random {
            state: 0,
            told: bytes.iter().rev().copied().collect(),
        }
    }

    /// Whether what was told is used up.
    #[allow(dead_code, reason = "as above")]
    pub fn is_over(&self) -> bool {
        self.told.is_empty()
    }

    pub fn next(&mut self) -> u64 {
        if let Some(byte) = self.told.pop() {
            return byte.into();
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
