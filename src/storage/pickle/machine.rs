//! The pickle machine: one opcode after the other, a stack, marks on it and a memo. It is not recursive, so that
//! nesting may have any depth.

use super::{
    Reading,
    fault::Fault,
    input::Input,
    lists,
    memo::Memo,
    opcode as op,
    rows::{self, Rows},
    value::{Kept, NOWHERE, Slot, Value},
    words,
};

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
        words::begin(&mut rows.trace.stacks.texts);
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
                op::BINGET => {
                    let [at] = self.input.take()?;
                    self.get(Slot::from(at))?;
                }
                op::LONG_BINGET => {
                    let at = u32::from_le_bytes(self.input.take()?);
                    self.get(at)?;
                }
                op::MARK => {
                    if self.marks.len() > self.room {
                        self.more_room()?;
                    }
                    self.marks.push(self.stack.len());
                }
                op::MEMOIZE => self.put(self.memo.next())?,
                op::BINPUT => {
                    let [at] = self.input.take()?;
                    self.put(Slot::from(at))?;
                }
                op::LONG_BINPUT => {
                    let at = u32::from_le_bytes(self.input.take()?);
                    self.put(at)?;
                }
                op::EMPTY_LIST => self.push(Value::Fresh(NOWHERE, Kept::List))?,
                op::EMPTY_DICT => self.push(Value::Fresh(NOWHERE, Kept::Dict))?,
                op::APPENDS => {
                    let mark = self.mark()?;
                    self.append(mark)?;
                }
                op::APPEND => self.append(self.stack.len().saturating_sub(1))?,
                op::SETITEMS => {
                    let mark = self.mark()?;
                    self.set_items(mark)?;
                }
                op::SETITEM => self.set_items(self.stack.len().saturating_sub(2))?,
                op::TUPLE1 => self.tuple(1)?,
                op::TUPLE2 => self.tuple(2)?,
                op::TUPLE3 => self.tuple(3)?,
                op::EMPTY_TUPLE => self.tuple(0)?,
                op::TUPLE => {
                    let mark = self.mark()?;
                    self.tuple(self.stack.len() - mark)?;
                }
                op::PROTO => {
                    let [version] = self.input.take()?;
                    if !(2..=5).contains(&version) {
                        return Err(self.damaged(format!("protocol {version}, and protocols 2 to 5 are read")));
                    }
                }
                op::FRAME => drop(self.input.take::<8>()?),
                op::STOP => return Ok(self.stop()),
                _ => self.scalar(opcode)?,
            }
        }
    }

    fn scalar(&mut self, opcode: u8) -> Result<(), Fault> {
        let value = match opcode {
            op::NONE => Value::Kept(Kept::None),
            op::NEWTRUE => Value::Kept(Kept::Bool(true)),
            op::NEWFALSE => Value::Kept(Kept::Bool(false)),
            op::BININT1 => Value::Int(i64::from(self.input.take::<1>()?[0])),
            op::BININT2 => Value::Int(i64::from(u16::from_le_bytes(self.input.take()?))),
            op::BININT => Value::Int(i64::from(i32::from_le_bytes(self.input.take()?))),
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.input.take()?)),
            op::LONG1 => {
                let [count] = self.input.take()?;
                self.input.take_long(u64::from(count), long)?
            }
            op::LONG4 => {
                let count = self.length(4)?;
                self.input.take_long(count, long)?
            }
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => self.text(1)?,
            op::BINUNICODE | op::BINSTRING => self.text(4)?,
            op::BINUNICODE8 => self.text(8)?,
            op::SHORT_BINBYTES => self.bytes(1)?,
            op::BINBYTES => self.bytes(4)?,
            op::BINBYTES8 => self.bytes(8)?,
            other => {
                return Err(op::code(other)
                    .map_or_else(|| self.damaged(op::foreign(other)), |name| Fault::Code { at: self.at, name }));
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
            Some([Value::Int(a), Value::Int(b)]) => lists::pair(*a, *b, &mut self.rows.trace),
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
