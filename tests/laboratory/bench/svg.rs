//! A picture of a result, drawn from its JSON: a line for each figure, with a
//! bar from 1 to the ratio of ours to theirs, on a logarithmic scale.
//!
//! A thin line is the spread of the ratio, as far as the scale goes; a thick
//! mark is its goal. Colours follow the reader's choice of light or dark; there
//! is nothing but text in the file, and nothing in it that runs.

use super::report::short;
use companion::text::json::Json;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const ROW: f64 = 18.0;
/// Where the bars are.
const LEFT: f64 = 260.0;
const RIGHT: f64 = 580.0;

const STYLE: &str = "\
text{font:12px sans-serif;fill:#1f2328}\
.head{font-weight:bold}\
.bar{fill:#4a8fe0}.met{fill:#2da44e}.missed{fill:#e5534b}\
.line{stroke:#1f2328}.scale{stroke:#8c959f;stroke-width:.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.line{stroke:#e6edf3}}";

/// One line of the picture.
#[derive(Default)]
struct Row {
    class: &'static str,
    name: String,
    told: String,
    ratio: Option<Ratio>,
    goal: Option<f64>,
}

struct Ratio {
    median: f64,
    lowest: f64,
    highest: f64,
}

/// The picture of a comparison or of a table; `None` if this is neither.
pub fn draw(result: &Json) -> Option<String> {
    let mut rows = Vec::new();
    match result.items() {
        [] => comparison(&mut rows, result)?,
        entries => {
            servers(&mut rows, entries[0].get("result")?)?;
            for entry in entries {
                goals(&mut rows, entry)?;
            }
        }
    }
    Some(picture(&rows))
}

/// All figures of a comparison.
fn comparison(rows: &mut Vec<Row>, result: &Json) -> Option<()> {
    servers(rows, result)?;
    rows.push(head(result.get("load")?.as_text()?));
    for figure in result.get("figures")?.items() {
        rows.push(row(figure)?);
    }
    Some(())
}

/// The figures of an entry in a table that have a goal.
fn goals(rows: &mut Vec<Row>, entry: &Json) -> Option<()> {
    let result = entry.get("result")?;
    rows.push(head(result.get("load")?.as_text()?));
    let figures = result.get("figures")?.items();
    for goal in entry.get("goals")?.items() {
        let name = goal.get("figure");
        let mut row = row(figures.iter().find(|figure| figure.get("name") == name)?)?;
        let (bound, value) = (goal.get("bound")?.as_text()?, goal.get("value")?.as_f64()?);
        let of_ratio = goal.get("of")?.as_text()? == "ratio";
        let (class, verdict) = match goal.get("met")? {
            Json::Bool(true) => ("met", "met"),
            Json::Bool(false) => ("missed", "MISSED"),
            _ => ("bar", "not compared"),
        };
        row.class = class;
        row.goal = of_ratio.then_some(value);
        let whose = if of_ratio { "" } else { "ours " };
        row.told += &format!(" ({whose}{bound} {value}) {verdict}");
        rows.push(row);
    }
    Some(())
}

fn servers(rows: &mut Vec<Row>, result: &Json) -> Option<()> {
    let text = |text: String| Row {
        name: text,
        ..Row::default()
    };
    rows.push(text(result.get("machine")?.as_text()?.into()));
    let servers = result.get("servers")?.items();
    for (which, server) in ["ours", "theirs"].iter().zip(servers) {
        let source = server.get("source")?.as_text()?;
        let version = server.get("version")?.as_text()?;
        rows.push(text(format!("{which}: {source}, version {version}")));
    }
    Some(())
}

fn head(load: &str) -> Row {
    Row {
        class: "head",
        name: load.into(),
        ..Row::default()
    }
}

