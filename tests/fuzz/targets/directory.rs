//! A directory with several files, from our server or from any other program.
//!
//! The input has the files one after the other. Each has a byte for the number
//! in its name, two bytes for its length, and its contents.

#![no_main]

mod disk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut files: Vec<(u32, &[u8])> = Vec::new();
    let mut rest = data;
    while let Some((&[number, low, high], left)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(left.len());
        let (bytes, left) = left.split_at(length);
        files.push((number.into(), bytes));
        rest = left;
    }
    disk::open(&files);
});
