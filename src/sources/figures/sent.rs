//! Figures of processes as last sent, to send only what changed.

use crate::facts::figures::{Changes, Figures};
use std::collections::BTreeMap;

/// The figures as last sent, by pid.
#[derive(Default)]
pub(in crate::sources) struct Sent(BTreeMap<u32, Figures>);

impl Sent {
    /// Returns what to send: what changed, what is known no more, and everything if `whole`.
    pub(in crate::sources) fn news(&mut self, now: BTreeMap<u32, Figures>, whole: bool) -> Vec<(u32, Changes)> {
        let none = Figures::default();
        let gone = self.0.iter().filter(|(pid, _)| !now.contains_key(pid)).map(|(pid, it)| (*pid, none.since(it)));
        let known = now.iter().map(|(pid, figures)| {
            let before = self.0.get(pid).unwrap_or(&none);
            (*pid, if whole { figures.whole(before) } else { figures.since(before) })
        });
        let news = gone.chain(known).filter(|(_, it)| !it.is_empty()).collect();
        self.0 = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::figures::Figure;

    fn figures(pid: u32, percent: u64) -> BTreeMap<u32, Figures> {
        [(pid, [(Figure::SmPercent, percent)].into_iter().collect())].into()
    }

    fn text(news: &[(u32, Changes)]) -> String {
        serde_json::to_string(news).unwrap()
    }

    #[test]
    fn changes_are_sent_once_and_what_is_gone_is_cleared() {
        let mut sent = Sent::default();
        assert_eq!(text(&sent.news(figures(7, 34), false)), r#"[[7,{"sm_percent":34}]]"#);
        assert_eq!(text(&sent.news(figures(7, 34), false)), "[]");
        assert_eq!(text(&sent.news(figures(7, 34), true)), r#"[[7,{"sm_percent":34}]]"#);
        assert_eq!(text(&sent.news(figures(8, 0), false)), r#"[[7,{"sm_percent":null}],[8,{"sm_percent":0}]]"#);
        assert_eq!(text(&sent.news(BTreeMap::new(), false)), r#"[[8,{"sm_percent":null}]]"#);
    }
}
