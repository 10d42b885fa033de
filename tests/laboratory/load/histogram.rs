//! A histogram of latencies. It is log-linear, so that its error is relative.
//!
//! A value of v nanoseconds is counted in a bucket that is not wider than v/64.
//! The values go from 1 ns to 2^64 ns, in 30 kB that never grow. To record a
//! value takes an index and an addition. There is no sampling: every value
//! counts.

use std::time::Duration;

/// Each power of two is cut into 2^FINENESS buckets.
const FINENESS: u32 = 6;
const BUCKETS: usize = (65 - FINENESS as usize) << FINENESS;

/// How many times each latency was seen.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest: u64,
}

/// An empty histogram.
impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            longest: 0,
        }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanos)] += 1;
        self.total += 1;
        self.longest = self.longest.max(nanos);
    }

    /// Counts all latencies that the other one has counted.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// How many latencies were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The longest of all latencies, exactly.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// The latency that this share of all (0 to 1) did not exceed. This is the
    /// upper end of its bucket, so it is never too small. Zero if nothing was
    /// counted.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(last_in(bucket).min(self.longest));
            }
        }
        Duration::ZERO
    }

    /// How many latencies there are in each power of two: the bound that they
    /// are below, and their number. The list goes from the first to the last
    /// power of two that has any.
    pub fn octaves(&self) -> Vec<(Duration, u64)> {
        let mut octaves = vec![0; 65];
        for (bucket, count) in self.counts.iter().enumerate() {
            let log = last_in(bucket).checked_ilog2();
            octaves[log.map_or(0, |log| log as usize + 1)] += count;
        }
        let octaves = octaves.into_iter().enumerate();
        let bounded = octaves.map(|(log, count)| {
            let bound = 1u64.checked_shl(log as u32).unwrap_or(u64::MAX);
            (Duration::from_nanos(bound), count)
        });
        let mut octaves: Vec<_> = bounded.skip_while(|(_, count)| *count == 0).collect();
        while octaves.pop_if(|(_, count)| *count == 0).is_some() {}
        octaves
    }
}

/// The bucket of a value. Each value below 2^FINENESS has a bucket of its own;
/// above, the leading 1 and the FINENESS bits after it choose the bucket.
fn bucket_of(nanos: u64) -> usize {
    let exponent = nanos.checked_ilog2().unwrap_or(0);
    let shift = exponent.saturating_sub(FINENESS);
    ((shift as usize) << FINENESS) + (nanos >> shift) as usize
}

/// The largest value that falls into a bucket.
fn last_in(bucket: usize) -> u64 {
    let shift = (bucket >> FINENESS).saturating_sub(1);
    let leading = (bucket - (shift << FINENESS)) as u64;
    (leading << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap_and_err_by_a_64th_at_most() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(last_in(BUCKETS - 1), u64::MAX);
        for bucket in 0..BUCKETS - 1 {
            let last = last_in(bucket);
            assert_eq!((bucket_of(last), bucket_of(last + 1)), (bucket, bucket + 1));
            let width = last_in(bucket + 1) - last;
            assert!(
                width == 1 || width <= last / 63,
                "bucket {bucket} is {width} wide"
            );
        }
    }

    #[test]
    fn quantiles_of_1_to_1000_microseconds_are_the_values_themselves_within_a_64th() {
        let mut histogram = Histogram::default();
        for micros in (1..=1000).rev() {
            histogram.record(Duration::from_micros(micros));
        }
        for (share, exact) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (0.001, 1.0)] {
            let told = histogram.quantile(share).as_nanos() as f64 / 1000.0;
            assert!(
                (exact..exact * 65.0 / 64.0).contains(&told),
                "{share}: {told}"
            );
        }
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(1));
        assert_eq!(histogram.longest(), Duration::from_millis(1));
        assert_eq!(histogram.count(), 1000);
    }

    #[test]
    fn one_slow_reply_in_a_thousand_shows_in_p999_and_not_in_p99() {
        let mut histogram = Histogram::default();
        for _ in 0..998 {
            histogram.record(Duration::from_nanos(50));
        }
        histogram.record(Duration::from_secs(1));
        histogram.record(Duration::from_secs(1));
        assert_eq!(histogram.quantile(0.99), Duration::from_nanos(50));
        assert_eq!(histogram.quantile(0.999), Duration::from_secs(1));
    }

    #[test]
    fn what_two_have_counted_is_added() {
        let counted = |micros| {
            let mut histogram = Histogram::default();
            histogram.record(Duration::from_micros(micros));
            histogram
        };
        let mut sum = counted(1);
        sum.add(&counted(3));
        sum.add(&counted(2));
        assert_eq!((sum.count(), sum.longest()), (3, Duration::from_micros(3)));
        let median = sum.quantile(0.5);
        assert!(median >= Duration::from_micros(2) && median < Duration::from_micros(3));
    }

    #[test]
    fn nothing_counted_is_zero() {
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
    }
}
