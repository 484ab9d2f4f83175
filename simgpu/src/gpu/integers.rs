//! The kernels that are computed: what PyTorch does with a few whole numbers that a program copied in. It sums them,
//! takes the largest or the smallest, adds and compares.
//!
//! Programs decide by the results: the ranks of a job exchange the lengths of their objects, allocate for the longest,
//! and find each by adding up the ones before. Nothing else is computed, and nothing from numbers that a kernel may
//! have written.

use super::{
    abi::{Answer, In},
    capture,
    capture_state::Work,
    copies,
    process::{current, process},
    spans::Origin,
    watch,
};
use std::{
    collections::HashMap,
    sync::{LazyLock, PoisonError, RwLock},
};

/// Values above this are not a few.
const FEW: usize = 4096;
const VALUE: usize = size_of::<i64>();
/// The part of a reduction's argument that is searched for addresses, in words of 8 bytes.
const REACH: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Sum,
    Maximum,
    Minimum,
    /// Adds a number, or a second tensor.
    AddNumber,
    AddTensor,
    /// Compares two tensors.
    Compare,
    /// Writes one value of so many bytes everywhere, of whatever type.
    Fill(usize),
}

/// The beginning of `ReduceOp` in PyTorch's `Reduce.cuh`, for values of 64 bits.
#[repr(C)]
#[derive(Clone, Copy)]
struct Reduction {
    operator: u64,
    identity: i64,
    width: i32,
    inputs: i32,
    outputs: i32,
    step: i32,
}

/// One launch: what is read, where the result goes.
#[derive(Default)]
struct Launch {
    from: usize,
    second: Option<usize>,
    /// For an addition: the addend if there is no second tensor, and the factor of the addend.
    number: i64,
    factor: i64,
    /// For a comparison: at least, greater, at most, or less.
    order: i32,
    count: usize,
    to: usize,
}

/// The kernels by the address that they are launched by.
fn known() -> &'static RwLock<HashMap<usize, Kernel>> {
    static KNOWN: LazyLock<RwLock<HashMap<usize, Kernel>>> = LazyLock::new(RwLock::default);
    &KNOWN
}

/// The types of `FillFunctor` and the bytes of each.
const FILLS: [(&str, usize); 10] = [
    ("11FillFunctorIlE", 8),
    ("11FillFunctorIiE", 4),
    ("11FillFunctorIsE", 2),
    ("11FillFunctorIaE", 1),
    ("11FillFunctorIhE", 1),
    ("11FillFunctorIbE", 1),
    ("11FillFunctorIdE", 8),
    ("11FillFunctorIfE", 4),
    ("11FillFunctorIN3c104HalfEE", 2),
    ("11FillFunctorIN3c108BFloat16EE", 2),
];

fn kernel(name: &str) -> Option<Kernel> {
    if name.contains("29vectorized_elementwise_kernel")
        && let Some((_, width)) = FILLS.into_iter().find(|it| name.contains(it.0))
    {
        return Some(Kernel::Fill(width));
    }
    let parts: &[(&str, Kernel)] = if name.contains("13reduce_kernel") && name.contains("14func_wrapper_tIl") {
        &[
            ("11sum_functorIlll", Kernel::Sum),
            ("13MaxNanFunctorIl", Kernel::Maximum),
            ("13MinNanFunctorIl", Kernel::Minimum),
        ]
    } else if name.contains("29vectorized_elementwise_kernel") || name.contains("LoadWithoutCast") {
        &[
            ("21CUDAFunctorOnSelf_addIlE", Kernel::AddNumber),
            ("15CUDAFunctor_addIlE", Kernel::AddTensor),
            ("14CompareFunctorIlE", Kernel::Compare),
        ]
    } else {
        &[]
    };
    parts.iter().find(|(part, _)| name.contains(part)).map(|(_, it)| *it)
}

