//! Sizes and contents of message bodies.

use crate::bench::verify::mix;
use crate::bench::verify::stamp::{STAMP_BYTES, Stamp};
use crc32fast::Hasher;
use std::fmt;
use std::str::FromStr;

/// Largest body that can be asked for, in bytes.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bodies of different sizes that are prepared.
const CHOICES: usize = 1024;

/// Bodies of one size that are prepared.
const VARIANTS: usize = 64;

/// Bytes of the pool beyond the largest body: small enough to stay in a core's cache.
const POOL_BYTES: usize = 64 * 1024;

/// How large message bodies are.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeDistribution {
    /// All of one size, in bytes.
    Fixed(usize),
    /// Each size from the first to the second is as likely as the others.
    Uniform(usize, usize),
    /// Exponential with this mean, in bytes; cut at 7.6 times the mean, above which is one body
    /// of 2,048, and at the size of a stamp.
    Exponential(usize),
    /// Sizes in bytes and their weights.
    List(Vec<(usize, f64)>),
}

impl SizeDistribution {
    /// The size below which this share (0 to 1) of all bodies lies, in bytes.
    pub fn quantile(&self, share: f64) -> usize {
        match self {
            SizeDistribution::Fixed(size) => *size,
            SizeDistribution::Uniform(low, high) => {
                let step = (share * (high - low + 1) as f64) as usize;
                (low + step).min(*high)
            }
            SizeDistribution::Exponential(mean) => {
                let times = -(1.0 - share.min(middle(CHOICES - 1))).ln();
                ((*mean as f64 * times).round() as usize).max(STAMP_BYTES.min(*mean))
            }
            SizeDistribution::List(sizes) => {
                let total: f64 = sizes.iter().map(|&(_, weight)| weight).sum();
                let mut left = share * total;
                for &(size, weight) in sizes {
                    if left < weight {
                        return size;
                    }
                    left -= weight;
                }
                sizes.last().map_or(0, |&(size, _)| size)
            }
        }
    }

    /// The smallest size, in bytes.
    pub fn least(&self) -> usize {
        match self {
            SizeDistribution::List(sizes) => sizes.iter().map(|&(size, _)| size).min().unwrap_or(0),
            other => other.quantile(0.0),
        }
    }

    /// The largest size, in bytes.
    pub fn most(&self) -> usize {
        match self {
            SizeDistribution::List(sizes) => sizes.iter().map(|&(size, _)| size).max().unwrap_or(0),
            other => other.quantile(1.0),
        }
    }

    /// Sizes of the bodies that are prepared, each as likely as the others.
    fn sizes(&self) -> Vec<usize> {
        if let SizeDistribution::Fixed(size) = self {
            return vec![*size; VARIANTS];
        }
        let mut sizes: Vec<usize> = (0..CHOICES).map(|at| self.quantile(middle(at))).collect();
        let mut random = Random(0x5eed);
        for at in (1..sizes.len()).rev() {
            sizes.swap(at, random.below(at + 1));
        }
        sizes
    }
}

/// The share of all bodies that lies below the middle of this one of those that are prepared.
fn middle(choice: usize) -> f64 {
    (choice as f64 + 0.5) / CHOICES as f64
}

impl fmt::Display for SizeDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeDistribution::Fixed(size) => write!(f, "{size}"),
            SizeDistribution::Uniform(low, high) => write!(f, "uniform:{low}-{high}"),
            SizeDistribution::Exponential(mean) => write!(f, "exponential:{mean}"),
            SizeDistribution::List(sizes) => {
                let parts: Vec<String> = sizes
                    .iter()
                    .map(|(size, weight)| format!("{size}={weight}"))
                    .collect();
                write!(f, "list:{}", parts.join(","))
            }
        }
    }
}

impl FromStr for SizeDistribution {
    type Err = String;

