//! The pickle machine: one opcode after the other, a stack, marks on it and a memo. It is not recursive, so that
//! nesting may have any depth.

use super::{
    Fault, Reading,
    input::Input,
    rows::{self, Rows},
    values::{self, Kept, NOWHERE, Slot, Value},
};
use std::collections::HashMap;

/// Most bytes kept of a text; file names are shorter, the job's annotations may be longer.
const TEXT_MAX: usize = 16 << 10;

/// Values that the stack may always hold, and file bytes per further value: the longest stacks are events that wait for
/// the end of their list.
const ROOM: usize = 1 << 20;
const BYTES_A_VALUE: usize = 16;

/// Reads one pickle.
pub(super) struct Machine<'a> {
    input: Input<'a>,
    stack: Vec<Value>,
    /// Positions of marks on the stack.
    marks: Vec<usize>,
    memo: Memo,
    rows: Rows,
    /// The offset of the current opcode.
    at: u64,
    /// Most values on the stack.
    room: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(input: Input<'a>) -> Self {
        let mut rows = Rows::default();
        rows::begin(&mut rows.trace.stacks.texts);
        Self { input, stack: Vec::new(), marks: Vec::new(), memo: Memo::default(), rows, at: 0, room: 0 }
    }

    /// Reads to the end, or as far as possible.
    pub(super) fn read(mut self) -> Result<Reading, Fault> {
        let (outermost, ended) = match self.run() {
            Ok(kept) => (Some(kept), self.input.rest().err()),
            Err(fault @ (Fault::Code { .. } | Fault::Io(_))) => return Err(fault),
            Err(fault) => (self.unwind(), Some(fault)),
        };
        let bytes = self.input.offset();
        match (self.rows.finish(outermost, bytes), ended) {
            (Ok(trace), ended) => Ok(Reading { trace, bytes, ended }),
            // If nothing was read yet, the first fault is the reason, not the missing parts.
            (Err(fault), None) | (Err(_), Some(fault)) => Err(fault),
        }
    }

    fn run(&mut self) -> Result<Kept, Fault> {
        loop {
            self.at = self.input.offset();
            let [opcode] = self.input.take()?;
            match opcode {
                BINGET => {
                    let [at] = self.input.take()?;
                    self.get(Slot::from(at))?;
                }
                LONG_BINGET => {
                    let at = u32::from_le_bytes(self.input.take()?);
                    self.get(at)?;
                }
                MARK => {
                    if self.marks.len() > self.room {
                        self.more_room()?;
                    }
                    self.marks.push(self.stack.len());
                }
                MEMOIZE => self.put(self.memo.next())?,
                BINPUT => {
                    let [at] = self.input.take()?;
                    self.put(Slot::from(at))?;
                }
                LONG_BINPUT => {
                    let at = u32::from_le_bytes(self.input.take()?);
                    self.put(at)?;
                }
                EMPTY_LIST => self.push(Value::Fresh(NOWHERE, Kept::List))?,
                EMPTY_DICT => self.push(Value::Fresh(NOWHERE, Kept::Dict))?,
                APPENDS => {
                    let mark = self.mark()?;
                    self.append(mark)?;
                }
                APPEND => self.append(self.stack.len().saturating_sub(1))?,
                SETITEMS => {
                    let mark = self.mark()?;
                    self.set_items(mark)?;
                }
                SETITEM => self.set_items(self.stack.len().saturating_sub(2))?,
                TUPLE1 => self.tuple(1)?,
                TUPLE2 => self.tuple(2)?,
                TUPLE3 => self.tuple(3)?,
                EMPTY_TUPLE => self.tuple(0)?,
                TUPLE => {
                    let mark = self.mark()?;
                    self.tuple(self.stack.len() - mark)?;
                }
                PROTO => {
                    let [version] = self.input.take()?;
                    if !(2..=5).contains(&version) {
                        return Err(self.damaged(format!("protocol {version}, and protocols 2 to 5 are read")));
                    }
                }
                FRAME => drop(self.input.take::<8>()?),
                STOP => return Ok(self.stop()),
                _ => self.scalar(opcode)?,
            }
        }
    }

    fn scalar(&mut self, opcode: u8) -> Result<(), Fault> {
        let value = match opcode {
            NONE => Value::Kept(Kept::None),
            NEWTRUE => Value::Kept(Kept::Bool(true)),
            NEWFALSE => Value::Kept(Kept::Bool(false)),
            BININT1 => Value::Int(i64::from(self.input.take::<1>()?[0])),
            BININT2 => Value::Int(i64::from(u16::from_le_bytes(self.input.take()?))),
            BININT => Value::Int(i64::from(i32::from_le_bytes(self.input.take()?))),
            BINFLOAT => Value::Float(f64::from_be_bytes(self.input.take()?)),
            LONG1 => {
                let [count] = self.input.take()?;
                self.input.take_long(u64::from(count), long)?
            }
            LONG4 => {
                let count = self.length(4)?;
                self.input.take_long(count, long)?
            }
            SHORT_BINUNICODE | SHORT_BINSTRING => self.text(1)?,
            BINUNICODE | BINSTRING => self.text(4)?,
            BINUNICODE8 => self.text(8)?,
            SHORT_BINBYTES => self.bytes(1)?,
            BINBYTES => self.bytes(4)?,
            BINBYTES8 => self.bytes(8)?,
            other => {
                return Err(
                    code(other).map_or_else(|| self.damaged(foreign(other)), |name| Fault::Code { at: self.at, name })
                );
            }
        };
        self.push(value)
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Fault> {
        if self.stack.len() >= self.room {
            self.more_room()?;
        }
        self.stack.push(value);
        Ok(())
    }

    /// A single byte that adds sixteen bytes of memory must not occur too often.
    #[cold]
    fn more_room(&mut self) -> Result<(), Fault> {
        let read = usize::try_from(self.at).unwrap_or(usize::MAX);
        self.room = ROOM + read / BYTES_A_VALUE;
        if self.stack.len().max(self.marks.len()) < self.room {
            return Ok(());
        }
        Err(self.damaged(format!("the {}th object that belongs to nothing", self.room)))
    }

    /// Reads a length of this many bytes.
    fn length(&mut self, bytes: usize) -> Result<u64, Fault> {
        Ok(match bytes {
            1 => u64::from(self.input.take::<1>()?[0]),
            4 => u64::from(u32::from_le_bytes(self.input.take()?)),
            _ => u64::from_le_bytes(self.input.take()?),
        })
    }

    fn text(&mut self, bytes: usize) -> Result<Value, Fault> {
        let count = self.length(bytes)?;
        let texts = &mut self.rows.trace.stacks.texts;
        let keep = |text: &[u8]| texts.id(text.get(..TEXT_MAX).unwrap_or(text));
        Ok(Value::Kept(Kept::Text(self.input.take_long(count, keep)?)))
    }

    fn bytes(&mut self, bytes: usize) -> Result<Value, Fault> {
        let count = self.length(bytes)?;
        self.input.take_long(count, |_| Value::Kept(Kept::Opaque))
    }

    #[inline]
    fn get(&mut self, at: Slot) -> Result<(), Fault> {
        match self.memo.get(at) {
            Some(kept) => self.push(Value::Kept(kept)),
            None => Err(self.damaged(format!("object {at}, which does not come before it"))),
        }
    }

    fn put(&mut self, at: Slot) -> Result<(), Fault> {
        let kept = match self.stack.last_mut() {
            Some(Value::Fresh(slot, kept)) if *slot == NOWHERE && at != NOWHERE => {
                *slot = at;
                *kept
            }
            Some(Value::Kept(kept)) => *kept,
            Some(value @ (Value::Int(_) | Value::Large(_) | Value::Float(_))) => {
                self.rows.numbers.push(*value);
                u32::try_from(self.rows.numbers.len() - 1).map_or(Kept::Opaque, Kept::Number)
            }
            Some(Value::Fresh(..)) => return Err(self.damaged("an object with two numbers".to_owned())),
            None => return Err(self.damaged("a number for no object".to_owned())),
        };
        self.memo.set(at, kept);
        Ok(())
    }

    /// Removes the latest mark and returns its position.
    fn mark(&mut self) -> Result<usize, Fault> {
        let mark = self.marks.pop().filter(|it| *it <= self.stack.len());
        mark.ok_or_else(|| self.damaged("an end without a beginning".to_owned()))
    }

    /// Completes the items from a position on, because they are used from now on.
    #[inline]
    fn close(&mut self, from: usize) {
        let Self { stack, memo, rows, .. } = self;
        for it in stack.get_mut(from..).unwrap_or_default() {
            if let Value::Fresh(slot, kept) = *it {
                let closed = rows.lists.close(kept, &mut rows.trace);
                if slot != NOWHERE && closed != kept {
                    memo.set(slot, closed);
                }
                *it = Value::Kept(closed);
            }
        }
    }

    /// Adds the items from a position on to the value before it, if that can be extended.
    #[inline]
    fn fill(&mut self, from: usize, how: impl FnOnce(&mut Rows, Kept, &[Value]) -> Option<Kept>) -> Option<()> {
        self.close(from);
        let (head, items) = self.stack.split_at_mut_checked(from)?;
        let Some(Value::Fresh(slot, kept)) = head.last_mut() else { return None };
        *kept = how(&mut self.rows, *kept, items)?;
        if *slot != NOWHERE {
            self.memo.set(*slot, *kept);
        }
        self.stack.truncate(from);
        Some(())
    }

    fn append(&mut self, from: usize) -> Result<(), Fault> {
        let done = self.fill(from, |rows, list, items| rows.lists.extend(list, items, &mut rows.trace));
        done.ok_or_else(|| self.damaged("items for an object that is not an open list".to_owned()))
    }

    fn set_items(&mut self, from: usize) -> Result<(), Fault> {
        let done = self.fill(from, Rows::fill);
        done.ok_or_else(|| self.damaged("items for an object that is not an open dictionary".to_owned()))
    }

    fn tuple(&mut self, count: usize) -> Result<(), Fault> {
        let Some(from) = self.stack.len().checked_sub(count) else {
            return Err(self.damaged("a tuple of missing objects".to_owned()));
        };
        self.close(from);
        let kept = match self.stack.get(from..) {
            Some([Value::Int(a), Value::Int(b)]) => values::pair(*a, *b, &mut self.rows.trace),
            _ => Kept::Opaque,
        };
        self.stack.truncate(from);
        self.push(Value::Kept(kept))
    }

    fn stop(&mut self) -> Kept {
        self.close(0);
        match self.stack.last() {
            Some(Value::Kept(kept)) => *kept,
            _ => Kept::Opaque,
        }
    }

    /// Returns the result of an unfinished pickle: its open lists end here, and incomplete dictionaries are dropped.
    fn unwind(&mut self) -> Option<Kept> {
        while let Some(mark) = self.marks.pop() {
            self.close(mark);
            let items = self.stack.get(mark..).unwrap_or_default();
            let is_list = |it: &Value| matches!(it, Value::Fresh(_, Kept::List | Kept::Stack(_) | Kept::Rows(_)));
            let container = mark.checked_sub(1).and_then(|it| self.stack.get(it));
            let (is_list, is_root) = (container.is_some_and(is_list), rows::is_root(items));
            if is_list {
                // The last item may be an incomplete dictionary.
                while self.stack.len() > mark && self.stack.last() == Some(&Value::Kept(Kept::Dict)) {
                    self.stack.pop();
                }
                let _ = self.append(mark);
            } else if is_root {
                let _ = self.set_items(mark);
            }
            self.stack.truncate(mark);
        }
        self.close(0);
        match self.stack.first() {
            Some(Value::Kept(kept)) => Some(*kept),
            _ => None,
        }
    }

    #[cold]
    fn damaged(&self, what: String) -> Fault {
        Fault::Damaged { at: self.at, what }
    }
}

