//! Which requests of the ranks belong together, and what each rank gets from them.
//!
//! Ranks may be absent: they are of the communicator, but do not run. A collective then ends when the present ranks
//! have called it, and an absent rank brings what the present rank below it brings, or the first one; to a rank that
//! receives from it, it sends what that one sent to it. So what is gathered decodes, counts add up and votes agree.

use super::{
    super::{copies::STORED, spans::Origin},
    numbers::{Input, reduce},
    wire::{Answer, Kind, Parcel, Request},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is kept of what each rank sends to each absent one.
const KEPT: usize = 16;
/// `ncclInvalidUsage`
const INVALID_USAGE: i32 = 5;
/// `ncclRemoteError`
const REMOTE_ERROR: i32 = 6;

/// The pending requests of a communicator's ranks.
pub(super) struct Matching {
    /// Each rank's collectives, which come in the same order everywhere.
    collectives: Vec<VecDeque<Request>>,
    /// Pending sends with their lengths, and receives with their tickets, by sender and receiver.
    sent: BTreeMap<(usize, usize), VecDeque<(u64, Parcel)>>,
    awaited: BTreeMap<(usize, usize), VecDeque<(u64, u64)>>,
    /// The ranks that do not run.
    absent: BTreeSet<usize>,
    /// The ranks that have left or died.
    gone: BTreeSet<usize>,
    /// The ranks that leave as soon as their sends have arrived.
    leaving: BTreeMap<usize, u64>,
}

/// Answers, each with the rank that gets it.
type Answers = Vec<(usize, Answer)>;

impl Matching {
    pub(super) fn new(ranks: usize, absent: BTreeSet<usize>) -> Self {
        Self {
            absent,
            collectives: (0..ranks).map(|_| VecDeque::new()).collect(),
            sent: BTreeMap::new(),
            awaited: BTreeMap::new(),
            gone: BTreeSet::new(),
            leaving: BTreeMap::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.gone.len() + self.absent.len() >= self.collectives.len()
    }

    /// A rank asks for something; gives what can be answered now.
    pub(super) fn receive(&mut self, rank: usize, request: Request) -> Answers {
        match request.kind {
            Kind::Join => {}
            Kind::Leave => {
                self.leaving.insert(rank, request.ticket);
            }
            Kind::Send => {
                let sent = self.sent.entry((rank, request.root)).or_default();
                // Nobody receives what an absent rank is sent.
                if self.absent.contains(&request.root) && sent.len() >= KEPT {
                    sent.pop_front();
                }
                sent.push_back((request.len, request.parcel));
            }
            Kind::Receive => {
                let awaited = self.awaited.entry((request.root, rank)).or_default();
                awaited.push_back((request.len, request.ticket));
            }
            _ => self.collectives[rank].push_back(request),
        }
        self.settle()
    }

    /// A rank is gone: what needs it fails.
    pub(super) fn left(&mut self, rank: usize) -> Answers {
        self.gone.insert(rank);
        self.collectives[rank].clear();
        self.settle()
    }

    fn settle(&mut self) -> Answers {
        let mut answers = Vec::new();
        let ranks = self.collectives.len();
        let is_present = |rank: &usize| !self.absent.contains(rank);
        while (0..ranks).filter(is_present).all(|it| !self.collectives[it].is_empty()) {
            let all = self.collectives.iter_mut().enumerate();
            let requests: Vec<_> = all.filter_map(|(rank, it)| Some((rank, it.pop_front()?))).collect();
            if requests.is_empty() {
                break;
            }
            answers.extend(outcome(&requests, ranks));
        }
        for (&(from, to), tickets) in &mut self.awaited {
            while let Some((len, ticket)) = tickets.front().copied() {
                let parcel = if self.absent.contains(&from) {
                    // An absent rank sends back what it is sent; what has another length was something else.
                    self.sent.get_mut(&(to, from)).and_then(|it| {
                        let at = it.iter().position(|sent| sent.0 == len)?;
                        it.drain(..=at).next_back()
                    })
                } else {
                    self.sent.get_mut(&(from, to)).and_then(VecDeque::pop_front)
                };
                let parcel = parcel.map(|it| if self.absent.contains(&from) { it.1.assumed() } else { it.1 });
                let status = match parcel {
                    Some(_) => 0,
                    None if self.absent.contains(&from) => 0,
                    None if self.gone.contains(&from) || from >= self.collectives.len() => REMOTE_ERROR,
                    None => break,
                };
                tickets.pop_front();
                answers.push((to, Answer { ticket, status, parcel: parcel.unwrap_or_default() }));
            }
        }
        if !self.gone.is_empty() {
            for (rank, requests) in self.collectives.iter_mut().enumerate() {
                answers.extend(requests.drain(..).map(|it| (rank, failed(it.ticket, REMOTE_ERROR))));
            }
        }
        let arrived = |rank: usize| {
            let needs_none = |to: &usize| self.gone.contains(to) || self.absent.contains(to);
            self.sent.iter().all(|((from, to), it)| *from != rank || it.is_empty() || needs_none(to))
        };
        for rank in self.leaving.keys().copied().filter(|it| arrived(*it)).collect::<Vec<_>>() {
            answers.extend(self.leaving.remove(&rank).map(|it| (rank, failed(it, 0))));
        }
        answers
    }
}

fn failed(ticket: u64, status: i32) -> Answer {
    Answer { ticket, status, parcel: Parcel::default() }
}

/// What all ranks bring to a collective, from the requests of the present ones.
struct Brought<'a> {
    /// By rank.
    present: &'a [(usize, Request)],
    ranks: usize,
}

impl<'a> Brought<'a> {
    /// Returns what a rank brings.
    fn of(&self, rank: usize) -> &'a Request {
        let below = self.present.partition_point(|it| it.0 <= rank);
        &self.present[below.saturating_sub(1)].1
    }

    fn is_whole(&self) -> bool {
        self.present.len() == self.ranks
    }

    /// Returns the request of a present rank.
    fn present(&self, rank: usize) -> Option<&'a Request> {
        self.present.iter().find(|it| it.0 == rank).map(|it| &it.1)
    }

    fn reduced(&self) -> Option<Vec<u8>> {
        let first = &self.present[0].1;
        let inputs = self.present.iter().enumerate().map(|(at, (rank, it))| {
            let next = self.present.get(at + 1).map_or(self.ranks, |(next, _)| *next);
            let times = next - if at == 0 { 0 } else { *rank };
            let times = u32::try_from(times).ok()?;
            Some(Input { bytes: it.parcel.bytes.as_deref()?, factor: it.factor, times })
        });
        reduce(first.data, first.reduction, &inputs.collect::<Option<Vec<_>>>()?)
    }

    fn gathered(&self) -> Option<Vec<u8>> {
        let all: Vec<&[u8]> = (0..self.ranks).map(|it| self.of(it).parcel.bytes.as_deref()).collect::<Option<_>>()?;
        let len: usize = all.iter().map(|it| it.len()).sum();
        // Absent ranks may be very many.
        (self.is_whole() || len <= STORED).then(|| all.concat())
    }

    /// Returns the part of a rank of what another one brings.
    fn part(&self, bytes: &[u8], rank: usize) -> Option<Vec<u8>> {
        bytes.chunks(bytes.len().div_ceil(self.ranks).max(1)).nth(rank).map(<[u8]>::to_vec)
    }

    /// Returns what a rank gets from every other one.
    fn exchanged(&self, rank: usize) -> Option<Vec<u8>> {
        let part = |from: usize| self.part(self.of(from).parcel.bytes.as_deref()?, rank);
        (0..self.ranks).map(part).collect::<Option<Vec<_>>>().map(|it| it.concat())
    }

    /// Returns where a result comes from: what a root brings, or all ranks.
    fn origin(&self, root: Option<usize>) -> Origin {
        let (sent, is_whole) = match root {
            Some(root) => (self.of(root).parcel.origin, self.present(root).is_some()),
            None => (self.present.iter().map(|it| it.1.parcel.origin).min().unwrap_or_default(), self.is_whole()),
        };
        if is_whole { sent } else { sent.min(Origin::Assumed) }
    }
}

