//! The table of all servers and tubes, as JSON for the page: it is searched,
//! sorted and cut here, so that the page shows any number of tubes quickly.

use super::badge;
use super::tube::Tube;
use super::watch::Watched;
use crate::server::columns::Column;
use crate::server::tubes::matches;
use crate::text::json::{Json, float, json};
use crate::values::Parse;
use beanpole::protocol::TubeName;
use std::cmp::Ordering;
use std::time::Duration;

/// Which part of the table is wanted.
pub struct View {
    /// Only tubes whose name contains this, or fits it if it has a `*` or `?`.
    pub search: String,
    pub sort: Sort,
    pub is_turned: bool,
    /// Only tubes of the server with this index.
    pub server: Option<usize>,
    pub from: usize,
    pub count: usize,
}

/// What the table is sorted by: larger figures come first.
#[derive(Clone, Copy)]
pub enum Sort {
    Trouble,
    By(Column),
}

impl Sort {
    /// The order with this name in the page; by trouble if there is none.
    pub fn named(name: &str) -> Sort {
        match name {
            "name" => Sort::By(Column::Tube),
            _ => Column::parse(name).map_or(Sort::Trouble, Sort::By),
        }
    }

    fn compare(self, one: &Tube, other: &Tube) -> Ordering {
        match self {
            Sort::Trouble => badge::compare(one, other),
            Sort::By(column) => other.figure(column).total_cmp(&one.figure(column)),
        }
    }
}

/// The servers, and the part of the table of their tubes.
pub fn to_json(servers: &[Watched], view: &View) -> Json {
    // All are held for this short time, always in the same order.
    let known: Vec<_> = servers
        .iter()
        .map(|server| (server, server.known()))
        .collect();
    let mut rows = Vec::new();
    let mut total = 0;
    for (index, (server, known)) in known.iter().enumerate() {
        let there = || known.tubes.iter().filter(|(_, tube)| !tube.is_gone);
        total += there().count();
        if view.server.is_none_or(|wanted| wanted == index) {
            let found = there().filter(|(name, _)| fits(name.as_str(), &view.search));
            rows.extend(found.map(|(name, tube)| (index, server.now(), name, tube)));
        }
    }
    rows.sort_by(
        |(one_server, _, one_name, one), (other_server, _, other_name, other)| {
            let by_figure = view.sort.compare(one, other);
            by_figure
                .then_with(|| one_name.cmp(other_name))
                .then(one_server.cmp(other_server))
        },
    );
    if view.is_turned {
        rows.reverse();
    }
    let found = rows.len();
    let shown = rows.into_iter().skip(view.from).take(view.count);
    let shown = shown.map(|(index, now, name, tube)| row(index, now, name, tube));
    json!({"total": total, "found": found, "rows": shown.collect::<Json>()})
}

/// A tube as a row. The key `server` is the index of its server.
pub fn row(server: usize, now: Duration, name: &TubeName, tube: &Tube) -> Json {
    let [ready, reserved, delayed, buried] = tube.jobs;
    let rate = |index: usize| {
        let rates = tube.rates;
        rates.map(|rates| float((rates[index] * 100.0).round() / 100.0))
    };
    let badge = badge::of(tube);
    json!({
        "server": server,
        "name": name.as_str(),
        "ready": ready,
        "reserved": reserved,
        "delayed": delayed,
        "buried": buried,
        "watching": tube.watching,
        "waiting": tube.waiting,
        "put": rate(0),
        "delete": rate(1),
        "age": tube.age,
        "pause": tube.pause_left,
        "grave": badge.as_ref().is_some_and(|badge| badge.is_grave),
        "trouble": badge.map(|badge| badge.words),
        "curve": tube.small_curve(now),
    })
}

/// Whether a name is looked for by this text, in capital or small letters.
fn fits(name: &str, search: &str) -> bool {
    let (name, search) = (name.to_ascii_lowercase(), search.to_ascii_lowercase());
    match search.contains(['*', '?']) {
        true => matches(search.as_bytes(), name.as_bytes()),
        false => name.contains(&search),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_part_of_a_name_or_a_pattern_for_all_of_it() {
        for (name, search) in [
            ("mail", ""),
            ("mail", "AI"),
            ("mail-eu", "mail*"),
            ("mail-eu", "*-e?"),
            ("mail", "*"),
            ("aab", "*ab"),
            ("abcabd", "*ab?*"),
            ("mail", "m**l"),
        ] {
            assert!(fits(name, search), "{name} {search}");
        }
        for (name, search) in [
            ("mail", "x"),
            ("mail-eu", "mail?"),
            ("mail", "*z"),
            ("mail", "ai*"),
            ("", "?"),
        ] {
            assert!(!fits(name, search), "{name} {search}");
        }
    }
}