/// Notes a kernel, if it is one of these.
pub(super) fn register(address: usize, name: &str) {
    if let Some(kernel) = kernel(name) {
        known().write().unwrap_or_else(PoisonError::into_inner).insert(address, kernel);
    }
}

fn few(count: i32) -> Option<usize> {
    usize::try_from(count).ok().filter(|it| (1..=FEW).contains(it))
}

/// Reads a reduction's argument; none if it reduces more than a few values, or to more than one.
fn reduction(arguments: In<usize>) -> Option<Launch> {
    let argument = arguments.get()?;
    let beginning = In::<Reduction>::from_address(argument).get()?;
    let count = few(beginning.inputs).filter(|_| beginning.width == 8 && beginning.outputs == 1)?;
    let words = In::<usize>::from_address(argument);
    let process = process();
    // Behind what the launch's shape depends on come the addresses of the values and of the result.
    let pairs = (size_of::<Reduction>() / VALUE..REACH).map(|it| Some((words.at(it)?, words.at(it + 1)?)));
    let on_device = |(from, to): &(usize, usize)| process.ranges.on_device(*from) && process.ranges.on_device(*to);
    let (from, to) = pairs.flatten().find(on_device)?;
    Some(Launch { from, count, to, ..Launch::default() })
}

/// Reads the arguments of what is done value by value: how many, the operator with its numbers, the addresses of the
/// result and of the values.
fn elementwise(kernel: Kernel, arguments: In<usize>) -> Option<Launch> {
    let count = few(In::<i32>::from_address(arguments.get()?).get()?)?;
    let numbers = In::<i64>::from_address(arguments.at(1)?);
    let addresses = In::<usize>::from_address(arguments.at(2)?);
    let (to, from) = (addresses.get()?, addresses.at(1)?);
    let launch = Launch { from, count, to, ..Launch::default() };
    Some(match kernel {
        Kernel::AddNumber => Launch { number: numbers.get()?, factor: numbers.at(1)?, ..launch },
        Kernel::AddTensor => Launch { second: Some(addresses.at(2)?), factor: numbers.get()?, ..launch },
        _ => Launch { second: Some(addresses.at(2)?), order: In::from_address(numbers.address()).get()?, ..launch },
    })
}

/// Values that were copied in, and where they come from.
fn values(at: usize, count: usize) -> Option<(Vec<i64>, Origin)> {
    let (bytes, origin) = copies::collect(at, count * VALUE);
    let values = bytes?.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it)).collect();
    (origin > Origin::Computed).then_some((values, origin))
}

/// Reads a filling's arguments: the value's bytes, how many values, the address.
fn filling(width: usize, arguments: In<usize>) -> Option<(Vec<u8>, usize, usize)> {
    let count = usize::try_from(In::<i32>::from_address(arguments.get()?).get()?).ok()?;
    let value = In::<u8>::from_address(arguments.at(1)?);
    let value = (0..width).map(|at| value.at(at)).collect::<Option<Vec<u8>>>()?;
    let to = In::<usize>::from_address(arguments.at(2)?).get()?;
    process().ranges.on_device(to).then_some((value, count, to))
}

/// Fills memory with a value. No other memory is written, so that what was copied elsewhere stays known.
fn fill(value: &[u8], count: usize, to: usize) {
    if count <= FEW {
        copies::deliver(to, count * value.len(), Some(&value.repeat(count)), Origin::Copied);
    } else {
        process().copies.written(to, count * value.len(), Origin::Computed);
    }
}

