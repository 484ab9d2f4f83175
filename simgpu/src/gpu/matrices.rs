//! cuSPARSELt: how large a matrix of which half the values are zero is when it is compressed. cuBLAS: the dot product,
//! whose result's width depends on an argument. Stubs simulate everything else.

use super::{
    abi::{In, Out},
    capture,
    capture_state::Work,
    copies,
    stubs::worked,
};

const INVALID_VALUE: i32 = 3;
const EXECUTION_FAILED: i32 = 6;

/// The beginning of the caller's buffer for a matrix descriptor; only this module writes and reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Shape {
    rows: i64,
    columns: i64,
    /// Bytes of a value.
    width: i64,
}

impl Shape {
    /// Half of the values, and two bits for each with its former position.
    fn compressed(self) -> Option<usize> {
        let values = usize::try_from(self.rows.checked_mul(self.columns)?).ok()? / 2;
        Some(values.checked_mul(usize::try_from(self.width).ok()?)? + values.div_ceil(4))
    }
}

/// Bytes of a value of a `cudaDataType`.
const fn width(kind: i32) -> i64 {
    match kind {
        0 => 4,
        2 | 14 => 2,
        _ => 1,
    }
}

entry_points! {
    fn cusparseLtStructuredDescriptorInit(
        _handle: usize, out: Out<Shape>, rows: i64, columns: i64, _stride: i64, _alignment: u32, kind: i32, _order: i32,
        _sparsity: i32,
    ) -> i32 {
        out.put(Shape { rows, columns, width: width(kind) });
        0
    }

    fn cusparseLtSpMMACompressedSize2(
        _handle: usize, matrix: In<Shape>, size: Out<usize>, buffer: Out<usize>,
    ) -> i32 {
        let Some(bytes) = matrix.get().and_then(Shape::compressed) else { return INVALID_VALUE };
        size.put(bytes);
        buffer.put(0);
        0
    }

    fn cusparseLtMatmul(
        _handle: usize, _plan: usize, _alpha: usize, _a: usize, _b: usize, _beta: usize, _c: usize, _d: usize,
        _workspace: usize, streams: In<usize>, count: i32,
    ) -> i32 {
        let stream = streams.get().filter(|_| count > 0).unwrap_or(0);
        capture::submit(stream, Work::Kernel).map_or(EXECUTION_FAILED, |()| 0)
    }

    // As a matmul, once for each algorithm that there is: one.
    fn cusparseLtMatmulSearch(
        handle: usize, plan: usize, alpha: usize, a: usize, b: usize, beta: usize, c: usize, d: usize,
        workspace: usize, streams: In<usize>, count: i32,
    ) -> i32 {
        cusparseLtMatmul(handle, plan, alpha, a, b, beta, c, d, workspace, streams, count)
    }
}

/// Bytes of one value of a `cudaDataType`; nothing for types that a dot product cannot have.
fn dot_width(kind: i32) -> usize {
    match kind {
        2 | 14 => 2,
        0 | 6 | 15 => 4,
        1 | 4 => 8,
        5 => 16,
        _ => 0,
    }
}

entry_points! {
    fn cublasDotEx(
        handle: usize, _n: i32, _x: usize, _x_kind: i32, _x_stride: i32, _y: usize, _y_kind: i32, _y_stride: i32,
        result: usize, kind: i32, _computed: i32,
    ) -> i32 {
        worked(handle);
        if result != 0 {
            copies::fill(result, 0, dot_width(kind));
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_matrix_takes_nine_sixteenths_of_a_half_precision_one() {
        assert_eq!(Shape { rows: 128, columns: 64, width: 2 }.compressed(), Some(128 * 64 * 2 * 9 / 16));
        assert_eq!(Shape { rows: -1, columns: 64, width: 2 }.compressed(), None);
    }
}
