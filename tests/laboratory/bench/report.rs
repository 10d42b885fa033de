//! A comparison as text and as JSON, with the facts that one needs to
//! understand it.

use super::figures::Figure;
use super::load::{Length, Load, Syncing};
use super::rounds::{Comparison, Facts, Row, Spread};
use super::servers::{allowed_cpus, place};
use companion::text::json::{Json, float, json};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The whole result for a person to read.
pub fn text(result: &Comparison) -> String {
    let mut text = format!(
        "{}, {} rounds\n",
        described(&result.load),
        result.rounds.len()
    );
    text.push_str(&facts(&result.servers));
    let mut head = format!("\n{:<42}", "median (lowest - highest)");
    for (_, name) in result.servers.iter().zip(["ours", "theirs"]) {
        head.push_str(&format!("  {name:<28}"));
    }
    head.push_str(if result.servers.len() == 2 {
        "ratio"
    } else {
        ""
    });
    text.push_str(head.trim_end());
    text.push('\n');
    for row in result.rows() {
        line(&mut text, &row);
    }
    text
}

/// The machine and the servers, each on a line.
pub fn facts(servers: &[Facts]) -> String {
    let mut text = format!("machine: {}\n", machine());
    for (server, which) in servers.iter().zip(["ours", "theirs"]) {
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{which}: {}, version {}",
            server.source, server.version
        )
        .unwrap_or(());
    }
    text
}

fn line(text: &mut String, row: &Row) {
    let name = match row.unit {
        "" => row.name.clone(),
        unit => format!("{}, {unit}", row.name),
    };
    let mut line = format!("{name:<42}");
    for of in &row.of {
        line.push_str(&format!("  {:<28}", spread(of)));
    }
    if let Some(ratio) = &row.ratio {
        line.push_str(&spread(ratio));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// `median (lowest - highest)`, or the median alone if they are the same.
pub fn spread(spread: &Spread) -> String {
    let Spread {
        median,
        lowest,
        highest,
    } = spread;
    if lowest == highest {
        return short(*median);
    }
    format!(
        "{} ({} - {})",
        short(*median),
        short(*lowest),
        short(*highest)
    )
}

/// A number with about four significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        0.1.. => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// A load in words.
pub fn described(load: &Load) -> String {
    let scenario = load.scenario.as_str();
    let length = match load.length {
        Length::Count(count) if scenario == "connect" => counted(count, "visit"),
        Length::Count(count) if scenario == "timers" => counted(count, "time"),
        // `idle` has one job for each connection.
        Length::Count(_) if scenario == "idle" => counted(load.connections, "job"),
        Length::Count(count) => counted(count, "job"),
        Length::Seconds(seconds) => format!("{seconds} s"),
    };
    let who = match scenario {
        "handoff" => {
            let producers = counted(load.producers, "producer");
            format!("{producers}, {}", counted(load.consumers, "consumer"))
        }
        "mature" => counted(load.consumers, "consumer"),
        "crowd" => {
            let clients = counted(load.connections, "client");
            format!("{clients} that {}", load.work.name())
        }
        _ => format!(
            "{}, depth {}",
            counted(load.connections, "connection"),
            load.depth
        ),
    };
    let tubes = match scenario {
        "tubes" => format!(
            ", {}, {} watched",
            counted(load.tubes, "tube"),
            load.watched
        ),
        _ => String::new(),
    };
    let sync = match load.sync {
        None => String::new(),
        Some(Syncing::WithinMs(0)) => ", binlog synced before each reply".into(),
        Some(Syncing::WithinMs(ms)) => format!(", binlog synced within {ms} ms"),
        Some(Syncing::Never) => ", binlog never synced".into(),
    };
    let (body, placement) = (load.body, load.placement.name());
    let mut beside = load.rate.map_or(String::new(), |rate| {
        format!(", {} a second", rate.jobs_per_second)
    });
    if load.busy > 0 {
        beside += &format!(", {} beside", counted(load.busy, "busy program"));
    }
    if load.together {
        beside += ", all due together";
    }
    format!(
        "{scenario}: {who}, {length} of {body} bytes{tubes}{sync}{beside}, placement {placement}"
    )
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The machine in a few words: CPUs, memory, kernel, and the file system of the
/// binlogs.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(key));
        found.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_string())
    };
    let cpus = allowed_cpus().map_or(0, |cpus| cpus.len());
    let model = field(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown".into());
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{cpus} CPUs ({model}), {memory} of memory, Linux {}, {} on {}",
        kernel.trim(),
        place().display(),
        file_system(&read("/proc/self/mounts"), &place())
    )
}

/// The type of the file system of a path. `mounts` is the list of all mounts.
fn file_system<'a>(mounts: &'a str, path: &Path) -> &'a str {
    let mount = |line: &'a str| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    };
    let around = mounts
        .lines()
        .filter_map(mount)
        .filter(|(point, _)| path.starts_with(point));
    // Of two mounts at the same place, the later one covers the earlier one.
    let nearest = around.max_by_key(|(point, _)| point.len());
    nearest.map_or("an unknown file system", |(_, kind)| kind)
}

/// The whole result for a program to read: every figure of every run.
pub fn json(result: &Comparison) -> Json {
    let load = &result.load;
    let server = |facts: &Facts| json!({"source": facts.source, "version": facts.version});
    let rows = result.rows();
    json!({
        "scenario": load.scenario.to_string(),
        "load": described(load),
        "connections": load.connections,
        "depth": load.depth,
        "body": load.body,
        "placement": load.placement.name(),
        "rounds": result.rounds.len(),
        "machine": machine(),
        "servers": result.servers.iter().map(server).collect::<Json>(),
        "figures": rows.iter().map(|row| row_json(result, row)).collect::<Json>(),
    })
}

fn row_json(result: &Comparison, row: &Row) -> Json {
    let runs = |which: usize| {
        let of_round = |round: &Vec<Vec<Figure>>| {
            let found = round
                .get(which)?
                .iter()
                .find(|figure| figure.name == row.name)?;
            Some(float(found.value))
        };
        result.rounds.iter().filter_map(of_round).collect::<Json>()
    };
    let of = |which: usize| {
        let spread = row.of.get(which).map(spread_json)?;
        Some(json!({"spread": spread, "runs": runs(which)}))
    };
    json!({
        "name": row.name,
        "unit": row.unit,
        "ours": of(0),
        "theirs": of(1),
        "ratio": row.ratio.as_ref().map(spread_json),
    })
}

fn spread_json(spread: &Spread) -> Json {
    json!({
        "median": float(spread.median),
        "lowest": float(spread.lowest),
        "highest": float(spread.highest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_file_system_that_was_mounted_nearest_and_last() {
        let mounts = "/dev/vda / ext4 rw 0 0\nx /tmp xfs rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        for (path, kind) in [("/tmp/a", "tmpfs"), ("/tmpa", "ext4"), ("/", "ext4")] {
            assert_eq!(file_system(mounts, Path::new(path)), kind);
        }
        assert_eq!(file_system("", Path::new("/")), "an unknown file system");
    }

    #[test]
    fn numbers_keep_four_digits() {
        for (value, told) in [
            (123456.7, "123457"),
            (123.456, "123.5"),
            (12.3456, "12.35"),
            (1.23456, "1.235"),
            (0.123456, "0.123"),
            (0.0123456, "0.0123"),
            (0.0, "0"),
        ] {
            assert_eq!(short(value), told);
        }
    }
}