/// Parses a whole number of any length, two's complement, lowest byte first.
fn long(bytes: &[u8]) -> Value {
    let is_negative = bytes.last().is_some_and(|it| it & 0x80 != 0);
    let fill = if is_negative { 0xff } else { 0 };
    let mut wide = [fill; 8];
    let (low, high) = bytes.split_at(bytes.len().min(8));
    for (to, from) in wide.iter_mut().zip(low) {
        *to = *from;
    }
    let number = i64::from_le_bytes(wide);
    let fits = (number < 0) == is_negative;
    match high {
        [] => Value::Int(number),
        _ if high.iter().any(|it| *it != fill) => Value::Kept(Kept::Opaque),
        _ if fits => Value::Int(number),
        _ if is_negative => Value::Kept(Kept::Opaque),
        _ => Value::Large(number.cast_unsigned()),
    }
}

/// Picklers count from 0 on; a much larger number reserves nothing for those before it.
#[derive(Debug, Default)]
pub(super) struct Memo {
    dense: Vec<Kept>,
    sparse: HashMap<Slot, Kept>,
}

impl Memo {
    /// Returns the number of the next object, for picklers that leave it out.
    pub(super) fn next(&self) -> Slot {
        Slot::try_from(self.dense.len() + self.sparse.len()).unwrap_or(Slot::MAX)
    }

