//! cuDNN's recurrent networks: where their weights lie in one buffer, and how much memory a pass needs.

use super::abi::Out;
use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

const BAD_PARAM: i32 = 2000;
/// `CUDNN_LSTM`, `CUDNN_GRU`; the cells before them have one gate.
const LSTM: i32 = 2;
const GRU: i32 = 3;
/// `CUDNN_RNN_NO_BIAS`, `CUDNN_RNN_DOUBLE_BIAS`
const NO_BIAS: i32 = 0;
const DOUBLE_BIAS: i32 = 2;
const BIDIRECTIONAL: i32 = 1;
const TRAINING: i32 = 1;

/// A network, as its descriptor was set.
#[derive(Clone, Copy)]
struct Network {
    cell: i32,
    bias: i32,
    directions: usize,
    /// `cudnnDataType_t` of the weights.
    data: i32,
    input: usize,
    hidden: usize,
    /// The size after the projection of the hidden state; `hidden` without a projection.
    projection: usize,
    layers: usize,
}

/// Sequences: how many steps, how many at a time.
#[derive(Clone, Copy)]
struct Sequences {
    steps: usize,
    batch: usize,
}

/// A matrix or a vector in the buffer of weights: where it begins, in values, and its two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset: usize,
    rows: usize,
    columns: usize,
}

#[derive(Default)]
struct Known {
    networks: HashMap<usize, Network>,
    sequences: HashMap<usize, Sequences>,
    /// The tensors that weights were described by.
    tensors: HashMap<usize, (i32, [i32; 3])>,
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a value of a `cudnnDataType_t`.
const fn width(data: i32) -> usize {
    match data {
        1 => 8,
        2 | 9 => 2,
        _ => 4,
    }
}

impl Network {
    fn gates(self) -> usize {
        match self.cell {
            LSTM => 4,
            GRU => 3,
            _ => 1,
        }
    }

    /// How wide what goes into a layer is; a layer of a bidirectional network is two.
    fn into(self, layer: usize) -> usize {
        if layer < self.directions { self.input } else { self.projection * self.directions }
    }

    fn is_projected(self) -> bool {
        self.projection != self.hidden
    }

    /// Values of one layer's matrices: of the input, of the hidden state, of the projection.
    fn matrices(self, layer: usize) -> usize {
        let gates = self.gates() * self.hidden * (self.into(layer) + self.projection);
        gates + if self.is_projected() { self.hidden * self.projection } else { 0 }
    }

    fn biases(self) -> usize {
        let sets = match self.bias {
            NO_BIAS => 0,
            DOUBLE_BIAS => 2,
            _ => 1,
        };
        sets * self.gates() * self.hidden
    }

    /// Values of all weights: the matrices of every layer, then the biases of every layer.
    fn weights(self) -> usize {
        let layers = self.layers * self.directions;
        (0..layers).map(|it| self.matrices(it)).sum::<usize>() + layers * self.biases()
    }

    /// A layer's matrix and bias by their number: gates of the input first, then those of the hidden state, then the
    /// projection.
    fn pieces(self, layer: usize, number: usize) -> Option<(Piece, Option<Piece>)> {
        let (gates, layers) = (self.gates(), self.layers * self.directions);
        if layer >= layers || number > 2 * gates || (number == 2 * gates && !self.is_projected()) {
            return None;
        }
        let start: usize = (0..layer).map(|it| self.matrices(it)).sum();
        let of_input = number.min(gates) * self.hidden * self.into(layer);
        let of_hidden = number.saturating_sub(gates) * self.hidden * self.projection;
        let (rows, columns) = match number {
            it if it < gates => (self.hidden, self.into(layer)),
            it if it < 2 * gates => (self.hidden, self.projection),
            _ => (self.projection, self.hidden),
        };
        let matrix = Piece { offset: start + of_input + of_hidden, rows, columns };
        let all: usize = (0..layers).map(|it| self.matrices(it)).sum();
        let offset = all + layer * self.biases() + number * self.hidden;
        let has = number < 2 * gates && (number + 1) * self.hidden <= self.biases();
        Some((matrix, has.then_some(Piece { offset, rows: self.hidden, columns: 1 })))
    }

