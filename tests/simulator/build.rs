//! Has the daemon's crate compiled with the simulator in it.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(simulated)");
    println!("cargo::rustc-cfg=simulated");
    println!("cargo::rerun-if-changed=build.rs");
}
