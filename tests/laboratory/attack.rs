//! The attacking program. Its first argument names the kind of attack, and that
//! kind gets the other arguments.

use std::process::ExitCode;

const USAGE: &str = "\
Usage: attack clients|differential [OPTION]...
Does to servers what clients should not, and tells what comes of it.
'attack clients --help' and so on tell the options.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let how = arguments.next();
    let arguments: Vec<String> = arguments.collect();
    match how.as_deref() {
        Some("clients") => laboratory::attacks::run(&arguments),
        Some("differential") => laboratory::differential::run(&arguments),
        Some("--help" | "-h") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