fn row(figure: &Json) -> Option<Row> {
    let median = |key: &str| figure.get(key)?.get("spread")?.get("median")?.as_f64();
    let mut told = [median("ours"), median("theirs")]
        .into_iter()
        .flatten()
        .map(short)
        .collect::<Vec<_>>()
        .join(" : ");
    let unit = figure.get("unit")?.as_text()?;
    if !unit.is_empty() {
        told += &format!(" {unit}");
    }
    let of = |key: &str| figure.get("ratio")?.get(key)?.as_f64();
    let ratio = of("median").zip(of("lowest")).zip(of("highest"));
    let ratio = ratio.map(|((median, lowest), highest)| Ratio {
        median,
        lowest,
        highest,
    });
    if let Some(ratio) = &ratio {
        told += &format!(" = {}", short(ratio.median));
    }
    Some(Row {
        class: "bar",
        name: figure.get("name")?.as_text()?.into(),
        told,
        // There is no place for it on the scale otherwise.
        ratio: ratio.filter(|ratio| ratio.median > 0.0),
        goal: None,
    })
}

fn picture(rows: &[Row]) -> String {
    let scale = Scale::of(rows);
    let height = (rows.len() as f64 + 2.0) * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\">\n<style>{STYLE}</style>\n"
    );
    let first = rows.iter().position(|row| row.class == "head").unwrap_or(0);
    let top = (first as f64 + 1.0) * ROW;
    for mark in scale.marks() {
        let x = scale.place(mark);
        element(
            &mut svg,
            format_args!(
                "<path class=\"scale\" d=\"M{x:.1} {top}V{}\"/>",
                height - ROW
            ),
        );
        text(&mut svg, x - 4.0, height - 4.0, "", &mark.to_string());
    }
    for (row, line) in rows.iter().zip(1u32..) {
        let bottom = f64::from(line) * ROW;
        let class = if row.class == "head" { "head" } else { "" };
        text(&mut svg, 8.0, bottom, class, &row.name);
        text(&mut svg, RIGHT + 12.0, bottom, "", &row.told);
        if let Some(ratio) = &row.ratio {
            let ends = [scale.place(1.0), scale.place(ratio.median)];
            let (x, width) = (ends[0].min(ends[1]), (ends[0] - ends[1]).abs());
            let (class, y) = (row.class, bottom - 10.0);
            element(
                &mut svg,
                format_args!(
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" \
                     height=\"10\"/>"
                ),
            );
            let (from, to) = (scale.place(ratio.lowest), scale.place(ratio.highest));
            let y = bottom - 5.0;
            element(
                &mut svg,
                format_args!("<path class=\"line\" d=\"M{from:.1} {y}H{to:.1}\"/>"),
            );
        }
        if let Some(goal) = row.goal {
            let (x, y) = (scale.place(goal), bottom - 13.0);
            element(
                &mut svg,
                format_args!(
                    "<path class=\"line\" stroke-width=\"3\" d=\"M{x:.1} {y}V{}\"/>",
                    bottom + 3.0
                ),
            );
        }
    }
    svg + "</svg>\n"
}

/// A logarithmic scale between two powers of its base, with 1 in it.
struct Scale {
    base: f64,
    low: i32,
    high: i32,
}

impl Scale {
    /// By twos if that is not too many, else by tens.
    fn of(rows: &[Row]) -> Scale {
        // Not their spread: a single run can be far off.
        let ratios = rows.iter().filter_map(|row| row.ratio.as_ref());
        let shown = ratios.map(|ratio| ratio.median);
        let goals = rows.iter().filter_map(|row| row.goal);
        let shown: Vec<f64> = shown.chain(goals).filter(|value| *value > 0.0).collect();
        let by = |base: f64| Scale {
            base,
            low: shown
                .iter()
                .fold(-1, |low, value| low.min(value.log(base).floor() as i32)),
            high: shown
                .iter()
                .fold(1, |high, value| high.max(value.log(base).ceil() as i32)),
        };
        let twos = by(2.0);
        if twos.high - twos.low <= 8 {
            twos
        } else {
            by(10.0)
        }
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| self.base.powi(power))
    }

    /// Where a ratio is, in the picture.
    fn place(&self, ratio: f64) -> f64 {
        let span = f64::from(self.high - self.low);
        let share = (ratio.log(self.base) - f64::from(self.low)) / span;
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, content: &str) {
    if content.is_empty() {
        return;
    }
    let class = match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    let mut safe = String::new();
    for character in content.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            // What XML cannot hold.
            control if control.is_control() => safe.push(' '),
            other => safe.push(other),
        }
    }
    element(
        svg,
        format_args!("<text{class} x=\"{x:.1}\" y=\"{y}\">{safe}</text>"),
    );
}

