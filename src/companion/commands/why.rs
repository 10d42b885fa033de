//! `why`: says in sentences for people what keeps jobs from being done.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::trouble::sentences;
use crate::remote::{Client, Facts, Known, Patterns, Refusal};
use crate::text::counted;
use clap::Args;
use serde::Serialize;

#[derive(Args)]
pub struct Why {
    #[command(flatten)]
    tubes: Tubes,
    /// write JSON
    #[arg(short, long)]
    json: bool,
}

/// How many tubes are reported, if none is named.
const TUBES: usize = 20;

/// What is in the way on a server.
#[derive(Serialize)]
struct Told {
    server: Option<String>,
    tubes: Vec<TubeTold>,
    /// How many tubes more are in trouble.
    more: usize,
}

/// What is in the way of a tube.
#[derive(Serialize)]
struct TubeTold {
    tube: String,
    why: Vec<String>,
}

impl Run for Why {
    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let ask = |client: &mut Client| ask(client, &patterns);
        let told = invocation.show_each(self.json, ask, Told::text)?;
        Ok(Status::done_if(told.iter().all(Told::is_well)))
    }
}

fn ask(client: &mut Client, patterns: &Patterns) -> Outcome<Told> {
    let (mut names, mut more) = (patterns.existing(client)?, 0);
    let known = Known::of(client, names.is_empty())?;
    let server = of_server(&known.server.facts);
    if names.is_empty() {
        let all = known.tubes.iter();
        let mut troubled: Vec<_> = all.filter(|(_, tube)| tube.severity() > 0).collect();
        troubled.sort_by_key(|(_, tube)| tube.rank());
        names = troubled.into_iter().map(|(name, _)| name.clone()).collect();
        more = names.split_off(names.len().min(TUBES)).len();
    }
    let mut tubes = Vec::new();
    for name in names {
        let found = known.tubes.get(&name);
        let tube = found.ok_or_else(|| Failure::no_tube(&name))?;
        tubes.push(TubeTold {
            why: sentences(client, &name, tube)?,
            tube: name.to_string(),
        });
    }
    Ok(Told {
        server,
        tubes,
        more,
    })
}

impl Told {
    fn is_well(&self) -> bool {
        self.server.is_none() && self.tubes.iter().all(|tube| tube.why.is_empty())
    }

    fn text(&self) -> String {
        let mut lines: Vec<String> = self.server.iter().cloned().collect();
        for TubeTold { tube, why } in &self.tubes {
            lines.push(match why.as_slice() {
                [] => format!("{tube}: Nothing is in its way."),
                why => format!("{tube}: {}", why.join(" ")),
            });
        }
        if lines.is_empty() {
            lines.push("Nothing is in the way of any job.".into());
        }
        if self.more > 0 {
            lines.push(format!("And {} more tubes.", self.more));
        }
        lines.join("\n") + "\n"
    }
}

/// What is in the way of all jobs, or of those with new unique keys.
fn of_server(stats: &Facts) -> Option<String> {
    let refusal = Refusal::of(stats);
    let text = match refusal {
        Some(Refusal::Drains) => return Some("The server drains: it takes no new jobs.".into()),
        Some(why) => format!("The server takes no new jobs: {}", why.words()),
        None if keys_are_full(stats) => {
            let what = "The server takes no jobs with new unique keys";
            format!("{what}: such keys take a quarter of its memory")
        }
        None => return None,
    };
    let refused = counted(stats.number("puts-refused"), "put");
    let keys = stats.number("idempotency-keys-taken");
    let more = match refusal {
        Some(Refusal::DiskFull) => " Files binlog.*.taken in its directory may be removed.".into(),
        None | Some(Refusal::MemoryFull) if keys > 0 => {
            let keys = counted(keys, "unique key");
            format!(" Deleted jobs have left {keys} taken.")
        }
        _ => String::new(),
    };
    Some(format!("{text}. It has refused {refused}.{more}"))
}

/// Whether a put with a new key of the greatest length would be refused.
fn keys_are_full(stats: &Facts) -> bool {
    const LONGEST: u64 = 800;
    let most = stats.number("max-memory") / 4;
    most > 0 && stats.number("unique-keys-memory") > most.saturating_sub(LONGEST)
}
