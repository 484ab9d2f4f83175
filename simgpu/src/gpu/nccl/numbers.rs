//! Reductions: the arithmetic of a collective, value by value, in each of the data types.

/// `ncclRedOp_t`; numbers above are operators that programs made: sums of values multiplied before.
const PRODUCT: i32 = 1;
const MAXIMUM: i32 = 2;
const MINIMUM: i32 = 3;
const AVERAGE: i32 = 4;

/// Bytes of one value of an `ncclDataType_t`.
pub(super) fn width(data: i32) -> Option<usize> {
    Some(match data {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// A floating-point type of few bits: how many the exponent and the mantissa have.
#[derive(Clone, Copy)]
struct Small {
    exponent: i32,
    mantissa: i32,
}

/// `ncclFloat16`, `ncclBfloat16`, `ncclFloat8e4m3`, `ncclFloat8e5m2`
fn small(data: i32) -> Option<Small> {
    let of = |exponent, mantissa| Some(Small { exponent, mantissa });
    match data {
        6 => of(5, 10),
        9 => of(8, 7),
        10 => of(4, 3),
        11 => of(5, 2),
        _ => None,
    }
}

impl Small {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// e4m3 has values where the others have infinity, and one bit pattern for NaN.
    fn has_infinity(self) -> bool {
        self.mantissa != 3
    }

    fn value(self, bits: u32) -> f64 {
        let fraction = f64::from(bits & ((1 << self.mantissa) - 1)) / f64::from(1 << self.mantissa);
        let exponent = (bits >> self.mantissa & ((1 << self.exponent) - 1)).cast_signed();
        let sign = if bits >> (self.exponent + self.mantissa) & 1 == 1 { -1.0 } else { 1.0 };
        let highest = exponent == (1 << self.exponent) - 1;
        if highest && !self.has_infinity() && bits & 7 == 7 {
            return f64::NAN;
        }
        if highest && self.has_infinity() {
            return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let scale = |by: i32| f64::from(by - self.bias()).exp2();
        sign * if exponent == 0 { fraction * scale(1) } else { (1.0 + fraction) * scale(exponent) }
    }

    /// The nearest value's bits, ties to even; what is too large is infinite, or the largest value.
    fn bits(self, value: f64) -> u32 {
        let sign = u32::from(value.is_sign_negative()) << (self.exponent + self.mantissa);
        let infinity = ((1_u32 << self.exponent) - 1) << self.mantissa;
        let magnitude = value.abs();
        if magnitude.is_nan() {
            return sign | infinity | ((1 << self.mantissa) - 1);
        }
        // The exponent of the last place that the type has for this value.
        let exponent = magnitude.log2().floor().max(f64::from(1 - self.bias()));
        let unit = (exponent - f64::from(self.mantissa)).exp2();
        let places = (magnitude / unit).round_ties_even();
        // Places above those of a mantissa carry into the exponent, as the encoding has it.
        let base = (exponent + f64::from(self.bias() - 1)) * f64::from(1 << self.mantissa);
        let bits = if magnitude == 0.0 { 0.0 } else { base + places };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held to the type's range")]
        let bits = bits.clamp(0.0, f64::from(if self.has_infinity() { infinity } else { infinity | 6 })) as u32;
        sign | bits
    }
}

/// The values as numbers that hold them all: integers of up to 64 bits, or floats.
enum Values {
    Whole(Vec<i128>),
    Float(Vec<f64>),
}

fn values(data: i32, bytes: &[u8]) -> Option<Values> {
    fn of<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|it| read(*it)).collect()
    }
    Some(match data {
        0 => Values::Whole(of(bytes, |it| i8::from_le_bytes(it).into())),
        1 => Values::Whole(of(bytes, |it| u8::from_le_bytes(it).into())),
        2 => Values::Whole(of(bytes, |it| i32::from_le_bytes(it).into())),
        3 => Values::Whole(of(bytes, |it| u32::from_le_bytes(it).into())),
        4 => Values::Whole(of(bytes, |it| i64::from_le_bytes(it).into())),
        5 => Values::Whole(of(bytes, |it| u64::from_le_bytes(it).into())),
        7 => Values::Float(of(bytes, |it| f32::from_le_bytes(it).into())),
        8 => Values::Float(of(bytes, f64::from_le_bytes)),
        6 | 9 => {
            let kind = small(data)?;
            Values::Float(of(bytes, |it| kind.value(u16::from_le_bytes(it).into())))
        }
        _ => {
            let kind = small(data)?;
            Values::Float(of(bytes, |[it]| kind.value(it.into())))
        }
    })
}

fn whole(data: i32, value: i128, bytes: &mut Vec<u8>) {
    // Integers wrap, as they do on a device: their lowest bytes are the result.
    bytes.extend(&value.to_le_bytes()[..width(data).unwrap_or(0)]);
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest value that the type has")]
fn float(data: i32, value: f64, bytes: &mut Vec<u8>) {
    match (data, small(data)) {
        (7, _) => bytes.extend((value as f32).to_le_bytes()),
        (8, _) => bytes.extend(value.to_le_bytes()),
        (_, Some(kind)) => bytes.extend(&kind.bits(value).to_le_bytes()[..width(data).unwrap_or(0)]),
        _ => {}
    }
}

/// The first value.
#[expect(clippy::cast_precision_loss, reason = "a factor is as exact as a float")]
pub(super) fn first(data: i32, bytes: &[u8]) -> Option<f64> {
    match values(data, bytes)? {
        Values::Whole(it) => it.first().map(|it| *it as f64),
        Values::Float(it) => it.first().copied(),
    }
}

/// What several ranks bring to a reduction.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    /// What each value is multiplied with before.
    pub(super) factor: f64,
    /// The ranks that bring it.
    pub(super) times: u32,
}

/// Reduces what the ranks bring to one.
pub(super) fn reduce(data: i32, reduction: i32, ranks: &[Input]) -> Option<Vec<u8>> {
    let count = i32::try_from(ranks.iter().map(|it| it.times).sum::<u32>()).ok()?;
    let mut result = Vec::new();
    let all: Vec<Values> = ranks.iter().map(|it| values(data, it.bytes)).collect::<Option<_>>()?;
    let len = all.iter().map(|it| if let Values::Whole(it) = it { it.len() } else { 0 }).max()?;
    for at in 0..len {
        let row = all.iter().zip(ranks).filter_map(|(it, rank)| {
            if let Values::Whole(it) = it { it.get(at).map(|value| (*value, rank.times)) } else { None }
        });
        let sum =
            |row: &mut dyn Iterator<Item = (i128, u32)>| row.map(|(value, times)| value * i128::from(times)).sum();
        let mut row = row;
        let value = match reduction {
            PRODUCT => row.fold(1, |product: i128, (value, times)| product.wrapping_mul(value.wrapping_pow(times))),
            MAXIMUM => row.map(|it| it.0).max()?,
            MINIMUM => row.map(|it| it.0).min()?,
            AVERAGE => sum(&mut row) / i128::from(count),
            _ => sum(&mut row),
        };
        whole(data, value, &mut result);
    }
    let len = all.iter().map(|it| if let Values::Float(it) = it { it.len() } else { 0 }).max()?;
    for at in 0..len {
        let row = all.iter().zip(ranks).filter_map(|(it, rank)| {
            if let Values::Float(it) = it { it.get(at).map(|value| (value * rank.factor, rank.times)) } else { None }
        });
        let sum = |row: &mut dyn Iterator<Item = (f64, u32)>| row.map(|(value, times)| value * f64::from(times)).sum();
        let mut row = row;
        let value = match reduction {
            PRODUCT => row.map(|(value, times)| value.powf(f64::from(times))).product(),
            MAXIMUM => row.map(|it| it.0).reduce(f64::max)?,
            MINIMUM => row.map(|it| it.0).reduce(f64::min)?,
            AVERAGE => sum(&mut row) / f64::from(count),
            _ => sum(&mut row),
        };
        float(data, value, &mut result);
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_are_read_and_written_as_the_standards_define() {
        let half = small(6).unwrap();
        let known =
            [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x0001, 2_f64.powi(-24)), (0x3555, 0.333_251_953_125)];
        for (bits, value) in known {
            assert_eq!((half.value(bits), half.bits(value)), (value, bits));
        }
        assert_eq!(half.bits(1e6), 0x7c00, "too large is infinite");
        assert_eq!(half.bits(2049.0), 0x6800, "a tie goes to the even one");
        assert_eq!((half.bits(0.0), half.bits(-0.0), half.bits(1e-9)), (0, 0x8000, 0));
        for data in [6, 9, 10, 11] {
            let kind = small(data).unwrap();
            for bits in 0..1 << (kind.exponent + kind.mantissa) {
                let value = kind.value(bits);
                assert!(!value.is_finite() || kind.bits(value) == bits, "{data}: {bits:#x} is {value}");
            }
        }
        let e4m3 = small(10).unwrap();
        assert_eq!((e4m3.value(0x7e), e4m3.bits(1e6), e4m3.value(0x7f).is_nan()), (448.0, 0x7e, true));
        assert_eq!(small(9).unwrap().bits(f64::from(f32::from_bits(0x3f80_8000))), 0x3f80);
    }

    #[test]
    fn every_type_is_reduced_by_every_operation() {
        let one = |bytes| Input { bytes, factor: 1.0, times: 1 };
        let (a, b) = ([3_i64, -1].map(i64::to_le_bytes), [4_i64, -8].map(i64::to_le_bytes));
        let ranks = [one(a.as_flattened()), one(b.as_flattened())];
        let of = |reduction| {
            let bytes = reduce(4, reduction, &ranks).unwrap();
            bytes.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it)).collect::<Vec<_>>()
        };
        assert_eq!(
            (of(0), of(1), of(2), of(3), of(4)),
            ([7, -9].into(), [12, 8].into(), [4, -1].into(), [3, -8].into(), [3, -4].into())
        );
        let (a, b) = (1.5_f32.to_le_bytes(), 2.0_f32.to_le_bytes());
        let halved = reduce(7, 9, &[&a, &b].map(|it| Input { factor: 0.5, ..one(it) })).unwrap();
        assert_eq!(halved, 1.75_f32.to_le_bytes(), "an operator of the program's own");
        assert_eq!(reduce(1, 0, &[one(&[200]), one(&[100])]).unwrap(), [44], "integers wrap");
        let unit = 0x3f80_u16.to_le_bytes();
        assert_eq!(reduce(9, 0, &[one(&unit), one(&unit)]).unwrap(), 0x4000_u16.to_le_bytes());
        assert_eq!(reduce(99, 0, &[one(&unit)]), None, "no such type");
        let thrice = |data, reduction, bytes| reduce(data, reduction, &[Input { times: 3, ..one(bytes) }]).unwrap();
        assert_eq!([0, 1, 2, 4].map(|it| thrice(1, it, &[5])), [[15], [125], [5], [5]], "of three ranks");
        assert_eq!([0, 1, 4].map(|it| thrice(7, it, &b)), [6.0, 8.0, 2.0].map(f32::to_le_bytes));
    }
}