impl Launch {
    /// Returns the result's bytes, and where they come from; `None` if the operands are unknown.
    fn result(&self, kernel: Kernel) -> Option<(Vec<u8>, Origin)> {
        let (values, origin) = values(self.from, self.count)?;
        let number = || Some((vec![self.number; self.count], Origin::Copied));
        let (others, other) = self.second.map_or_else(number, |at| self::values(at, self.count))?;
        let origin = origin.min(other);
        let pairs = values.iter().copied().zip(others);
        let results: Vec<i64> = match kernel {
            Kernel::Sum => values.into_iter().reduce(i64::wrapping_add).into_iter().collect(),
            Kernel::Maximum => values.into_iter().max().into_iter().collect(),
            Kernel::Minimum => values.into_iter().min().into_iter().collect(),
            Kernel::AddNumber | Kernel::AddTensor => {
                pairs.map(|(it, other)| it.wrapping_add(other.wrapping_mul(self.factor))).collect()
            }
            Kernel::Fill(_) => return None,
            Kernel::Compare => {
                let bytes: Option<_> = pairs.map(|(it, other)| compare(self.order, it, other)).collect();
                return Some((bytes?, origin));
            }
        };
        Some((results.into_iter().flat_map(i64::to_le_bytes).collect(), origin))
    }

    fn perform(&self, kernel: Kernel, stream: usize, device: usize) {
        match self.result(kernel) {
            Some((bytes, origin)) => copies::deliver(self.to, bytes.len(), Some(&bytes), origin),
            None => process().copies.launched(),
        }
        // A stream that is gone by now has nothing to do.
        let _ = process().queues.work(stream, device);
    }
}

fn compare(order: i32, one: i64, other: i64) -> Option<u8> {
    Some(u8::from(match order {
        0 => one >= other,
        1 => one > other,
        2 => one <= other,
        3 => one < other,
        _ => return None,
    }))
}

/// Has one of these kernels done; none if it is another one.
pub(super) fn launch(address: usize, arguments: usize, stream: usize) -> Option<Answer> {
    let kernel = *known().read().unwrap_or_else(PoisonError::into_inner).get(&address)?;
    watch::launched();
    let arguments = In::from_address(arguments);
    let device = current();
    if let Kernel::Fill(width) = kernel {
        let (value, count, to) = filling(width, arguments)?;
        return Some(capture::submit(
            stream,
            Work::act(move || {
                fill(&value, count, to);
                let _ = process().queues.work(stream, device);
            }),
        ));
    }
    let launch = match kernel {
        Kernel::Sum | Kernel::Maximum | Kernel::Minimum => reduction(arguments),
        _ => elementwise(kernel, arguments),
    }?;
    Some(capture::submit(stream, Work::act(move || launch.perform(kernel, stream, device))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_of_whole_numbers_of_64_bits_are_computed() {
        let reduce = |of: &str| kernel(&format!("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpI{of}EEvT1_"));
        let sum = "lNS0_14func_wrapper_tIlZNS0_11sum_functorIlllEclERNS_14TensorIteratorEEUlllE_EEjlLi4ELi4EE";
        assert_eq!(reduce(sum), Some(Kernel::Sum));
        assert_eq!(reduce("lNS0_14func_wrapper_tIlNS0_13MaxNanFunctorIlEEEEjlLi4ELi4EE"), Some(Kernel::Maximum));
        assert_eq!(reduce("fNS0_14func_wrapper_tIfNS0_13MaxNanFunctorIfEEEEjfLi4ELi4EE"), None);
        let each = |of: &str| {
            kernel(&format!("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_{of}ESt5arrayIPcLm2EEEEviT0_T1_"))
        };
        assert_eq!(each("21CUDAFunctorOnSelf_addIlE"), Some(Kernel::AddNumber));
        assert_eq!(each("15CUDAFunctor_addIlE"), Some(Kernel::AddTensor));
        assert_eq!(
            each("50_GLOBAL__N__30bf7ff7_17_CompareKernels_cu_8f1b29aa14CompareFunctorIlE"),
            Some(Kernel::Compare)
        );
        assert_eq!(each("15CUDAFunctor_addIfE"), None);
        assert_eq!(
            [each("11FillFunctorIlE"), each("11FillFunctorIN3c108BFloat16EE")],
            [8, 2].map(|it| Some(Kernel::Fill(it)))
        );
        assert_eq!(kernel("_ZN2at6native14vectorized_layer_norm_kernel"), None);
    }
}
