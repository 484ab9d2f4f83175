//! The protocol between a rank and its communicator's hub over a Unix socket: frames of a header and bytes.

use super::super::spans::Origin;
use std::io::{self, Read, Write};

/// A frame with more bytes is invalid.
const LARGEST: usize = 1 << 30;
const WORDS: usize = 9;
/// Replaces a length if no bytes are carried, because they were too many to be computed.
const ABSENT: u64 = u64::MAX;

/// The requests of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Joins: `root` is the rank, `count` how many there are.
    Join,
    /// Leaves, once everything it sent has arrived.
    Leave,
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    Send,
    Receive,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Join,
        Self::Leave,
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Send,
        Self::Receive,
    ];
}

/// Bytes that travel, if they are few enough to be carried, and where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parcel {
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) origin: Origin,
}

impl Parcel {
    /// The same as what an absent rank is taken to send.
    pub(super) fn assumed(self) -> Self {
        Self { origin: self.origin.min(Origin::Assumed), ..self }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// Names the request in its answer.
    pub(super) ticket: u64,
    /// `ncclDataType_t`, `ncclRedOp_t`
    pub(super) data: i32,
    pub(super) reduction: i32,
    /// The factor that a reduction first applies to this rank's values.
    pub(super) factor: f64,
    /// The root, or the other rank of a send or receive.
    pub(super) root: usize,
    /// Bytes of a block, also of what is not carried.
    pub(super) len: u64,
    pub(super) parcel: Parcel,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) ticket: u64,
    /// `ncclResult_t`
    pub(super) status: i32,
    pub(super) parcel: Parcel,
}

impl Request {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let kind = Kind::ALL.iter().position(|it| *it == self.kind).unwrap_or(0);
        let head = [
            kind as u64,
            self.ticket,
            u64::from(self.data.cast_unsigned()),
            u64::from(self.reduction.cast_unsigned()),
            self.factor.to_bits(),
            self.root as u64,
            self.len,
        ];
        write(to, &head, &self.parcel)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let (head, parcel) = read(from)?;
        let number = |word: u64| i32::try_from(word).or(Err(wrong()));
        let kind = usize::try_from(head[0]).ok().and_then(|it| Kind::ALL.get(it));
        Ok(Self {
            kind: *kind.ok_or_else(wrong)?,
            ticket: head[1],
            data: number(head[2])?,
            reduction: number(head[3])?,
            factor: f64::from_bits(head[4]),
            root: usize::try_from(head[5]).or(Err(wrong()))?,
            len: head[6],
            parcel,
        })
    }
}

impl Answer {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        write(to, &[self.ticket, u64::from(self.status.cast_unsigned())], &self.parcel)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let (head, parcel) = read(from)?;
        Ok(Self { ticket: head[0], status: i32::try_from(head[1]).or(Err(wrong()))?, parcel })
    }
}

fn wrong() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn write(to: &mut impl Write, head: &[u64], parcel: &Parcel) -> io::Result<()> {
    let mut words = [0; WORDS];
    words[..head.len()].copy_from_slice(head);
    words[WORDS - 2] = parcel.origin as u64;
    words[WORDS - 1] = parcel.bytes.as_ref().map_or(ABSENT, |it| it.len() as u64);
    to.write_all(words.map(u64::to_le_bytes).as_flattened())?;
    parcel.bytes.as_ref().map_or(Ok(()), |it| to.write_all(it))
}

fn read(from: &mut impl Read) -> io::Result<([u64; WORDS], Parcel)> {
    let mut bytes = [[0; 8]; WORDS];
    from.read_exact(bytes.as_flattened_mut())?;
    let words = bytes.map(u64::from_le_bytes);
    let origins = [Origin::Computed, Origin::Assumed, Origin::Copied];
    let origin = origins.into_iter().find(|it| *it as u64 == words[WORDS - 2]).ok_or_else(wrong)?;
    let mut parcel = Parcel { bytes: None, origin };
    if words[WORDS - 1] != ABSENT {
        let len = usize::try_from(words[WORDS - 1]).ok().filter(|it| *it <= LARGEST).ok_or_else(wrong)?;
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes)?;
        parcel.bytes = Some(bytes);
    }
    Ok((words, parcel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_request_reads_back() {
        for bytes in [None, Some(vec![]), Some(vec![1, 2, 3])] {
            let parcel = Parcel { bytes, origin: Origin::Assumed };
            let request = Request {
                kind: Kind::Receive,
                ticket: 7,
                data: 9,
                reduction: 4,
                factor: 0.25,
                root: 3,
                len: 5,
                parcel: parcel.clone(),
            };
            let mut line = Vec::new();
            request.write(&mut line).unwrap();
            assert_eq!(Request::read(&mut line.as_slice()).unwrap(), request);
            assert!(Request::read(&mut &line[..line.len() - 1]).is_err(), "cut off");
            let answer = Answer { ticket: 7, status: 6, parcel };
            let mut line = Vec::new();
            answer.write(&mut line).unwrap();
            assert_eq!(Answer::read(&mut line.as_slice()).unwrap(), answer);
        }
        let mut line = vec![0xff; WORDS * 8];
        assert!(Request::read(&mut line.as_slice()).is_err(), "no such kind");
        line[..64].fill(0);
        line[64..].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        assert!(Request::read(&mut line.as_slice()).is_err(), "too long");
    }
}