    pub(super) fn set(&mut self, at: Slot, kept: Kept) {
        let place = at as usize;
        if place == self.dense.len() {
            self.dense.push(kept);
        } else if let Some(it) = self.dense.get_mut(place) {
            *it = kept;
        } else {
            self.sparse.insert(at, kept);
        }
    }

    #[inline]
    pub(super) fn get(&self, at: Slot) -> Option<Kept> {
        self.dense.get(at as usize).copied().or_else(|| self.sparse.get(&at).copied())
    }
}

/// Declares the opcodes of plain data as constants, for use in `match`.
macro_rules! read {
    ($($name:ident = $byte:literal,)+) => {
        $(pub(super) const $name: u8 = $byte;)+
    };
}

read! {
    PROTO = 0x80,
    FRAME = 0x95,
    STOP = b'.',
    MARK = b'(',
    NONE = b'N',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    BININT = b'J',
    BININT1 = b'K',
    BININT2 = b'M',
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    BINFLOAT = b'G',
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE = b'X',
    BINUNICODE8 = 0x8d,
    SHORT_BINSTRING = b'U',
    BINSTRING = b'T',
    SHORT_BINBYTES = b'C',
    BINBYTES = b'B',
    BINBYTES8 = 0x8e,
    EMPTY_LIST = b']',
    APPEND = b'a',
    APPENDS = b'e',
    EMPTY_TUPLE = b')',
    TUPLE = b't',
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    EMPTY_DICT = b'}',
    SETITEM = b's',
    SETITEMS = b'u',
    MEMOIZE = 0x94,
    BINPUT = b'q',
    LONG_BINPUT = b'r',
    BINGET = b'h',
    LONG_BINGET = b'j',
}

/// Opcodes that import, call, or create objects.
pub(super) const CODE: [(u8, &str); 14] = [
    (b'c', "GLOBAL"),
    (0x93, "STACK_GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x97, "NEXT_BUFFER"),
];

/// Opcodes for data that no snapshot has.
const FOREIGN: [(u8, &str); 20] = [
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'F', "FLOAT"),
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'S', "STRING"),
    (b'V', "UNICODE"),
    (b'd', "DICT"),
    (b'g', "GET"),
    (b'l', "LIST"),
    (b'p', "PUT"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x96, "BYTEARRAY8"),
    (0x98, "READONLY_BUFFER"),
    (PROTO, "PROTO"),
    (FRAME, "FRAME"),
    (STOP, "STOP"),
];

/// Returns the name of an opcode that can run code.
pub(super) fn code(op: u8) -> Option<&'static str> {
    CODE.iter().find(|it| it.0 == op).map(|it| it.1)
}

/// Returns the name of an unsupported byte.
pub(super) fn foreign(op: u8) -> String {
    let name = FOREIGN.iter().find(|it| it.0 == op).map(|it| it.1);
    name.map_or_else(|| format!("{op:#04x}, which is not an opcode"), |it| format!("{it}, which no snapshot has"))
}
