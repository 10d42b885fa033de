//! The measuring program: its arguments go to [`laboratory::bench`].

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    laboratory::bench::run(&arguments)
}
