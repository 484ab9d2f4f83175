//! The opcodes that a snapshot may hold, and the names of all others.

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
