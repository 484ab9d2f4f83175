//! Requests to machines and their answers, which go through the links' pipes. A machine that cannot take a request
//! answers none: its link does, with the reason.

use crate::facts::{
    remote::{Answer, Kind, Outcome, Request},
    text::Foreign,
};
use std::{future::pending, pin::pin, sync::OnceLock, time::Duration};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    select,
    sync::mpsc::{self, Receiver, Sender},
    time::sleep,
};

/// Requests that may wait for one machine, and those that it may leave unanswered; users are slower.
pub(super) const QUEUE: usize = 16;

/// The way of requests to machines, and of their answers.
#[derive(Debug)]
pub struct Requests {
    /// The machines' names, and their queues.
    nodes: Vec<(Foreign, Sender<Request>)>,
    answers: Receiver<(usize, Answer)>,
}

impl Requests {
    /// Creates the way to these machines: it, the requests to each, and where their answers go.
    pub(crate) fn channels(hosts: &[String]) -> (Self, Vec<Receiver<Request>>, Sender<(usize, Answer)>) {
        let (replies, answers) = mpsc::channel(QUEUE);
        let ends = hosts.iter().map(|host| {
            let (sender, queue) = mpsc::channel(QUEUE);
            ((Foreign::new(host.as_str()), sender), queue)
        });
        let (nodes, queues) = ends.unzip();
        (Self { nodes, answers }, queues, replies)
    }

    /// Creates the same with a desk for each link.
    pub(super) fn new(hosts: &[String]) -> (Self, Vec<Desk>) {
        let (requests, queues, replies) = Self::channels(hosts);
        let desks = queues.into_iter().zip(hosts).enumerate().map(|(node, (queue, host))| {
            let (host, replies) = (Foreign::new(host.as_str()), replies.clone());
            Desk { node, host, queue, replies, open: Vec::new() }
        });
        (requests, desks.collect())
    }

    /// Returns the name of a machine.
    pub fn host(&self, node: usize) -> String {
        self.nodes.get(node).map_or_else(String::new, |it| it.0.to_string())
    }

    /// Queues a request for a machine.
    ///
    /// # Errors
    /// Fails while the queue is full.
    pub fn send(&self, node: usize, request: Request) -> Result<(), String> {
        let Some((host, queue)) = self.nodes.get(node) else { return Ok(()) };
        queue.try_send(request).map_err(|_full| format!("{QUEUE} requests wait for {host}: try again later"))
    }

    /// Waits for an answer; returns it with the place of its machine.
    pub async fn answer(&mut self) -> (usize, Answer) {
        match self.answers.recv().await {
            Some(answer) => answer,
            // The links have ended.
            None => pending().await,
        }
    }
}

/// What a machine's stream reports about its gpuwatch in its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takes {
    /// The version of its gpuwatch.
    pub gpuwatch: Foreign,
    /// The types of requests that it answers; `None` if it is older than requests.
    pub kinds: Option<Vec<Kind>>,
}

impl Takes {
    /// Returns why the machine does not take a request.
    fn refusal(&self, host: &Foreign, kind: Kind) -> Option<String> {
        let gpuwatch = &self.gpuwatch;
        match &self.kinds {
            None => Some(format!("gpuwatch {gpuwatch} on {host} takes no requests: use a newer one there")),
            Some(kinds) if kinds.is_empty() => Some(format!("gpuwatch on {host} is --readonly: it takes no requests")),
            Some(kinds) if !kinds.contains(&kind) => {
                Some(format!("gpuwatch {gpuwatch} on {host} does not take this request: use a newer one there"))
            }
            Some(_) => None,
        }
    }
}

/// A link's end of the way.
#[derive(Debug)]
pub(super) struct Desk {
    node: usize,
    host: Foreign,
    queue: Receiver<Request>,
    replies: Sender<(usize, Answer)>,
    /// The requests that the machine has not answered.
    open: Vec<u64>,
}

impl Desk {
    /// Refuses every request for this time, because there is no connection.
    pub(super) async fn refuse_for(&mut self, time: Duration) {
        let mut end = pin!(sleep(time));
        loop {
            select! {
                () = &mut end => return,
                Some(request) = self.queue.recv() => {
                    let why = format!("{} is not connected: gpuwatch tries again", self.host);
                    self.refuse(request.id, why).await;
                }
            }
        }
    }

    /// Passes requests on to a machine, and returns its answers. Never completes.
    pub(super) async fn serve(
        &mut self,
        input: &mut (impl AsyncWrite + Unpin),
        takes: &OnceLock<Takes>,
        answers: &mut Receiver<Answer>,
    ) {
        loop {
            select! {
                Some(answer) = answers.recv() => self.pass_back(answer).await,
                Some(request) = self.queue.recv() => self.pass_on(&request, input, takes).await,
                else => pending().await,
            }
        }
    }

    /// Refuses the requests that the machine did not answer before its connection ended.
    pub(super) async fn close(&mut self) {
        for id in std::mem::take(&mut self.open) {
            self.refuse(id, format!("the connection to {} ended before it answered", self.host)).await;
        }
    }