/// Returns each present rank's result of a collective of so many ranks, from the input of those.
fn outcome(requests: &[(usize, Request)], ranks: usize) -> Answers {
    let Some((_, first)) = requests.first() else { return Answers::new() };
    let brought = Brought { present: requests, ranks };
    let same = requests.iter().all(|(_, it)| (it.kind, it.root, it.data) == (first.kind, first.root, first.data));
    let shared = match first.kind {
        Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => brought.reduced(),
        Kind::AllGather | Kind::Gather => brought.gathered(),
        Kind::Broadcast | Kind::Scatter => brought.of(first.root).parcel.bytes.clone(),
        _ => None,
    };
    let get = |rank: usize| match first.kind {
        Kind::Reduce | Kind::Gather if rank != first.root => None,
        Kind::ReduceScatter | Kind::Scatter => shared.as_deref().and_then(|it| brought.part(it, rank)),
        Kind::AllToAll => brought.exchanged(rank),
        _ => shared.clone(),
    };
    let rooted = matches!(first.kind, Kind::Broadcast | Kind::Scatter);
    let origin = brought.origin(rooted.then_some(first.root));
    let answer = |(rank, request): &(usize, Request)| {
        let ticket = request.ticket;
        let answer = if same {
            Answer { ticket, status: 0, parcel: Parcel { bytes: get(*rank), origin } }
        } else {
            failed(ticket, INVALID_USAGE)
        };
        (*rank, answer)
    };
    requests.iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, root: usize, bytes: Option<&[u8]>) -> Request {
        let parcel = Parcel { bytes: bytes.map(<[u8]>::to_vec), origin: Origin::Copied };
        let len = bytes.map_or(1, <[u8]>::len) as u64;
        Request { kind, ticket: 1, data: 1, reduction: 0, factor: 1.0, root, len, parcel }
    }

    /// Returns the result of two ranks with the same request.
    fn both(kind: Kind, root: usize, first: &[u8], second: &[u8]) -> [Option<Vec<u8>>; 2] {
        let mut matching = Matching::new(2, BTreeSet::new());
        assert!(matching.receive(1, request(kind, root, Some(second))).is_empty(), "the other is missing");
        let answers = matching.receive(0, request(kind, root, Some(first)));
        assert!(answers.iter().map(|it| (it.0, it.1.status)).eq([(0, 0), (1, 0)]), "{answers:?}");
        [0, 1].map(|rank| answers[rank].1.parcel.bytes.clone())
    }

    #[test]
    fn each_collective_gives_every_rank_its_part() {
        let some = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(both(Kind::AllReduce, 0, &[1, 2], &[10, 20]), [some(&[11, 22]), some(&[11, 22])]);
        assert_eq!(both(Kind::Reduce, 1, &[1, 2], &[10, 20]), [None, some(&[11, 22])]);
        assert_eq!(both(Kind::Broadcast, 1, &[1, 2], &[10, 20]), [some(&[10, 20]), some(&[10, 20])]);
        assert_eq!(both(Kind::AllGather, 0, &[1], &[10]), [some(&[1, 10]), some(&[1, 10])]);
        assert_eq!(both(Kind::ReduceScatter, 0, &[1, 2], &[10, 20]), [some(&[11]), some(&[22])]);
        assert_eq!(both(Kind::AllToAll, 0, &[1, 2], &[10, 20]), [some(&[1, 10]), some(&[2, 20])]);
        assert_eq!(both(Kind::Gather, 0, &[1], &[10]), [some(&[1, 10]), None]);
        assert_eq!(both(Kind::Scatter, 0, &[1, 2], &[]), [some(&[1]), some(&[2])]);
    }

    #[test]
    fn a_collective_without_stored_bytes_has_no_result_and_still_ends() {
        let mut matching = Matching::new(2, BTreeSet::new());
        assert!(matching.receive(0, request(Kind::AllReduce, 0, None)).is_empty());
        let answers = matching.receive(1, request(Kind::AllReduce, 0, Some(&[1])));
        assert!(answers.iter().all(|(_, it)| it.status == 0 && it.parcel.bytes.is_none()), "{answers:?}");
    }

    #[test]
    fn ranks_that_ask_for_different_things_are_refused() {
        let mut matching = Matching::new(2, BTreeSet::new());
        matching.receive(0, request(Kind::AllReduce, 0, Some(&[1])));
        let answers = matching.receive(1, request(Kind::Broadcast, 0, Some(&[1])));
        assert!(answers.iter().map(|it| it.1.status).eq([INVALID_USAGE; 2]));
    }

    #[test]
    fn a_send_waits_for_its_receiver_and_the_sender_leaves_after() {
        let mut matching = Matching::new(2, BTreeSet::new());
        assert!(matching.receive(0, request(Kind::Send, 1, Some(&[5]))).is_empty());
        assert!(matching.receive(0, request(Kind::Leave, 0, None)).is_empty(), "it has not arrived");
        let answers = matching.receive(1, request(Kind::Receive, 0, None));
        assert!(answers.iter().map(|it| it.0).eq([1, 0]), "{answers:?}");
        assert_eq!(answers[0].1.parcel.bytes.as_deref(), Some([5].as_slice()));
    }

    #[test]
    fn nobody_waits_for_a_rank_that_is_gone() {
        let mut matching = Matching::new(3, BTreeSet::new());
        assert!(matching.receive(0, request(Kind::AllReduce, 0, Some(&[1]))).is_empty());
        assert!(matching.receive(0, request(Kind::Receive, 2, None)).is_empty());
        assert!(matching.receive(2, request(Kind::Send, 1, Some(&[9]))).is_empty());
        let answers = matching.left(2);
        assert!(answers.iter().map(|it| (it.0, it.1.status)).eq([(0, REMOTE_ERROR); 2]), "{answers:?}");
        let late = matching.receive(1, request(Kind::AllReduce, 0, Some(&[1])));
        assert!(late.iter().map(|it| (it.0, it.1.status)).eq([(1, REMOTE_ERROR)]));
        let mail = matching.receive(1, request(Kind::Receive, 2, None));
        assert_eq!(mail[0].1.parcel.bytes.as_deref(), Some([9].as_slice()), "what it sent before arrives");
        assert!(!matching.is_over());
        matching.left(0);
        matching.left(1);
        assert!(matching.is_over());
    }

    /// Returns the result of rank 1 of four, the only one that is present.
    fn alone(kind: Kind, root: usize, bytes: &[u8]) -> (Option<Vec<u8>>, Origin) {
        let mut matching = Matching::new(4, BTreeSet::from([0, 2, 3]));
        let [(1, answer)] = &matching.receive(1, request(kind, root, Some(bytes)))[..] else { panic!("one answer") };
        assert_eq!(answer.status, 0);
        (answer.parcel.bytes.clone(), answer.parcel.origin)
    }

    #[test]
    fn absent_ranks_bring_what_the_present_one_brings() {
        let assumed = |bytes: &[u8]| (Some(bytes.to_vec()), Origin::Assumed);
        assert_eq!(alone(Kind::AllReduce, 0, &[1, 2]), assumed(&[4, 8]));
        assert_eq!(alone(Kind::AllGather, 0, &[7, 8]), assumed(&[7, 8, 7, 8, 7, 8, 7, 8]));
        assert_eq!(alone(Kind::ReduceScatter, 0, &[1, 2, 3, 4]), assumed(&[8]));
        assert_eq!(alone(Kind::AllToAll, 0, &[1, 2, 3, 4]), assumed(&[2, 2, 2, 2]));
        assert_eq!(alone(Kind::Gather, 1, &[9]), assumed(&[9, 9, 9, 9]));
        assert_eq!(alone(Kind::Broadcast, 1, &[5]), (Some(vec![5]), Origin::Copied), "the root is present");
        assert_eq!(alone(Kind::Broadcast, 0, &[5]), assumed(&[5]), "the root has what this one has");
    }

    #[test]
    fn present_ranks_wait_for_each_other_and_an_absent_one_is_as_the_one_below_it() {
        let mut matching = Matching::new(4, BTreeSet::from([1, 3]));
        assert!(matching.receive(2, request(Kind::AllGather, 0, Some(&[20]))).is_empty(), "rank 0 is missing");
        let answers = matching.receive(0, request(Kind::AllGather, 0, Some(&[10])));
        assert!(answers.iter().map(|it| it.0).eq([0, 2]));
        assert_eq!(answers[0].1.parcel.bytes.as_deref(), Some([10, 10, 20, 20].as_slice()));
        assert!(matching.receive(0, request(Kind::Send, 1, Some(&[9]))).is_empty(), "nobody receives it");
        let back = matching.receive(0, request(Kind::Receive, 1, None));
        assert_eq!(back[0].1.parcel, Parcel { bytes: Some(vec![9]), origin: Origin::Assumed }, "it comes back");
        assert!(matching.receive(0, request(Kind::Send, 1, Some(&[1, 2]))).is_empty());
        assert!(matching.receive(0, request(Kind::Send, 1, Some(&[8]))).is_empty());
        let back = matching.receive(0, request(Kind::Receive, 1, None));
        assert_eq!(back[0].1.parcel.bytes, Some(vec![8]), "what has its length comes back");
        let got = matching.receive(2, request(Kind::Receive, 3, None));
        assert_eq!((got[0].1.status, got[0].1.parcel.clone()), (0, Parcel::default()), "not known");
        matching.left(0);
        matching.left(2);
        assert!(matching.is_over());
    }
}
