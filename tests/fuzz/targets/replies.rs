//! The bytes of a server, as the companion reads them: replies one after the
//! other, with their documents. The companion also reads the whole input as the
//! text of a file.

#![no_main]

use companion::remote::address::Address;
use companion::remote::facts::{Facts, JobFacts, tubes};
use companion::remote::reply::RawReply;
use companion::text::json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((reply, length))) = RawReply::parse(rest, u64::MAX) {
        assert!((1..=rest.len()).contains(&length));
        rest = &rest[length..];
        if let Some(document) = &reply.chunk {
            read(document);
        }
        // The reply may have no meaning, but this must not panic.
        let _ = reply.understand();
    }
    read(data);
});

fn read(document: &[u8]) {
    if let Ok(facts) = Facts::parse(document) {
        let _ = JobFacts::read(facts.clone());
        let mut written = Vec::new();
        json::line(&mut written, &facts).expect("a vector takes all");
        json::parse::<json::Json>(&written).expect("what was written can be read");
    }
    let _ = tubes(document);
    if let Ok(value) = json::parse::<json::Json>(document) {
        assert_eq!(
            json::parse::<json::Json>(value.to_string().as_bytes()),
            Ok(value)
        );
    }
    if let Ok(text) = std::str::from_utf8(document) {
        let _ = Address::parse(text);
        if let Some(bytes) = json::from_base64(text) {
            assert_eq!(json::from_base64(&json::to_base64(&bytes)), Some(bytes));
        }
    }
}
