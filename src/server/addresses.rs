//! How many connections each address has, if an option bounds that: otherwise
//! one client could take all the connections that the server allows.
//!
//! Clients on Unix sockets have no address and are not counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;

/// The connections of all addresses.
pub struct Addresses {
    /// The most connections of one address; `None` if they are not counted.
    most: Option<NonZeroUsize>,
    counts: HashMap<IpAddr, usize>,
}

impl Addresses {
    /// Nobody is connected yet.
    pub fn new(most: Option<NonZeroUsize>) -> Addresses {
        let counts = HashMap::new();
        Addresses { most, counts }
    }

    /// Counts a connection of this address.
    ///
    /// # Errors
    ///
    /// How many connections the address has, if these are as many as it may
    /// have.
    pub fn count(&mut self, address: Option<IpAddr>) -> Result<(), usize> {
        if let (Some(most), Some(address)) = (self.most, address.map(network)) {
            let count = self.counts.entry(address).or_default();
            if *count >= most.get() {
                return Err(*count);
            }
            *count += 1;
        }
        Ok(())
    }

    /// A connection that was counted is gone.
    pub fn forget(&mut self, address: Option<IpAddr>) {
        if let (Some(_), Some(address)) = (self.most, address.map(network)) {
            let count = self.counts.get_mut(&address).expect("it is counted");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&address);
            }
        }
    }
}

/// What counts as one address. One machine usually has all addresses of IPv6
/// that begin with the same 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_the_others_have_theirs() {
        let mut addresses = Addresses::new(NonZeroUsize::new(2));
        let of = |text: &str| Some(text.parse().expect("an address"));
        assert_eq!(addresses.count(of("10.0.0.1")), Ok(()));
        let same = of("::ffff:10.0.0.1");
        assert_eq!(addresses.count(same), Ok(()));
        assert_eq!(addresses.count(of("10.0.0.1")), Err(2));
        assert_eq!(addresses.count(of("10.0.0.2")), Ok(()));
        addresses.forget(same);
        assert_eq!(addresses.count(of("10.0.0.1")), Ok(()));

        assert_eq!(addresses.count(of("2001:db8:0:1::1")), Ok(()));
        assert_eq!(addresses.count(of("2001:db8:0:1:9::1")), Ok(()));
        assert_eq!(addresses.count(of("2001:db8:0:1::2")), Err(2));
        assert_eq!(addresses.count(of("2001:db8:0:2::1")), Ok(()));
    }

    #[test]
    fn nothing_is_kept_of_those_who_have_left_or_have_no_address() {
        let mut addresses = Addresses::new(NonZeroUsize::new(1));
        for address in [Some(IpAddr::from([10, 0, 0, 1])), None] {
            assert_eq!(addresses.count(address), Ok(()));
            addresses.forget(address);
        }
        assert!(addresses.counts.is_empty());
    }
}