    /// Bytes of a pass's workspace and, when it trains, of what it keeps for the pass back: the gates, cells and
    /// outputs of each step and layer.
    fn space(self, sequences: Sequences) -> (usize, usize) {
        let step = sequences.batch * self.hidden * width(self.data) * self.directions;
        let kept = step * sequences.steps * self.layers * (self.gates() + 2);
        (step * self.gates() * (sequences.steps + 2), kept)
    }
}

fn size(value: i32) -> Option<usize> {
    usize::try_from(value).ok()
}

fn set_tensor(tensor: usize, data: i32, piece: Option<Piece>) {
    let side = |it: usize| i32::try_from(it).unwrap_or(i32::MAX);
    let sides = piece.map_or([0, 0, 0], |it| [1, side(it.rows), side(it.columns)]);
    known().tensors.insert(tensor, (data, sides));
}

entry_points! {
    fn cudnnCreateRNNDescriptor(out: Out<usize>) -> i32 {
        out.put(super::process::process().queues.handle());
        0
    }

    fn cudnnDestroyRNNDescriptor(network: usize) -> i32 {
        known().networks.remove(&network);
        0
    }

    fn cudnnSetRNNDescriptor_v8(
        network: usize, _algorithm: i32, cell: i32, bias: i32, direction: i32, _input_mode: i32, data: i32,
        _precision: i32, _math: i32, input: i32, hidden: i32, projection: i32, layers: i32, _dropout: usize, _flags: u32,
    ) -> i32 {
        let sizes = (size(input), size(hidden), size(projection), size(layers));
        let (Some(input), Some(hidden), Some(projection), Some(layers)) = sizes else { return BAD_PARAM };
        let directions = if direction == BIDIRECTIONAL { 2 } else { 1 };
        let it = Network { cell, bias, directions, data, input, hidden, projection, layers };
        known().networks.insert(network, it);
        0
    }

    fn cudnnCreateRNNDataDescriptor(out: Out<usize>) -> i32 {
        out.put(super::process::process().queues.handle());
        0
    }

    fn cudnnDestroyRNNDataDescriptor(sequences: usize) -> i32 {
        known().sequences.remove(&sequences);
        0
    }

    fn cudnnSetRNNDataDescriptor(
        sequences: usize, _data: i32, _layout: i32, steps: i32, batch: i32, _width: i32, _lengths: usize, _fill: usize,
    ) -> i32 {
        let (Some(steps), Some(batch)) = (size(steps), size(batch)) else { return BAD_PARAM };
        known().sequences.insert(sequences, Sequences { steps, batch });
        0
    }

    fn cudnnGetRNNWeightSpaceSize(_handle: usize, network: usize, out: Out<usize>) -> i32 {
        known().networks.get(&network).map_or(BAD_PARAM, |it| {
            out.put(it.weights() * width(it.data));
            0
        })
    }

    fn cudnnGetRNNTempSpaceSizes(
        _handle: usize, network: usize, mode: i32, sequences: usize, work: Out<usize>, kept: Out<usize>,
    ) -> i32 {
        let known = known();
        let (Some(network), Some(sequences)) = (known.networks.get(&network), known.sequences.get(&sequences)) else {
            return BAD_PARAM;
        };
        let space = network.space(*sequences);
        work.put(space.0);
        kept.put(if mode == TRAINING { space.1 } else { 0 });
        0
    }

    fn cudnnGetRNNWeightParams(
        _handle: usize, network: usize, layer: i32, _bytes: usize, weights: usize, number: i32, matrix: usize,
        matrix_at: Out<usize>, bias: usize, bias_at: Out<usize>,
    ) -> i32 {
        let Some(network) = known().networks.get(&network).copied() else { return BAD_PARAM };
        let pieces = size(layer).zip(size(number)).and_then(|(layer, number)| network.pieces(layer, number));
        let address = |it: Piece| weights + it.offset * width(network.data);
        // Parts that a network lacks are null, with an empty descriptor.
        let (first, second) = pieces.map_or((None, None), |(matrix, bias)| (Some(matrix), bias));
        for (tensor, at, piece) in [(matrix, matrix_at, first), (bias, bias_at, second)] {
            set_tensor(tensor, network.data, piece);
            at.put(piece.map_or(0, address));
        }
        0
    }

    fn cudnnGetTensorNdDescriptor(
        tensor: usize, capacity: i32, data: Out<i32>, count: Out<i32>, sides: Out<i32>, strides: Out<i32>,
    ) -> i32 {
        let Some((kind, [a, b, c])) = known().tensors.get(&tensor).copied() else { return BAD_PARAM };
        data.put(kind);
        count.put(if a == 0 { 0 } else { 3 });
        let strided = [(a, b * c), (b, c), (c, 1)];
        for (at, (side, stride)) in strided.into_iter().enumerate().take(size(capacity).unwrap_or(0)) {
            sides.put_at(at, side);
            strides.put_at(at, stride);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LSTM_OF_TWO: Network = Network {
        cell: LSTM,
        bias: DOUBLE_BIAS,
        directions: 2,
        data: 0,
        input: 10,
        hidden: 6,
        projection: 6,
        layers: 2,
    };

    #[test]
    fn the_pieces_of_a_network_fill_its_buffer_without_gap_or_overlap() {
        let gru = Network { cell: GRU, directions: 1, layers: 3, ..LSTM_OF_TWO };
        let projected = Network { projection: 4, ..LSTM_OF_TWO };
        let plain = Network { cell: 0, bias: NO_BIAS, ..LSTM_OF_TWO };
        for network in [LSTM_OF_TWO, gru, projected, plain] {
            let mut spans: Vec<(usize, usize)> = Vec::new();
            for layer in 0..network.layers * network.directions {
                for number in 0..=2 * network.gates() {
                    let Some((matrix, bias)) = network.pieces(layer, number) else { continue };
                    let span = |it: Piece| (it.offset, it.offset + it.rows * it.columns);
                    spans.extend([Some(span(matrix)), bias.map(span)].into_iter().flatten());
                }
            }
            spans.sort_unstable();
            assert_eq!((spans[0].0, spans.last().unwrap().1), (0, network.weights()));
            assert!(spans.windows(2).all(|it| it[0].1 == it[1].0), "{spans:?}");
        }
    }

    #[test]
    fn the_weights_are_as_many_as_pytorch_has_parameters() {
        // torch.nn.LSTM(10, 6, 2, bidirectional=True)
        assert_eq!(LSTM_OF_TWO.weights(), 2 * (4 * 6 * (10 + 6 + 2)) + 2 * (4 * 6 * (12 + 6 + 2)));
        assert_eq!(LSTM_OF_TWO.pieces(4, 0), None, "no such layer");
        assert_eq!(LSTM_OF_TWO.pieces(0, 8), None, "no projection");
    }

    #[test]
    fn a_pass_needs_memory_by_its_steps_and_keeps_it_by_its_layers() {
        let of = |steps| LSTM_OF_TWO.space(Sequences { steps, batch: 5 });
        assert!(of(20).0 > of(10).0 && of(20).1 == 2 * of(10).1);
        assert_eq!(of(10).1, 10 * 5 * 6 * 4 * 2 * 2 * 6);
    }
}