fn element(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(svg, "{element}").unwrap_or(());
}

#[cfg(test)]
mod tests {
    use super::*;
    use companion::text::json::parse;

    #[test]
    fn a_table_is_drawn_with_its_goals() {
        let table = r#"[{
            "result": {
                "load": "put: 1 connection",
                "machine": "2 CPUs",
                "servers": [{"source": "a", "version": "2"}, {"source": "<b>", "version": "1"}],
                "figures": [
                    {"name": "throughput", "unit": "commands/s",
                     "ours": {"spread": {"median": 200}}, "theirs": {"spread": {"median": 100}},
                     "ratio": {"median": 2, "lowest": 1, "highest": 4}},
                    {"name": "RSS", "unit": "MB", "ours": {"spread": {"median": 5}},
                     "theirs": null, "ratio": null}
                ]
            },
            "goals": [
                {"figure": "throughput", "of": "ratio", "bound": "at least", "value": 1.5,
                 "met": true},
                {"figure": "RSS", "of": "ours", "bound": "at most", "value": 4, "met": false}
            ]
        }]"#;
        let picture = draw(&parse(table.as_bytes()).unwrap()).unwrap();
        let body = picture.split_once("</style>\n").unwrap().1;
        assert_eq!(
            body,
            r#"<path class="scale" d="M260.0 72V126"/>
<text x="256.0" y="140">0.5</text>
<path class="scale" d="M420.0 72V126"/>
<text x="416.0" y="140">1</text>
<path class="scale" d="M580.0 72V126"/>
<text x="576.0" y="140">2</text>
<text x="8.0" y="18">2 CPUs</text>
<text x="8.0" y="36">ours: a, version 2</text>
<text x="8.0" y="54">theirs: &lt;b&gt;, version 1</text>
<text class="head" x="8.0" y="72">put: 1 connection</text>
<text x="8.0" y="90">throughput</text>
<text x="592.0" y="90">200.0 : 100.0 commands/s = 2.000 (at least 1.5) met</text>
<rect class="met" x="420.0" y="80" width="160.0" height="10"/>
<path class="line" d="M420.0 85H580.0"/>
<path class="line" stroke-width="3" d="M513.6 77V93"/>
<text x="8.0" y="108">RSS</text>
<text x="592.0" y="108">5.000 MB (ours at most 4) MISSED</text>
</svg>
"#
        );
    }

    #[test]
    fn a_comparison_is_drawn_with_all_its_figures() {
        let result = r#"{
            "load": "put", "machine": "2 CPUs", "servers": [],
            "figures": [{"name": "p50", "unit": "us", "ours": {"spread": {"median": 1}},
                "theirs": {"spread": {"median": 1000}},
                "ratio": {"median": 0.001, "lowest": 0.0001, "highest": 0.01}}]
        }"#;
        let picture = draw(&parse(result.as_bytes()).unwrap()).unwrap();
        let body = picture.split_once("</style>\n").unwrap().1;
        assert_eq!(
            body,
            r#"<path class="scale" d="M260.0 36V72"/>
<text x="256.0" y="86">0.001</text>
<path class="scale" d="M340.0 36V72"/>
<text x="336.0" y="86">0.01</text>
<path class="scale" d="M420.0 36V72"/>
<text x="416.0" y="86">0.1</text>
<path class="scale" d="M500.0 36V72"/>
<text x="496.0" y="86">1</text>
<path class="scale" d="M580.0 36V72"/>
<text x="576.0" y="86">10</text>
<text x="8.0" y="18">2 CPUs</text>
<text class="head" x="8.0" y="36">put</text>
<text x="8.0" y="54">p50</text>
<text x="592.0" y="54">1.000 : 1000 us = 0.0010</text>
<rect class="bar" x="260.0" y="44" width="240.0" height="10"/>
<path class="line" d="M260.0 49H340.0"/>
</svg>
"#
        );
    }

    #[test]
    fn what_is_no_result_is_not_drawn() {
        for text in ["[]", "{}", "7", r#"[{"result": {}}]"#] {
            assert_eq!(draw(&parse(text.as_bytes()).unwrap()), None, "{text}");
        }
    }
}
