//! Lists of jobs that are longer than one answer.

use support::Client;
use support::Server;

/// The ids in one answer to `list-jobs`, and the id from which to go on.
fn list(client: &mut Client, arguments: &str) -> (Vec<u64>, u64) {
    let text = client.document(&format!("list-jobs {arguments}"));
    let number = |text: &str| text.parse().expect("a number");
    let id = |line: &str| Some(number(line.strip_prefix("- {id: ")?.split_once(',')?.0));
    let (_, next) = text.rsplit_once("next: ").expect("where to go on");
    (
        text.lines().filter_map(id).collect(),
        number(next.trim_end()),
    )
}

#[test]
fn one_list_jobs_examines_at_most_a_thousand_jobs_and_names_their_segments() {
    let folder = support::Folder::new();
    let server = Server::start(["-b", folder.text()]);
    let mut owner = server.connect();
    owner.send(support::put(b"").repeat(1500));
    owner.lines(1500);
    owner.ask("use mail");
    let id = owner.put("");
    let (first, next) = list(&mut owner, "0 5000");
    assert_eq!((first.len(), next), (1000, 1001));
    assert_eq!(list(&mut owner, "0 1 mail"), (vec![], 1001));
    assert_eq!(list(&mut owner, "1001 1 mail"), (vec![id], 0));
    let text = owner.document("list-jobs 0 1");
    assert!(text.contains(", file: 1, "), "{text}");
}

#[test]
fn successive_list_jobs_show_each_remaining_job_exactly_once() {
    let server = Server::start([]);
    let mut owner = server.connect();
    let ids: Vec<u64> = (0..3000).map(|_| owner.put("")).collect();
    let mut walker = server.connect();
    let (mut seen, mut next) = (Vec::new(), 1);
    while next > 0 {
        let (more, then) = list(&mut walker, &format!("{next} 400"));
        assert!(more.len() <= 400);
        seen.extend(more);
        next = then;
        // Before and behind the place of the walk, jobs are deleted and put.
        if let Some(third) = seen.len().checked_div(400).filter(|third| *third < 3) {
            let go = ids.iter().filter(|&id| id % 3 == 0).skip(third * 300);
            go.take(300).for_each(|&id| owner.delete(id));
            owner.put("late");
        }
    }
    assert!(seen.is_sorted_by(|one, other| one < other), "{seen:?}");
    let stay = ids.iter().filter(|&id| id % 3 != 0);
    let lost: Vec<_> = stay.filter(|id| !seen.contains(id)).collect();
    assert_eq!(lost, [] as [&u64; 0]);
}
