//! What decides whatever is left to chance.

/// Numbers that look random, and are the same for the same seed (SplitMix64); or first
/// of all those that somebody tells, as a fuzzer does.
#[derive(Clone, Debug, Default)]
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
    pub fn told(bytes: &[u8]) -> Random {
        Random {
            state: 0,
            told: bytes.iter().rev().copied().collect(),
        }
    }

    /// Whether what was told is used up.
    pub fn is_over(&self) -> bool {
        self.told.is_empty()
    }

    #[allow(clippy::should_implement_trait, reason = "there is always a next one")]
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

    /// A number less than `limit`, which is not 0.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, limit: N) -> N {
        let limit = limit.try_into().ok().expect("a limit of 64 bits");
        let below = N::try_from(self.next() % limit);
        below.ok().expect("less than the limit")
    }

    /// True once in this number of times.
    pub fn one_in<N: TryFrom<u64> + TryInto<u64> + Default + PartialEq>(
        &mut self,
        times: N,
    ) -> bool {
        self.below(times) == N::default()
    }

    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).map(|_| self.next().to_le_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        bytes.truncate(count);
        bytes
    }
}
