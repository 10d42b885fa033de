//! Plays histories of the whole server: see `mod.rs`.

fn main() {
    simulated::simulator::main();
}