    /// Reads `1024`, `uniform:100-2000`, `exponential:1024` or `list:128=80,4096=20`.
    fn from_str(text: &str) -> Result<SizeDistribution, String> {
        let fault = || {
            format!(
                "{text:?} is none of uniform:LOW-HIGH, exponential:MEAN, list:SIZE=WEIGHT,... \
                 with sizes from 1 to {BODY_BYTES_MAX} bytes"
            )
        };
        let size = |text: &str| match text.trim().parse() {
            Ok(size) if (1..=BODY_BYTES_MAX).contains(&size) => Ok(size),
            _ => Err(fault()),
        };
        let Some((kind, rest)) = text.split_once(':') else {
            return size(text).map(SizeDistribution::Fixed);
        };
        let distribution = match kind {
            "uniform" => {
                let (low, high) = rest.split_once('-').ok_or_else(fault)?;
                SizeDistribution::Uniform(size(low)?, size(high)?)
            }
            "exponential" => SizeDistribution::Exponential(size(rest)?),
            "list" => {
                let entry = |part: &str| {
                    let (bytes, weight) = part.split_once('=').unwrap_or((part, "1"));
                    match weight.trim().parse() {
                        Ok(weight) if weight > 0.0 => Ok((size(bytes)?, weight)),
                        _ => Err(fault()),
                    }
                };
                let entries: Result<Vec<(usize, f64)>, String> =
                    rest.split(',').map(entry).collect();
                SizeDistribution::List(entries?)
            }
            _ => return Err(fault()),
        };
        match distribution {
            SizeDistribution::Uniform(low, high) if low > high => Err(fault()),
            sound => Ok(sound),
        }
    }
}

/// Bodies, prepared so that one is a copy and the checksum of its stamp.
#[derive(Debug)]
pub struct Payloads {
    pool: Vec<u8>,
    bodies: Vec<Body>,
}

#[derive(Clone, Copy, Debug)]
struct Body {
    /// Place in the pool of what follows the stamp.
    start: usize,
    /// Size with the stamp.
    size: usize,
    /// CRC-32 of what follows the stamp.
    crc: u32,
}

impl Payloads {
    /// Prepares bodies. Of each, the share `compressible` (0 to 1) repeats one byte.
    pub fn new(distribution: &SizeDistribution, compressible: f64) -> Payloads {
        let sizes = distribution.sizes();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let mut random = Random(0x00b0_d1e5);
        let mut pool = vec![0; largest + POOL_BYTES];
        const GROUP: usize = 64;
        let filled = (compressible.clamp(0.0, 1.0) * GROUP as f64).round() as usize;
        for group in pool.chunks_mut(GROUP) {
            let filled = filled.min(group.len());
            group[..filled].fill(b'a');
            group[filled..]
                .iter_mut()
                .for_each(|byte| *byte = random.next() as u8);
        }
        let body = |size: usize| {
            let start = random.below(POOL_BYTES / GROUP) * GROUP;
            let rest = size.saturating_sub(STAMP_BYTES);
            let crc = crc32fast::hash(&pool[start..start + rest]);
            Body { start, size, crc }
        };
        let bodies = sizes.into_iter().map(body).collect();
        Payloads { pool, bodies }
    }

    /// Size of body `number`, in bytes. There is one for every number. Numbers with a common
    /// step have the same sizes as all have, however large the step is: what goes to one of many
    /// queues is no different from what goes to the others.
    pub fn size(&self, number: u64) -> usize {
        self.body(number).size
    }

    /// Appends body `number`, with the stamp in front where it has room for one.
    /// Without `checked` the stamp has no checksum.
    pub fn write(&self, number: u64, stamp: &Stamp, checked: bool, out: &mut Vec<u8>) {
        let body = self.body(number);
        let mut rest = body.size;
        if body.size >= STAMP_BYTES {
            let initial = checked.then(|| Hasher::new_with_initial(body.crc));
            out.extend_from_slice(&stamp.encode(initial));
            rest -= STAMP_BYTES;
        }
        out.extend_from_slice(&self.pool[body.start..body.start + rest]);
    }

    fn body(&self, number: u64) -> Body {
        // Each once in as many numbers as there are, then in another order.
        let count = self.bodies.len() as u64;
        debug_assert!(count.is_power_of_two());
        self.bodies[((number ^ mix(number / count)) % count) as usize]
    }
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(distribution: &SizeDistribution) -> f64 {
        let sizes = distribution.sizes();
        sizes.iter().sum::<usize>() as f64 / sizes.len() as f64
    }