    async fn pass_on(&mut self, request: &Request, input: &mut (impl AsyncWrite + Unpin), takes: &OnceLock<Takes>) {
        let refusal = match takes.get() {
            None => Some(format!("{} has not answered yet", self.host)),
            Some(_) if self.open.len() >= QUEUE => Some(format!("{} has not answered {QUEUE} requests", self.host)),
            Some(takes) => takes.refusal(&self.host, request.action.kind()),
        };
        if let Some(why) = refusal {
            return self.refuse(request.id, why).await;
        }
        self.open.push(request.id);
        // Where nothing reads, the connection ends, and every open request is refused.
        let _ = input.write_all(request.line().as_bytes()).await;
    }

    /// Passes an answer on if it is one; a machine may send anything.
    async fn pass_back(&mut self, answer: Answer) {
        let place = self.open.iter().position(|it| *it == answer.id);
        if let Some(place) = place {
            self.open.swap_remove(place);
            self.reply(answer).await;
        }
    }

    async fn refuse(&self, id: u64, why: String) {
        self.reply(Answer { id, outcome: Outcome::Error(Foreign::new(why)) }).await;
    }

    async fn reply(&self, answer: Answer) {
        // Only a view sends requests, and it takes the answers until it ends.
        let _ = self.replies.send((self.node, answer)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::remote::{Action, KINDS, Signal};
    use tokio::io::{AsyncReadExt, duplex};

    const REQUEST: Action = Action::Signal { held: 1, signal: Signal::Term };

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    /// The only link, and the way to it.
    fn one() -> (Requests, Desk) {
        let (requests, mut desks) = Requests::new(&["node1".to_owned()]);
        (requests, desks.remove(0))
    }

    fn error((node, answer): (usize, Answer)) -> (usize, u64, String) {
        let Outcome::Error(why) = answer.outcome else { panic!("{answer:?}") };
        (node, answer.id, why.to_string())
    }

    fn taking(kinds: Option<Vec<Kind>>) -> OnceLock<Takes> {
        OnceLock::from(Takes { gpuwatch: "0.1.7".into(), kinds })
    }

    /// Sends a request to a machine that takes these, and returns the refusal.
    fn refusal(takes: &OnceLock<Takes>) -> String {
        let mut why = String::new();
        run(async {
            let ((mut requests, mut desk), (_answered, mut answers)) = (one(), mpsc::channel(1));
            requests.send(0, Request { id: 7, action: REQUEST }).unwrap();
            let mut sink = tokio::io::sink();
            select! {
                () = desk.serve(&mut sink, takes, &mut answers) => {}
                answer = requests.answer() => why = error(answer).2,
            }
        });
        why
    }

    #[test]
    fn a_machine_that_does_not_take_a_request_is_named_with_the_reason() {
        assert_eq!(refusal(&OnceLock::new()), "node1 has not answered yet");
        assert_eq!(refusal(&taking(None)), "gpuwatch 0.1.7 on node1 takes no requests: use a newer one there");
        assert!(refusal(&taking(Some(Vec::new()))).contains("on node1 is --readonly"));
        assert!(refusal(&taking(Some(vec![Kind::Hold, Kind::Unknown]))).contains("does not take this request"));
    }

    #[test]
    fn without_a_connection_requests_are_refused_at_once_and_few_may_wait() {
        run(async {
            let (mut requests, mut desk) = one();
            let request = |id| Request { id, action: REQUEST };
            for id in 0..QUEUE as u64 {
                requests.send(0, request(id)).unwrap();
            }
            assert!(requests.send(0, request(99)).unwrap_err().contains("wait for node1"));
            select! {
                () = desk.refuse_for(Duration::from_hours(1)) => {}
                answer = requests.answer() => assert!(error(answer).2.contains("node1 is not connected")),
            }
        });
    }

    #[test]
    fn each_request_has_one_answer_and_what_was_not_requested_has_none() {
        run(async {
            let ((mut requests, mut desk), (answered, mut answers)) = (one(), mpsc::channel(4));
            let (takes, (mut input, mut there)) = (taking(Some(KINDS.to_vec())), duplex(1024));
            for id in [1, 2] {
                requests.send(0, Request { id, action: REQUEST }).unwrap();
            }
            let test = async {
                let mut line = Request { id: 1, action: REQUEST }.line().into_bytes();
                there.read_exact(&mut line).await.unwrap();
                assert_eq!(Request::read(&line), Some(Request { id: 1, action: REQUEST }));
                for id in [7, 1, 1] {
                    answered.send(Answer { id, outcome: Outcome::Done }).await.unwrap();
                }
                assert_eq!(requests.answer().await, (0, Answer { id: 1, outcome: Outcome::Done }));
                there.read_exact(&mut line).await.unwrap();
            };
            select! {
                () = desk.serve(&mut input, &takes, &mut answers) => {}
                () = test => {}
            }
            desk.close().await;
            let (node, id, why) = error(requests.answer().await);
            assert_eq!((node, id, why.as_str()), (0, 2, "the connection to node1 ended before it answered"));
        });
    }
}
