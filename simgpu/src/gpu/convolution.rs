//! How much workspace a convolution of cuDNN needs, as far as measurements show it: cuDNN's own heuristics verify that
//! the driver is NVIDIA's and cannot be asked.
//!
//! From compute capability 9.0 on, a convolution whose tensors have channels first takes copies of all three with
//! channels last, unless it is pointwise or has groups. On an H100 (cuDNN 9.19), 67 of the 72 workspaces of six shapes,
//! in float32 and float16, with 16 and 64 images, are that and at most 9 MiB more (`tests/gpu/results`).
//!
//! Before, two peaks that were measured on an RTX 3060 (cuDNN 9.1, two CNNs in `docs/fit.md`) agree within 0.6 % with
//! one algorithm for the gradient of a pointwise convolution's weights, in float32 and channels first: cuDNN multiplies
//! image by image, and sums afterwards. Its workspace is the size of the weights for each image. Larger batches and
//! larger images show no such sums.

use super::model::Model;

/// Points of all images, from which on there are no sums by image: between 3402 (378 images of 3 by 3) and 4221.
const MOST_POINTS: u64 = 4096;

/// The largest workspace that was found is 505 MiB; 1404 MiB was not asked for.
const MOST_BYTES: u64 = 512 << 20;

/// `CUDNN_DATA_FLOAT`
const FLOAT: u64 = 0;

/// A tensor's type, dimensions and strides.
#[derive(Clone, Debug, Default)]
pub(super) struct Tensor {
    pub(super) kind: u64,
    pub(super) dimensions: Vec<u64>,
    pub(super) strides: Vec<u64>,
}

impl Tensor {
    fn has_channels_first(&self) -> bool {
        self.strides.get(1).is_some_and(|it| *it > 1)
    }

    fn bytes(&self) -> u64 {
        product(element(self.kind), &self.dimensions)
    }
}

/// Bytes of one element of a `cudnnDataType_t`; of the smallest ones, a byte.
pub(super) fn element(kind: u64) -> u64 {
    match kind {
        1 | 10 => 8,
        0 | 4 => 4,
        2 | 9 => 2,
        _ => 1,
    }
}

fn product(first: u64, all: &[u64]) -> u64 {
    all.iter().fold(first, |sum, it| sum.saturating_mul(*it))
}

/// A convolution, or the gradient of its input or of its weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Convolution {
    pub(super) input: Tensor,
    pub(super) weights: Tensor,
    pub(super) output: Tensor,
    pub(super) is_for_weights: bool,
}

impl Convolution {
    /// Returns the bytes of its workspace on a device.
    pub(super) fn workspace(&self, model: Model) -> u64 {
        let ([_, channels, ..], [_, group, taps @ ..]) =
            (self.input.dimensions.as_slice(), self.weights.dimensions.as_slice())
        else {
            return 0;
        };
        let (is_pointwise, is_whole) = (taps.iter().all(|it| *it == 1), group == channels);
        if !is_whole || !self.input.has_channels_first() {
            return 0;
        }
        match model.major {
            9.. if !is_pointwise => {
                let all = [&self.input, &self.weights, &self.output];
                all.into_iter().map(Tensor::bytes).fold(0, u64::saturating_add)
            }
            ..9 if is_pointwise && self.is_for_weights => self.sums_by_image(),
            _ => 0,
        }
    }

    /// Returns the bytes of the weights for each image, where cuDNN sums them.
    fn sums_by_image(&self) -> u64 {
        let ([images, channels, size @ ..], [filters, ..]) =
            (self.input.dimensions.as_slice(), self.weights.dimensions.as_slice())
        else {
            return 0;
        };
        let bytes = product(4, &[*images, *filters, *channels]);
        let is_small = product(*images, size) < MOST_POINTS && bytes <= MOST_BYTES;
        if is_small && self.input.kind == FLOAT { bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(major: i32) -> Model {
        Model { major, ..Model::of("NVIDIA A10") }
    }

    fn tensor(dimensions: &[u64], strides: &[u64]) -> Tensor {
        Tensor { kind: FLOAT, dimensions: dimensions.to_vec(), strides: strides.to_vec() }
    }

    fn first(dimensions: [u64; 4]) -> Tensor {
        let [_, channels, height, width] = dimensions;
        tensor(&dimensions, &[channels * height * width, height * width, width, 1])
    }

    /// The gradient of the weights of a convolution that keeps the size of images.
    fn gradient(input: Tensor, weights: [u64; 4]) -> Convolution {
        let [images, _, height, width] = input.dimensions.as_slice().try_into().unwrap();
        let output = Tensor { kind: input.kind, ..first([images, weights[0], height, width]) };
        let weights = Tensor { kind: input.kind, ..first(weights) };
        Convolution { input, weights, output, is_for_weights: true }
    }

    #[test]
    fn only_small_batches_of_small_images_are_summed_by_image() {
        let of = |images, size, channels, filters| {
            gradient(first([images, channels, size, size]), [filters, channels, 1, 1]).workspace(model(8))
        };
        assert_eq!(of(323, 3, 320, 1280), 323 * 320 * 1280 * 4);
        assert_eq!((of(469, 3, 320, 1280), of(323, 6, 96, 576), of(351, 3, 512, 2048)), (0, 0, 0));
    }

    #[test]
    fn copies_have_channels_last_on_later_devices() {
        let wide = gradient(first([16, 64, 56, 56]), [64, 64, 3, 3]);
        assert_eq!((wide.workspace(model(9)), wide.workspace(model(8))), (25_837_568, 0));
        let half = gradient(Tensor { kind: 2, ..first([16, 320, 32, 32]) }, [320, 320, 3, 3]);
        assert_eq!(half.workspace(model(10)), 22_814_720);
        let forward = Convolution { is_for_weights: false, ..wide };
        assert_eq!(forward.workspace(model(9)), 25_837_568);
    }

    #[test]
    fn other_convolutions_need_none() {
        let input = first([16, 320, 3, 3]);
        let pointwise = [64, 320, 1, 1];
        assert_eq!(gradient(input.clone(), pointwise).workspace(model(8)), 16 * 64 * 320 * 4);
        let half = Tensor { kind: 2, ..input.clone() };
        let last = tensor(&[16, 320, 3, 3], &[320 * 9, 1, 3 * 320, 320]);
        let before = [(half, pointwise), (last.clone(), pointwise), (input.clone(), [64, 320, 3, 3])];
        assert!(before.into_iter().all(|(input, weights)| gradient(input, weights).workspace(model(8)) == 0));
        let later = [(input.clone(), pointwise), (last, [64, 320, 3, 3]), (input, [320, 1, 3, 3])];
        assert!(later.into_iter().all(|(input, weights)| gradient(input, weights).workspace(model(9)) == 0));
        assert_eq!(Convolution::default().workspace(model(9)), 0);
    }
}