    fn parse(text: &str) -> SizeDistribution {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn distributions_have_their_means_and_bounds() {
        let uniform = parse("uniform:100-2000");
        assert!((mean(&uniform) - 1050.0).abs() < 5.0, "{}", mean(&uniform));
        let sizes = uniform.sizes();
        assert!(sizes.iter().all(|size| (100..=2000).contains(size)));
        assert!(sizes.iter().min() < Some(&110) && sizes.iter().max() > Some(&1990));

        let exponential = parse("exponential:1024");
        let found = mean(&exponential);
        assert!((found - 1024.0).abs() < 15.0, "{found}");
        let median = exponential.quantile(0.5);
        assert!(median.abs_diff(710) < 3, "{median}");
        assert_eq!(exponential.most(), 7_808);
        assert_eq!(exponential.sizes().iter().max(), Some(&7_808));

        let list = parse("list:128=80,4096=20").sizes();
        let small = list.iter().filter(|&&size| size == 128).count();
        let share = small as f64 / list.len() as f64;
        assert!((share - 0.8).abs() < 0.01, "{share}");
        assert!(list.iter().all(|&size| size == 128 || size == 4096));
    }

    /// As producers send: to each queue in turn, a whole batch at a time.
    #[test]
    fn every_queue_gets_the_same_sizes() {
        let payloads = Payloads::new(&parse("exponential:1024"), 0.0);
        for (queues, batch, rounds) in [(1024, 1, 2000), (8, 32, 2000), (7, 3, 2000), (64, 16, 500)]
        {
            let mut sums = vec![0; queues];
            for number in 0..(queues * rounds) as u64 {
                let first = number * batch;
                let sizes = (first..first + batch).map(|body| payloads.size(body));
                sums[number as usize % queues] += sizes.sum::<usize>();
            }
            for (queue, sum) in sums.into_iter().enumerate() {
                let mean = sum as f64 / (rounds as u64 * batch) as f64;
                let error = (mean / 1024.0 - 1.0).abs();
                assert!(error < 0.1, "{queues} x {batch}: {mean} in queue {queue}");
            }
        }
    }

    #[test]
    fn a_distribution_reads_as_it_was_written() {
        for text in ["77", "uniform:1-9", "exponential:5", "list:1=2,3=4.5"] {
            assert_eq!(parse(text).to_string(), text);
        }
        for text in [
            "",
            "0",
            "x",
            "uniform:9-1",
            "uniform:1",
            "exponential:0",
            "list:",
            "list:1=0",
            "list:1=x",
            "normal:3",
            "8388609",
        ] {
            assert!(text.parse::<SizeDistribution>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_body_carries_its_stamp_and_passes_its_checksum() {
        let payloads = Payloads::new(&parse("uniform:10-300"), 0.0);
        let mut small = 0;
        for number in 0..2000 {
            let stamp = Stamp {
                run: 9,
                producer: 1,
                place: 2,
                sequence: number as u32,
                floor: 3,
                due: 4,
            };
            let mut body = Vec::new();
            payloads.write(number, &stamp, true, &mut body);
            assert_eq!(body.len(), payloads.size(number));
            if body.len() < STAMP_BYTES {
                small += 1;
                continue;
            }
            assert_eq!(Stamp::decode(&body), Some(stamp));
            *body.last_mut().expect("not empty") ^= 1;
            assert_eq!(Stamp::decode(&body), None);
        }
        assert!(small > 0);
    }

    #[test]
    fn the_compressible_share_compresses() {
        let deflated = |share: f64| {
            use std::io::Write;
            let payloads = Payloads::new(&SizeDistribution::Fixed(64 * 1024), share);
            let mut body = Vec::new();
            let stamp = Stamp {
                run: 1,
                producer: 0,
                place: 0,
                sequence: 0,
                floor: 0,
                due: 0,
            };
            payloads.write(0, &stamp, true, &mut body);
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&body).expect("memory");
            out.finish().expect("memory").len() as f64 / body.len() as f64
        };
        assert!(deflated(0.0) > 0.95, "{}", deflated(0.0));
        assert!(deflated(1.0) < 0.05, "{}", deflated(1.0));
        let half = deflated(0.5);
        assert!((0.4..0.7).contains(&half), "{half}");
    }
}
