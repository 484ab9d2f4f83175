//! Which requests of the ranks belong together, and what each rank gets from them.

use super::{
    numbers::reduce,
    wire::{Answer, Kind, Parcel, Request},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// `ncclInvalidUsage`
const INVALID_USAGE: i32 = 5;
/// `ncclRemoteError`
const REMOTE_ERROR: i32 = 6;

/// The pending requests of a communicator's ranks.
pub(super) struct Matching {
    /// Each rank's collectives, which come in the same order everywhere.
    collectives: Vec<VecDeque<Request>>,
    /// Pending sends and receives, by sender and receiver.
    sent: BTreeMap<(usize, usize), VecDeque<Parcel>>,
    awaited: BTreeMap<(usize, usize), VecDeque<u64>>,
    /// The ranks that have left or died.
    gone: BTreeSet<usize>,
    /// The ranks that leave as soon as their sends have arrived.
    leaving: BTreeMap<usize, u64>,
}

/// Answers, each with the rank that gets it.
type Answers = Vec<(usize, Answer)>;

impl Matching {
    pub(super) fn new(ranks: usize) -> Self {
        Self {
            collectives: (0..ranks).map(|_| VecDeque::new()).collect(),
            sent: BTreeMap::new(),
            awaited: BTreeMap::new(),
            gone: BTreeSet::new(),
            leaving: BTreeMap::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.gone.len() == self.collectives.len()
    }

    /// A rank asks for something; gives what can be answered now.
    pub(super) fn receive(&mut self, rank: usize, request: Request) -> Answers {
        match request.kind {
            Kind::Join => {}
            Kind::Leave => {
                self.leaving.insert(rank, request.ticket);
            }
            Kind::Send => self.sent.entry((rank, request.root)).or_default().push_back(request.parcel),
            Kind::Receive => self.awaited.entry((request.root, rank)).or_default().push_back(request.ticket),
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
        while self.collectives.iter().all(|it| !it.is_empty()) {
            let requests: Vec<Request> = self.collectives.iter_mut().filter_map(VecDeque::pop_front).collect();
            answers.extend(outcome(&requests).into_iter().enumerate());
        }
        for (&(from, to), tickets) in &mut self.awaited {
            while let Some(ticket) = tickets.front().copied() {
                let parcel = self.sent.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                let status = match parcel {
                    Some(_) => 0,
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
            self.sent.iter().all(|((from, to), it)| *from != rank || it.is_empty() || self.gone.contains(to))
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

/// Returns each rank's result of a collective, from the input of all ranks.
fn outcome(requests: &[Request]) -> Vec<Answer> {
    let Some(first) = requests.first() else { return Vec::new() };
    let same = requests.iter().all(|it| (it.kind, it.root, it.data) == (first.kind, first.root, first.data));
    let ranks = requests.len();
    let root = requests.get(first.root).map(|it| &it.parcel);
    let fresh = requests.iter().all(|it| it.parcel.fresh);
    let bytes: Option<Vec<&[u8]>> = requests.iter().map(|it| it.parcel.bytes.as_deref()).collect();
    let part =
        |bytes: &[u8], rank: usize| bytes.chunks(bytes.len().div_ceil(ranks).max(1)).nth(rank).map(<[u8]>::to_vec);
    let reduced = || {
        let parts: Vec<(&[u8], f64)> =
            bytes.as_ref()?.iter().copied().zip(requests.iter().map(|it| it.factor)).collect();
        reduce(first.data, first.reduction, &parts)
    };
    let shared = match first.kind {
        Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => reduced(),
        Kind::AllGather | Kind::Gather => bytes.as_ref().map(|it| it.concat()),
        Kind::Broadcast | Kind::Scatter => root.and_then(|it| it.bytes.clone()),
        _ => None,
    };
    let get = |rank: usize| match first.kind {
        Kind::Reduce | Kind::Gather if rank != first.root => None,
        Kind::ReduceScatter | Kind::Scatter => shared.as_deref().and_then(|it| part(it, rank)),
        Kind::AllToAll => bytes.as_ref().map(|it| it.iter().filter_map(|sent| part(sent, rank)).flatten().collect()),
        _ => shared.clone(),
    };
    let rooted = matches!(first.kind, Kind::Broadcast | Kind::Scatter);
    let fresh = if rooted { root.is_some_and(|it| it.fresh) } else { fresh };
    let answer = |(rank, request): (usize, &Request)| {
        if !same {
            return failed(request.ticket, INVALID_USAGE);
        }
        Answer { ticket: request.ticket, status: 0, parcel: Parcel { bytes: get(rank), fresh } }
    };
    requests.iter().enumerate().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, root: usize, bytes: Option<&[u8]>) -> Request {
        let parcel = Parcel { bytes: bytes.map(<[u8]>::to_vec), fresh: true };
        Request { kind, ticket: 1, data: 1, reduction: 0, factor: 1.0, root, parcel }
    }

    /// Returns the result of two ranks with the same request.
    fn both(kind: Kind, root: usize, first: &[u8], second: &[u8]) -> [Option<Vec<u8>>; 2] {
        let mut matching = Matching::new(2);
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
        let mut matching = Matching::new(2);
        assert!(matching.receive(0, request(Kind::AllReduce, 0, None)).is_empty());
        let answers = matching.receive(1, request(Kind::AllReduce, 0, Some(&[1])));
        assert!(answers.iter().all(|(_, it)| it.status == 0 && it.parcel.bytes.is_none()), "{answers:?}");
    }

    #[test]
    fn ranks_that_ask_for_different_things_are_refused() {
        let mut matching = Matching::new(2);
        matching.receive(0, request(Kind::AllReduce, 0, Some(&[1])));
        let answers = matching.receive(1, request(Kind::Broadcast, 0, Some(&[1])));
        assert!(answers.iter().map(|it| it.1.status).eq([INVALID_USAGE; 2]));
    }

    #[test]
    fn a_send_waits_for_its_receiver_and_the_sender_leaves_after() {
        let mut matching = Matching::new(2);
        assert!(matching.receive(0, request(Kind::Send, 1, Some(&[5]))).is_empty());
        assert!(matching.receive(0, request(Kind::Leave, 0, None)).is_empty(), "it has not arrived");
        let answers = matching.receive(1, request(Kind::Receive, 0, None));
        assert!(answers.iter().map(|it| it.0).eq([1, 0]), "{answers:?}");
        assert_eq!(answers[0].1.parcel.bytes.as_deref(), Some([5].as_slice()));
    }

    #[test]
    fn nobody_waits_for_a_rank_that_is_gone() {
        let mut matching = Matching::new(3);
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
}
