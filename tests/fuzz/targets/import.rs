//! A file of beanstalkd: the version that we know, and then the input. The first
//! byte of the input says whether the rest makes two files.

#![no_main]

mod disk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&shape, bytes)) = data.split_first() else {
        return;
    };
    let version = 7u32.to_ne_bytes();
    let middle = usize::from(shape / 4) * 16;
    match bytes.split_at_checked(middle) {
        Some((first, second)) if middle > 0 => disk::open(&[
            (1, &[&version, first].concat()),
            (2, &[&version, second].concat()),
        ]),
        _ => disk::open(&[(1, &[&version, bytes].concat())]),
    }
});
