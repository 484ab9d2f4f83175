//! How much workspace a convolution of cuDNN needs, as far as measurements show it: cuDNN's own heuristics verify that
//! the driver is NVIDIA's and cannot be asked.
//!
//! Two peaks that were measured on an RTX 3060 (cuDNN 9.1, two CNNs in `docs/fit.md`) agree within 0.6 %
//! with one algorithm for the gradient of a pointwise convolution's weights, in float32 and channels first: cuDNN
//! multiplies image by image, and sums afterwards. Its workspace is the size of the weights for each image. Larger
//! batches and larger images show no such sums.

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

/// Returns whether cuDNN has that algorithm for a device. On an H200 (cuDNN 9.19), peaks of CNNs show that it does not;
/// that is assumed for later cards too.
pub(super) fn sums_by_image(model: Model) -> bool {
    model.major < 9
}

/// Returns the bytes of the workspace for the gradient of a convolution's weights.
pub(super) fn workspace(input: &Tensor, weights: &Tensor) -> u64 {
    let ([images, channels, size @ ..], [filters, group, taps @ ..]) =
        (input.dimensions.as_slice(), weights.dimensions.as_slice())
    else {
        return 0;
    };
    let is_pointwise = taps.iter().all(|it| *it == 1) && group == channels;
    let is_channels_first = input.strides.get(1).is_some_and(|it| *it > 1);
    if !is_pointwise || !is_channels_first || input.kind != FLOAT {
        return 0;
    }
    let product = |first: u64, all: &[u64]| all.iter().fold(first, |sum, it| sum.saturating_mul(*it));
    let bytes = product(4, &[*images, *filters, *channels]);
    if product(*images, size) < MOST_POINTS && bytes <= MOST_BYTES { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dimensions: &[u64], strides: &[u64]) -> Tensor {
        Tensor { kind: FLOAT, dimensions: dimensions.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn only_small_batches_of_small_images_are_summed_by_image() {
        let of = |images, size, channels, filters| {
            let input = tensor(&[images, channels, size, size], &[channels * size * size, size * size, size, 1]);
            workspace(&input, &tensor(&[filters, channels, 1, 1], &[channels, 1, 1, 1]))
        };
        assert_eq!(of(323, 3, 320, 1280), 323 * 320 * 1280 * 4);
        assert_eq!((of(469, 3, 320, 1280), of(323, 6, 96, 576), of(351, 3, 512, 2048)), (0, 0, 0));
    }

    #[test]
    fn other_convolutions_need_none() {
        let strides = [320 * 9, 9, 3, 1];
        let input = tensor(&[16, 320, 3, 3], &strides);
        let pointwise = tensor(&[64, 320, 1, 1], &[320, 1, 1, 1]);
        assert_eq!(workspace(&input, &pointwise), 16 * 64 * 320 * 4);
        let half = Tensor { kind: 2, ..input.clone() };
        let last = tensor(&[16, 320, 3, 3], &[320 * 9, 1, 3 * 320, 320]);
        let wide = tensor(&[64, 320, 3, 3], &[320 * 9, 9, 3, 1]);
        let grouped = tensor(&[320, 1, 1, 1], &[1, 1, 1, 1]);
        let all = [(&half, &pointwise), (&last, &pointwise), (&input, &wide), (&input, &grouped)];
        assert!(all.into_iter().all(|(input, weights)| workspace(input, weights) == 0));
        assert_eq!(workspace(&Tensor::default(), &pointwise), 0);
    }
}
